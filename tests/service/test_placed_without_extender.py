"""Bindings of pods about which no scheduler has asked the extender, with a real port for probes."""

import asyncio
import contextlib
import datetime as dt
import json

import admitting
import jsonpatch
import msgspec
import pytest
from admitting import fabric, pod, view
from placing import LEAF, node, policy
from placing import pod as placed_pod

from extender import app as extender_app
from extender import schedulers
from extender import state as extender_states
from railwright.fabric import node_views
from railwright.serving import addresses, metrics, ops, routes
from webhook import answer, app, extender_questions, state

BY = fabric()
CAPTURED = admitting.WIRE / "admission-bindings-admin.json"
BOUND = json.loads(CAPTURED.read_text())["request"]["object"]["metadata"]
CREATED = dt.datetime(2026, 11, 1, 12, 0, tzinfo=dt.UTC)
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "job-1", "controller": True}


class Site:
    """An extender that has answered for a minute, and a webhook that knows the pod of the captured Binding."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.extender = extender_states.State(assume_seconds=30)
        self.extender.cluster.upsert_node(node("gpu-3", "a"))
        chosen = policy(domains=[LEAF])
        self.verbs = schedulers.Schedulers(
            self.extender, lambda: chosen, clock=lambda: self.seconds, observe=lambda *_: None
        )
        self.seconds = 60.0
        self.events: list[answer.EventRecord] = []
        self.counters = metrics.Metrics("webhook")

    def build_caches(self, **metadata: object) -> state.State:
        tree = admitting.admitted(pod(), BY)
        tree["metadata"] |= {"name": BOUND["name"], "namespace": "prod", "uid": BOUND["uid"], "ownerReferences": [JOB]}
        tree["metadata"] |= {"creationTimestamp": CREATED.isoformat(), **metadata}
        known = state.State()
        known.nodes.replace([msgspec.convert({"metadata": {"name": "gpu-3"}}, node_views.Node)])
        known.pods.replace([view(tree)])
        return known

    async def bind(self, url: str, *, after: float = 10.0, **metadata: object) -> dict:
        """Return the placement written to the pod, which is bound `after` seconds after its creation."""
        remote = extender_questions.RemoteExtender(url, lambda: CREATED + dt.timedelta(seconds=after))
        table = app.build_routes(
            self.build_caches(**metadata), lambda: BY, self.counters, self.events.append, extender=remote
        )
        (route,) = [row for row in table if row.path == "/mutate/bindings"]
        try:
            reply = await route.handle(routes.Call(CAPTURED.read_bytes(), {}, {}, {}, ""))
        finally:
            await remote.close()
        operations = admitting.operations(json.loads(reply.body)["response"])
        bound = jsonpatch.apply_patch(json.loads(CAPTURED.read_bytes())["request"]["object"], operations)
        return json.loads(bound["metadata"]["annotations"]["railwright.io/placement"])

    def ask(self, uid: str) -> None:
        """Ask the extender about a pod, as kube-scheduler does."""
        tree = json.loads(msgspec.json.encode(placed_pod("w-0", group="g")))
        tree["metadata"]["uid"] = uid
        self.verbs.filter(json.dumps({"Pod": tree, "Nodes": None, "NodeNames": ["gpu-3"]}).encode())


@contextlib.asynccontextmanager
async def serve(site: Site):
    async with ops.open_port(addresses.Address("127.0.0.1", 0), extender_app.build_ops_routes(site.verbs)) as at:
        yield f"http://{at}"


async def test_a_pod_placed_with_the_extender_has_no_reason():
    site = Site()
    site.ask(BOUND["uid"])
    async with serve(site) as url:
        assert "skipped" not in await site.bind(url)
    assert site.events == []


async def test_a_pod_placed_without_the_extender_is_reported():
    site = Site()
    site.ask("another")
    async with serve(site) as url:
        placement = await site.bind(url)
    assert placement["skipped"] == {
        "extender": {
            "code": "PlacedWithoutExtender",
            "parameters": {"scheduler": "default-scheduler", "problem": "the scheduler did not ask it about them"},
        }
    }
    (event,) = site.events
    assert (event.owner.kind, event.owner.name) == ("Job", "llm")
    assert event.messages[0].startswith(
        "PlacedWithoutExtender: scheduler default-scheduler placed pods without railwright's extender: "
    )
    assert b'railwright_webhook_warnings_total{code="PlacedWithoutExtender"} 1.0' in site.counters.format_exposition()


async def test_a_pod_older_than_the_extender_has_no_reason():
    """A scheduler may have asked the extender before it was restarted."""
    site = Site()
    async with serve(site) as url:
        assert "skipped" not in await site.bind(url, after=58.0)
        assert "skipped" in await site.bind(url, after=50.0)


async def test_pods_without_rails_are_not_asked_about():
    site = Site()
    async with serve(site) as url:
        assert "skipped" not in await site.bind(url, annotations={})


async def test_an_unreachable_extender_is_asked_every_two_seconds():
    calls = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    remote = extender_questions.RemoteExtender(url, lambda: CREATED)
    tree = admitting.admitted(pod(), BY)
    problems = [await remote.find_problem(view(tree))]
    first_calls = calls  # the client repeats a request whose connection is closed
    problems += [await remote.find_problem(view(tree)) for _ in range(3)]
    await remote.close()
    server.close()
    assert {problem.get("problem") for problem in problems} == {"the connection to the extender broke"}
    assert calls == first_calls


@pytest.mark.parametrize(
    ("respond", "problem"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "the extender answers with status 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "the answer of the extender is not understood"),
        (b"", "the extender did not answer within 0.2 s"),
    ],
)
async def test_a_malformed_answer_of_the_extender_is_reported(respond, problem):
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(respond)
        await writer.drain()
        if not respond:
            await asyncio.sleep(1)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    remote = extender_questions.RemoteExtender(url, lambda: CREATED)
    why = await remote.find_problem(view(admitting.admitted(pod(), BY)))
    await remote.close()
    server.close()
    assert why is not None
    assert why.get("problem") == problem


async def test_an_extender_without_an_address_is_reported():
    remote = extender_questions.RemoteExtender("http://127.0.0.1:1", lambda: CREATED)
    why = await remote.find_problem(view(admitting.admitted(pod(), BY)))
    await remote.close()
    assert why is not None
    assert why.get("problem") == "the extender cannot be reached"


def test_explain_of_a_pod_without_a_decision_names_the_scheduler_that_asked():
    site = Site()
    assert "was asked about no pod" in site.verbs.explain_absence("train/x")
    site.ask("another")
    site.seconds = 600.0
    absence = site.verbs.explain_absence("train/x")
    assert "no decision on train/x is stored" in absence
    assert "has answered for 10 min and was asked about pods of default-scheduler" in absence


def test_one_node_left_explains_why_no_score_was_asked_for():
    site = Site()
    site.ask("u")
    explanation = site.verbs.explanations.explain("train", "w-0")
    assert explanation is not None
    assert [why.code for why in explanation.why] == ["OneNodeLeft"]
