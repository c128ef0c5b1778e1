"""Events on the owners of reviewed pods, which delay no request; tests/unit/cluster/test_events.py has their limits."""

import asyncio
import contextlib
import datetime as dt
import json

import admitting
import api_stub
import pytest_asyncio
import shell
from admitting import fabric, pod, review
from aiohttp import web

from railwright.cluster import events
from railwright.serving import metrics
from webhook import app
from webhook import state as states


class Board:
    """The written Events."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[tuple[str, dict]] = asyncio.Queue()  # path and Event
        self.open = asyncio.Event()  # while it is clear, requests wait
        self.open.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        await self.open.wait()
        await self.written.put((request.path, body))
        return web.json_response({}, status=201)

    async def next(self) -> tuple[str, dict]:
        return await asyncio.wait_for(self.written.get(), shell.PATIENCE)


@pytest_asyncio.fixture(loop_scope="session")
async def board():
    made = Board()
    async with api_stub.serve(made.answer) as made.port:
        yield made
        made.open.set()


REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-5f", "uid": "u-1", "controller": True}
SENTENCE = "label railwright.io/fabric 'g' is not a fabric of the policy; allowed are f, default, none"


def build_owned_pod(name: str = "p", **changes) -> dict:
    tree = pod(**changes)
    tree["metadata"] |= {"name": name, "ownerReferences": [{**REPLICA_SET, "controller": False}, REPLICA_SET]}
    return tree


@contextlib.asynccontextmanager
async def serving(board, tmp_path, by):
    """Serve the webhook's routes as its main does; yield a function that sends a review."""
    counters = metrics.WebhookMetrics()
    async with api_stub.connected(tmp_path, board.port) as client:
        posting = events.Events(
            client,
            "railwright-webhook",
            now=lambda: dt.datetime.now(dt.UTC),
            on_result=lambda outcome: counters.events.labels(outcome).inc(),
        )
        api = app.ApiServer(client, posting, None)
        service = app.Webhook(states.State(), lambda: by, counters, api).build_application()
        async with shell.running(service, tasks=[posting.run], counters=counters) as server:
            caller = await server.open()

            async def send(tree: dict, **request) -> dict:
                answer = await caller.ask(review(tree, namespace="prod", **request), path="/mutate/pods")
                assert answer.status == 200, answer.body
                return json.loads(answer.body)["response"]

            send.server = server
            yield send
            await caller.close()


async def test_the_rejection_of_a_pod_is_an_event_on_its_owner(board, tmp_path):
    async with serving(board, tmp_path, fabric()) as send:
        refused = await send(build_owned_pod("train-5f-abc", label="g"))
        assert refused["status"]["message"] == f"Pod prod/train-5f-abc: {SENTENCE}"
        path, event = await board.next()
        assert path == "/api/v1/namespaces/prod/events"
        assert event["involvedObject"] == {
            "kind": "ReplicaSet",
            "apiVersion": "apps/v1",
            "namespace": "prod",
            "name": "train-5f",
            "uid": "u-1",
        }
        assert (event["type"], event["reason"], event["message"]) == (
            "Warning",
            "FabricRefused",
            f"unknown-fabric: {SENTENCE}",
        )
        assert event["source"] == {"component": "railwright-webhook"}


async def test_warnings_about_a_pod_are_events_on_its_owner(board, tmp_path):
    async with serving(board, tmp_path, fabric()) as send:
        assert "warnings" not in await send(build_owned_pod())
        given = await send(build_owned_pod(hostNetwork=True, annotations={"railwright.io/nccl.conf": "forged"}))
        assert len(given["warnings"]) == 2
        written = [(await board.next())[1] for _ in range(2)]
        assert [event["message"] for event in written] == given["warnings"]
        assert {event["reason"] for event in written} == {"FabricWarning"}
        assert board.written.empty()


async def test_reviews_are_answered_while_events_cannot_be_written(board, tmp_path):
    async with serving(board, tmp_path, fabric()) as send:
        board.open.clear()
        async with asyncio.timeout(4 * shell.PATIENCE):  # an event that they wait for never comes
            for number in range(1200):
                await send(build_owned_pod(label=f"wrong-{number}"))
        exposition = (await send.server.ops("/metrics")).body.decode()
        assert 'railwright_events_total{outcome="held_back"}' in exposition
        assert 'railwright_webhook_refusals_total{fabric="unknown",reason="unknown-fabric"} 1200.0' in exposition
        board.open.set()
        await board.next()


async def test_admissions_are_counted_by_fabric_role_and_outcome(board, tmp_path):
    async with serving(board, tmp_path, fabric()) as send:
        await send(pod(label=None))
        await send(pod())
        await send(pod(admitting.cpu(), labels=admitting.LAUNCHER))
        await send(pod(annotations={"railwright.io/rails": "9"}))
        await send(pod(label="g"))
        exposition = (await send.server.ops("/metrics")).body.decode()
        counted = [line for line in exposition.splitlines() if line.startswith("railwright_webhook_injections_total")]
        name = "railwright_webhook_injections_total"
        assert sorted(counted) == [
            f'{name}{{fabric="f",outcome="patched",role="launcher"}} 1.0',
            f'{name}{{fabric="f",outcome="patched",role="worker"}} 1.0',
            f'{name}{{fabric="f",outcome="refused",role="unknown"}} 1.0',
            f'{name}{{fabric="unknown",outcome="refused",role="unknown"}} 1.0',
        ]
        assert 'railwright_webhook_refusals_total{fabric="f",reason="annotation"} 1.0' in exposition
