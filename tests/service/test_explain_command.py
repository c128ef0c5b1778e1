"""`railwright explain` and a running webhook give the same answer, byte by byte, for every shipped manifest."""

import asyncio
import base64
import json

import admitting
import aiohttp
import msgspec
import processes
import pytest
import pytest_asyncio

from railwright.cli import __main__ as command_line
from railwright.cli import object_files
from railwright.cli.demo import scenario
from railwright.cli.explanation import previews, templates

POLICY = admitting.EXAMPLES / "360-roce" / "policy.yaml"
MANIFESTS = [
    *(path for policy in admitting.EXAMPLES.glob("*/policy.yaml") for path in sorted(policy.parent.glob("*.yaml"))),
    admitting.ROOT / "tests" / "data" / "manifests" / "workloads.yaml",
]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def stage(tmp_path_factory):
    """Yield the folder of a snapshot, and a webhook on it with the policy of the seeds."""
    folder = tmp_path_factory.mktemp("stage")
    snapshot = folder / "snapshot.json"
    snapshot.write_text(json.dumps({"kind": "List", "items": scenario.build_cluster().objects}))
    server = await processes.begin("webhook", "--plain-http", f"--policy={POLICY}", f"--snapshot={snapshot}")
    await server.ready()
    yield folder, f"http://127.0.0.1:{server.port}/mutate/pods?timeout=5s"
    await server.end()


@pytest.fixture
def explained(stage, capsys):
    async def explained(path, *options: str) -> list[dict]:
        given = ["--policy", str(POLICY), "--snapshot", str(stage[0] / "snapshot.json"), "-o", "json"]
        code = await asyncio.to_thread(command_line.main, ["explain", str(path), *given, *options])
        document = json.loads(capsys.readouterr().out)
        assert code == (1 if any(explanation["outcome"] == "refused" for explanation in document) else 0)
        return document

    return explained


async def send_review(stage, body: bytes) -> dict:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            stage[1],
            data=body,
            headers={"Content-Type": "application/json"},
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return (await answer.json())["response"]


def assert_same(given: dict, response: dict, about_object: int = 0) -> bool:
    """Assert that the explanation has the server's answer, with an equal patch.

    The first `about_object` warnings are about the object, which the review of its pod does not have.
    """
    patch = base64.b64decode(response.get("patch", "")) or b"[]"
    assert msgspec.json.encode(given["operations"]) == patch
    assert (given["outcome"] == "refused") == (not response["allowed"])
    assert given["message"] == response.get("status", {}).get("message", "")
    lines = [
        f"{warning['code']}: {'; '.join(filter(None, [warning['message'], warning.get('fix')]))}"
        for warning in given["warnings"][about_object:]
    ]
    assert lines[:7] == response.get("warnings", [])[:7]
    return bool(given["operations"]) or not response["allowed"]


async def test_explain_shows_the_running_servers_patch_for_every_manifest(stage, explained):
    concerned = 0
    for path in MANIFESTS:
        trees = object_files.read_manifest(path.read_text(), str(path))
        made = [template for tree in trees for template in templates.expand(tree, "default")]
        if not made:
            continue  # a policy, or what a cluster needs beside the job
        for one, template in zip(await explained(path), made, strict=True):
            response = await send_review(stage, previews.build_review(template.pod, previews.POD, template.namespace))
            concerned += assert_same(one, response, len(template.warnings))
    assert concerned > 20, "most of them opt in"
