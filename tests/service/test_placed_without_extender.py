"""Bindings of pods about which no scheduler has asked the extender, with a real port for probes."""

import asyncio
import contextlib
import datetime as dt
import json

import admitting
import extending
import jsonpatch
import msgspec
import pytest
from admitting import fabric, pod, view
from placing import LEAF, node, policy
from placing import pod as placed_pod

from extender import app as extender_app
from extender import state as extender_states
from railwright.fabric import node_views
from railwright.serving import connections, dispatch, limits, metrics, routes, settings
from webhook import app, extender_questions, reviews, state

BY = fabric()
CAPTURED = admitting.WIRE / "admission-bindings-admin.json"
BOUND = json.loads(CAPTURED.read_text())["request"]["object"]["metadata"]
NOT_ASKED = (
    "it got no request about them: the scheduler is not configured to call it, cannot reach it, or does not trust "
    "its CA, such as a new one"
)
CREATED = dt.datetime(2026, 11, 1, 12, 0, tzinfo=dt.UTC)
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "job-1", "controller": True}


class Site:
    """An extender that has answered for a minute, and a webhook that knows the pod of the captured Binding."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.extender = extender_states.State(assume_seconds=30)
        self.extender.cluster.upsert_node(node("gpu-3", "a"))
        chosen = policy(domains=[LEAF])
        self.verbs = extending.Extender(self.extender, lambda: chosen, clock=lambda: self.seconds)
        self.seconds = 60.0
        self.events: list[reviews.EventRecord] = []
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
        remote = extender_questions.Extender(url, lambda: CREATED + dt.timedelta(seconds=after))
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
        self.verbs.kube.filter(json.dumps({"Pod": tree, "Nodes": None, "NodeNames": ["gpu-3"]}).encode())


@contextlib.asynccontextmanager
async def serve(site: Site):
    table = extender_app.build_ops_routes(site.verbs.decider)
    dispatcher = dispatch.Dispatcher(table, limits.Limits(max_body=0), None)
    async with connections.open_port(settings.Address("127.0.0.1", 0), dispatcher) as at:
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
            "parameters": {"scheduler": "default-scheduler", "problem": NOT_ASKED},
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


class SlowServer:
    """A port that gives `reply` to the first request, or nothing, and then the answer of an extender."""

    def __init__(self, reply: bytes) -> None:
        self.reply, self.calls = reply, 0
        self.ends = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.calls += 1
        if self.reply:
            writer.write(self.reply)
        else:
            await self.ends.wait()
        writer.close()

    @contextlib.asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            self.ends.set()
            server.close()


def build_reply(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


UNKNOWN = [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", build_reply(b"[]"), b""]


@pytest.mark.parametrize("reply", UNKNOWN, ids=["busy", "not an answer", "late"])
async def test_a_pod_without_an_answer_is_not_reported(reply):
    """The scheduler may have asked it all the same."""
    slow, site = SlowServer(reply), Site()
    async with slow.open() as url:
        assert "skipped" not in await site.bind(url)
    assert slow.calls == 1
    assert site.events == []


@pytest.mark.parametrize(("asked", "jobs"), [(b"true", []), (b"false", ["llm"])])
async def test_a_pod_without_an_answer_is_asked_about_again(asked, jobs):
    server, counters, events = SlowServer(UNKNOWN[0]), metrics.Metrics("webhook"), []
    tree = admitting.admitted(pod(), BY)
    tree["metadata"] |= {"uid": "u-0", "creationTimestamp": CREATED.isoformat(), "ownerReferences": [JOB]}
    async with server.open() as url:
        remote = extender_questions.Extender(url, lambda: CREATED)
        assert await remote.find_problem(view(tree)) is None
        server.reply = build_reply(b'{"asked": %s, "answering_seconds": 60}' % asked)
        for _ in range(2):  # the second time, there is nothing to ask
            await remote.ask_again(app.build_late_report(counters, events.append))
        await remote.close()
    assert [event.owner.name for event in events] == jobs
    assert (b'{code="PlacedWithoutExtender"} 1.0' in counters.format_exposition()) == bool(jobs)
    assert server.calls == 2


async def test_the_question_is_asked_again_in_the_background(monkeypatch):
    monkeypatch.setattr(extender_questions, "_PAUSE_SECONDS", 0.01)
    server, reports = SlowServer(UNKNOWN[0]), asyncio.Queue()
    tree = admitting.admitted(pod(), BY)
    tree["metadata"] |= {"creationTimestamp": CREATED.isoformat()}
    async with server.open() as url:
        remote = extender_questions.Extender(url, lambda: CREATED)
        task = asyncio.create_task(remote.keep_asking(lambda _, problem: reports.put_nowait(problem)))
        assert await remote.find_problem(view(tree)) is None
        server.reply = build_reply(b'{"asked": false, "answering_seconds": 60}')
        assert (await reports.get()).get("problem") == NOT_ASKED
        task.cancel()
        await remote.close()


async def test_an_extender_that_cannot_be_reached_is_reported():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    remote = extender_questions.Extender(url, lambda: CREATED)
    problems = [await remote.find_problem(view(admitting.admitted(pod(), BY))) for _ in range(2)]
    await remote.close()
    assert [problem and problem.get("problem") for problem in problems] == ["the extender cannot be reached"] * 2


def test_explain_of_a_pod_without_a_decision_names_the_scheduler_that_asked():
    site = Site()
    assert "was asked about no pod" in site.verbs.decider.explain_absence("train/x")
    site.ask("another")
    site.seconds = 600.0
    absence = site.verbs.decider.explain_absence("train/x")
    assert "no decision on train/x is stored" in absence
    assert "has answered for 10 min and was asked about pods of default-scheduler" in absence


def test_one_feasible_node_explains_why_no_score_was_requested():
    site = Site()
    site.ask("u")
    explanation = site.verbs.decider.explanations.explain("train", "w-0")
    assert explanation is not None
    assert [why.code for why in explanation.why] == ["OneNodeLeft"]
