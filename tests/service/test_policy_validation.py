"""Policies are checked beside the reviews of pods: in a process of its own, one at a time, for four callers at most."""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import sys

import admitting
import child_processes
import processes
import pytest
import pytest_asyncio
import shell

GOOD = (admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def webhook(tmp_path_factory):
    options = processes.without_cluster(tmp_path_factory.mktemp("webhook"))
    server = await processes.begin("webhook", "--plain-http", *options)
    child_processes.share(server.pid)
    await server.ready()
    yield server
    assert await server.end() == 0


def readers(server: processes.Process) -> list[int]:
    """Return the processes that read policies for this server."""
    pids = []
    for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread or a process that has ended by now
            for pid in (task / "children").read_text().split():
                pids += [int(pid)] * (b"policy_process" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    return pids


async def ask(server: processes.Process, body: bytes, path: str = "/validate/policy?timeout=30s") -> shell.Answer:
    caller = await server.open()
    try:
        return await caller.ask(body, path=path)
    finally:
        await caller.close()


async def check(server: processes.Process, body: bytes) -> dict:
    """Return the response to a review, asked for again where the checks of others took all of its time."""
    while (answer := await ask(server, body)).status == 503:
        assert "apply it again" in json.loads(answer.body)["error"]["reason"]
    return json.loads(answer.body)["response"]


async def test_pods_are_reviewed_while_policies_are_checked(webhook):
    waiting = [asyncio.create_task(check(webhook, admitting.review_policy(GOOD))) for _ in range(4)]
    await shell.until(lambda: readers(webhook))
    (reader,) = readers(webhook)
    os.kill(reader, signal.SIGSTOP)  # from here on no check goes on
    try:
        for _ in range(3):
            answer = await ask(webhook, admitting.review(admitting.pod()), "/mutate/pods")
            assert json.loads(answer.body)["response"]["allowed"]
        while (fifth := await ask(webhook, admitting.review_policy(GOOD), "/validate/policy?timeout=1s")).status != 429:
            assert fifth.status == 503  # it came before one of the four
        assert fifth.headers["retry-after"] == "1"
        assert "4 policies are being checked already" in json.loads(fifth.body)["error"]["reason"]
        assert readers(webhook) == [reader], "one at a time"
        assert not any(task.done() for task in waiting)
    finally:
        os.kill(reader, signal.SIGCONT)
    for response in await asyncio.gather(*waiting):
        assert response["allowed"]
        assert any("NetworkAttachmentDefinition" in warning for warning in response["warnings"]), "the cluster has none"


async def test_a_check_beyond_its_deadline_is_ended(webhook):
    late = asyncio.create_task(ask(webhook, admitting.review_policy(GOOD), "/validate/policy?timeout=2s"))
    await shell.until(lambda: readers(webhook))
    (reader,) = readers(webhook)
    os.kill(reader, signal.SIGSTOP)
    answer = await late
    assert answer.status == 503
    assert "not checked: the policy was not read within" in json.loads(answer.body)["error"]["reason"]
    await shell.until(lambda: reader not in readers(webhook))
    response = await check(webhook, admitting.review_policy("colour: red"))
    assert not response["allowed"]
    assert "colour" in response["status"]["message"]
