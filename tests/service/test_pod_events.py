"""Events on a pod's owner: reviews over real sockets, Events at a stub API server; neither delays the other."""

import asyncio
import contextlib
import datetime as dt
import json

import admitting
import api_stub
import processes
import pytest_asyncio
import shell
from admitting import fabric, pod, review
from aiohttp import web

from railwright.cluster import client as clients
from railwright.cluster import events
from railwright.serving import metrics
from webhook import app, object_events
from webhook import state as states

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-5f", "uid": "u-1", "controller": True}
SENTENCE = "label railwright.io/fabric 'g' is not a fabric of the policy; allowed are f, default, none"


def build_owned_pod(name: str = "p", **changes) -> dict:
    tree = pod(**changes)
    tree["metadata"] |= {"name": name, "ownerReferences": [{**REPLICA_SET, "controller": False}, REPLICA_SET]}
    return tree


class Api:
    """A stub API server: Events it was given, and a gate it can keep shut."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[dict] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        await self.open.wait()
        await self.events.put({"path": request.path, **body})
        return web.json_response({}, status=201)

    async def next(self) -> dict:
        return await asyncio.wait_for(self.events.get(), 10)


@pytest_asyncio.fixture(loop_scope="session")
async def api():
    made = Api()
    async with api_stub.serve(made.answer) as made.port:
        yield made
        made.open.set()


@contextlib.asynccontextmanager
async def serving(api, tmp_path, by):
    """Yield the webhook's routes over a socket, wired as its main wires them; yields a function that sends a review."""
    client = await clients.connect(api_stub.kubeconfig(tmp_path, api.port))
    counters = metrics.Metrics("webhook")
    posting = events.Events(
        client,
        "railwright-webhook",
        now=lambda: dt.datetime.now(dt.UTC),
        on_result=lambda outcome, count: counters.webhook_events.labels(outcome).inc(count),
    )
    table = app.build_routes(states.State(), lambda: by, counters, object_events.build_sink(posting))
    async with shell.running(table, tasks=[posting.run], counters=counters) as server:
        caller = await server.open()

        async def send(tree: dict, **request) -> dict:
            answer = await caller.ask(review(tree, namespace="prod", **request), path="/mutate/pods")
            assert answer.status == 200, answer.body
            return json.loads(answer.body)["response"]

        send.server = server
        yield send
        await caller.close()
    await client.close()


async def test_a_refused_pod_is_an_event_on_its_owner(api, tmp_path):
    async with serving(api, tmp_path, fabric()) as send:
        refused = await send(build_owned_pod("train-5f-abc", label="g"))
        assert refused["status"]["message"] == f"Pod prod/train-5f-abc: {SENTENCE}"
        event = await api.next()
        assert event["path"] == "/api/v1/namespaces/prod/events"
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


async def test_each_warning_is_an_event(api, tmp_path):
    async with serving(api, tmp_path, fabric()) as send:
        assert "warnings" not in await send(build_owned_pod())
        given = await send(build_owned_pod(hostNetwork=True, annotations={"railwright.io/nccl.conf": "forged"}))
        assert len(given["warnings"]) == 2
        events = [await api.next(), await api.next()]
        assert [event["message"] for event in events] == given["warnings"]
        assert {event["reason"] for event in events} == {"FabricWarning"}
        assert api.events.empty()


async def test_dry_runs_and_pods_without_owners_leave_no_event(api, tmp_path):
    async with serving(api, tmp_path, fabric()) as send:
        assert not (await send(build_owned_pod(label="g"), dryRun=True))["allowed"]
        assert (await send(build_owned_pod(hostNetwork=True), dryRun=True))["warnings"]
        assert not (await send(pod(label="g")))["allowed"]
        assert (await send(pod(hostNetwork=True)))["warnings"]
        await send(build_owned_pod(label="last"))
        assert "'last'" in (await api.next())["message"]


async def test_reviews_do_not_wait_for_events(api, tmp_path):
    async with serving(api, tmp_path, fabric()) as send:
        api.open.clear()
        async with asyncio.timeout(30):
            for number in range(1200):
                await send(build_owned_pod(label=f"wrong-{number}"))
        exposition = (await send.server.ops("/metrics")).body.decode()
        assert 'railwright_webhook_events_total{outcome="dropped"}' in exposition
        assert 'railwright_webhook_refusals_total{fabric="unknown",reason="unknown-fabric"} 1200.0' in exposition
        api.open.set()
        await api.next()


async def test_metrics_have_fabric_role_and_outcome(api, tmp_path):
    async with serving(api, tmp_path, fabric()) as send:
        launcher = pod(admitting.cpu())
        launcher["metadata"]["labels"] |= {"training.kubeflow.org/job-role": "launcher"}
        await send(pod(label=None))
        await send(pod())
        await send(launcher)
        await send(pod(annotations={"railwright.io/rails": "9"}))
        await send(pod(label="g"))
        exposition = (await send.server.ops("/metrics")).body.decode()
        counted = [line for line in exposition.splitlines() if line.startswith("railwright_webhook_injections_total")]
        name = "railwright_webhook_injections_total"
        assert sorted(counted) == [
            f'{name}{{fabric="f",outcome="patched",role="launcher"}} 1.0',
            f'{name}{{fabric="f",outcome="patched",role="worker"}} 1.0',
            f'{name}{{fabric="f",outcome="refused",role="worker"}} 1.0',
            f'{name}{{fabric="unknown",outcome="refused",role="worker"}} 1.0',
        ]
        assert 'railwright_webhook_refusals_total{fabric="f",reason="rails"} 1.0' in exposition
        assert "railwright_webhook_skipped_total 1.0" in exposition


async def test_uninjected_pods_are_counted_except_in_excluded_namespaces(tmp_path):
    options, pods = processes.without_cluster(tmp_path), []
    for namespace, annotations in (("prod", {}), ("infra", {}), ("static", {"kubernetes.io/config.mirror": "x"})):
        tree = pod(annotations=annotations)
        tree["metadata"] |= {"name": "rank-0", "namespace": namespace, "uid": namespace}
        pods.append({"apiVersion": "v1", "kind": "Pod", **tree})
    (tmp_path / "snapshot.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    server = await processes.begin("webhook", "--plain-http", "--excluded-namespaces=infra", *options)
    try:
        await server.ready()
        assert await server.metric("railwright_uninjected_pods") == 1
    finally:
        await server.end()
