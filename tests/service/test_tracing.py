"""Traces of real servers at a collector of the test: parents, attributes and cost."""

import asyncio
import contextlib
import json
import os
import pathlib
import secrets
import subprocess
import sys
import time

import admitting
import aiohttp
import collector as collectors
import pytest
import pytest_asyncio
import shell
from admitting import WIRE, fabric, pod, review

from railwright.cli.demo import scenario
from railwright.serving import metrics, routes, server, settings, tracing
from webhook import app
from webhook import state as states

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECRET = "hunter2-must-not-leave"


def caller(*, sampled: bool = True) -> tuple[str, str, dict[str, str]]:
    """Return trace, span and headers of an API server's request (W3C Trace Context)."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, {"traceparent": f"00-{trace}-{span}-{'01' if sampled else '00'}"}


# --- real processes -----------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def collector():
    async with collectors.opened() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(collector, tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds; five seconds as delivered
        async with scenario.start(tmp_path_factory.mktemp("stage"), ["--otlp-endpoint", collector.endpoint]) as opened:
            yield opened


async def ask(stage, path: str, body: bytes, headers: dict) -> dict:
    server = stage.webhook if path.startswith("/mutate") else stage.extender
    secure = server is stage.webhook
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{'https' if secure else 'http'}://{server.address}{path}",
            data=body,
            headers={"Content-Type": "application/json", **headers},
            ssl=stage.trust if secure else True,
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_an_admission_continues_the_api_servers_trace(stage, collector):
    trace, span, headers = caller()
    container = admitting.gpus(8, env=admitting.variables(TOKEN=SECRET), args=[SECRET])
    tree = pod(container, label="default", annotations={"x/y": SECRET})
    answer = await ask(stage, "/mutate/pods", review(tree, namespace="prod", userInfo={"username": SECRET}), headers)
    assert answer["response"]["allowed"]
    spans = await collector.trace(trace, 4)
    request = spans["POST /mutate/pods"]
    assert (request.service, request.parent, request.kind) == ("railwright-webhook", span, collectors.SERVER)
    for name in ("decode", "plan", "patch"):
        assert spans[name].parent == request.span
        assert request.began <= spans[name].began <= spans[name].ended <= request.ended
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/mutate/pods",
        "http.response.status_code": 200,
        "k8s.namespace.name": "prod",
        "k8s.pod.name": json.loads(review(tree))["request"]["name"],
        "railwright.dry_run": False,
        "railwright.fabric": answer["response"]["auditAnnotations"]["fabric"],
        "railwright.decision": "patched",
        "railwright.outcome": "patched",
    }
    assert request.status == collectors.UNSET
    assert SECRET.encode() not in collector.raw, "no value of a pod is in any span"


async def test_a_refusal_is_reported_by_its_reason_word(stage, collector):
    trace, _, headers = caller()
    await ask(stage, "/mutate/pods", review(pod(label="nowhere"), namespace="prod"), headers)
    request = (await collector.trace(trace, 3))["POST /mutate/pods"]
    assert request.attributes["railwright.decision"] == "refused"
    assert request.attributes["railwright.reason"] == "unknown-fabric"


async def test_a_peer_of_a_remembered_pod_is_not_planned_again(stage, collector):
    trees = [pod(label="default", annotations={"peers": "here"}) for _ in range(2)]
    (first, _, one), (second, _, other) = caller(), caller()
    await ask(stage, "/mutate/pods", review(trees[0], namespace="prod"), one)
    await ask(stage, "/mutate/pods", review(trees[1], namespace="prod"), other)
    assert (await collector.trace(first, 4)).keys() == {"POST /mutate/pods", "decode", "plan", "patch"}
    assert (await collector.trace(second, 2)).keys() == {"POST /mutate/pods", "decode"}


async def test_a_span_that_its_caller_did_not_sample_is_not_exported(stage, collector):
    (unsampled, _, off), (sampled, _, on) = caller(sampled=False), caller()
    await ask(stage, "/mutate/pods", review(pod(label="nowhere"), namespace="prod"), off)
    await ask(stage, "/mutate/pods", review(pod(label="nowhere"), namespace="prod"), on)
    await collector.trace(sampled, 3)
    assert not [span for span in collector.spans if span.trace == unsampled]


@pytest.mark.parametrize(
    ("recorded", "path", "steps"),
    [
        ("kube-scheduler-filter.json", "/scheduler/filter", {"decode", "filter", "prioritize"}),
        ("kube-scheduler-prioritize.json", "/scheduler/prioritize", {"decode", "prioritize"}),
        ("volcano-prioritize.json", "/volcano/prioritize", {"decode", "prioritize"}),
        ("volcano-allocate.json", "/volcano/allocate", {"decode", "events"}),
    ],
)
async def test_a_schedulers_call_continues_its_trace_and_shows_its_steps(stage, collector, recorded, path, steps):
    body = json.loads((WIRE / recorded).read_bytes())
    task = body["Pod"] if "Pod" in body else body["task"]["Pod"]
    task["metadata"].setdefault("labels", {})["railwright.io/fabric"] = "default"
    trace, span, headers = caller()
    await ask(stage, path, json.dumps(body).encode(), headers)
    spans = await collector.trace(trace, 1 + len(steps))
    request = spans.pop(f"POST {path}")
    assert (request.service, request.parent, request.kind) == ("railwright-extender", span, collectors.SERVER)
    assert spans.keys() == steps
    assert {span.parent for span in spans.values()} == {request.span}
    assert request.attributes["k8s.pod.name"] == task["metadata"]["name"]
    if "events" not in steps:
        assert request.attributes["railwright.fabric"]
        assert request.attributes["railwright.decision"]


# --- parts, in the test's own loop -----------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve_traced(endpoint: str, *arguments: str):
    places = ["--listen", "127.0.0.1:0", "--plain-http", "--otlp-endpoint", endpoint]
    made = server.select_tracing(settings.parse("webhook", [*places, *arguments], {}))
    try:
        yield made
    finally:
        await made.close()


async def test_waiting_and_failing_handlers_end_their_spans(collector):
    async def waiting(call: routes.Call) -> routes.Reply:
        await asyncio.sleep(0)
        with made.span("inner"):
            return routes.Reply(call.body, outcome="done")

    def broken(call: routes.Call) -> routes.Reply:
        raise RuntimeError(SECRET)

    async with serve_traced(collector.endpoint) as made:
        table = made.wrap_routes([routes.Route("/waiting", waiting), routes.Route("/broken", broken)])
        async with shell.running(table) as server:
            asking = await server.open()
            for path, status in (("/waiting", 200), ("/broken", 500)):
                assert (await asking.ask(b"{}", path=path)).status == status
            await asking.close()
    names = {"POST /waiting", "inner", "POST /broken"}
    spans = {span.name: span for span in collector.spans if span.name in names}
    assert spans.keys() == names, "the end of the server sent what was left"
    assert spans["inner"].parent == spans["POST /waiting"].span
    assert spans["POST /waiting"].attributes["railwright.outcome"] == "done"
    assert spans["POST /waiting"].parent == spans["POST /broken"].parent == "", "nobody's trace to continue"
    assert spans["POST /broken"].status == collectors.ERROR
    assert spans["POST /broken"].attributes["error.type"] == "RuntimeError"
    assert SECRET.encode() not in collector.raw


async def test_events_on_a_pods_owner_are_a_step_of_their_own(collector):
    reports: list[object] = []
    trace, _, headers = caller()
    async with serve_traced(collector.endpoint) as made:
        table = app.build_routes(states.State(), fabric, metrics.Metrics("webhook"), reports.append, made)
        tree = pod(label="g")
        tree["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        ]
        async with shell.running(table) as server:
            asking = await server.open()
            body = review(tree, namespace="prod")
            await asking.send(
                b"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"traceparent: %b\r\nContent-Length: %d\r\n\r\n%b" % (headers["traceparent"].encode(), len(body), body)
            )
            assert (await asking.answer()).status == 200
            await asking.close()
    spans = await collector.trace(trace, 4)
    assert len(reports) == 1
    assert spans["events"].parent == spans["POST /mutate/pods"].span


async def measure_with(endpoint: str) -> tuple[float, float]:
    """Return the seconds of the slowest of 1,000 answers, and of the server's end."""
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(serve_traced(endpoint))
        server = await stack.enter_async_context(shell.running(made.wrap_routes([routes.Route("/echo", shell.echo)])))
        asking = await server.open()
        slowest = 0.0
        for _ in range(1000):
            began = time.perf_counter()
            assert (await asking.ask(b"{}", path="/echo")).status == 200
            slowest = max(slowest, time.perf_counter() - began)
        await asking.close()
        assert len(made._provider._active_span_processor._span_processors[0]._batch_processor._queue) <= 128
        ending = time.perf_counter()
    return slowest, time.perf_counter() - ending


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "is not there"])
async def test_a_stalled_collector_delays_no_answer_and_uses_no_memory(collector, monkeypatch, hangs):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "128")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "64")
    collector.gate.clear()
    closed = "http://127.0.0.1:9"  # the discard port: nobody listens
    measured = []
    try:
        for _ in range(3):  # a machine that stands still only adds to the times, so one below the limits is enough
            measured.append(await measure_with(collector.endpoint if hangs else closed))
            slowest, ending = measured[-1]
            if slowest < 2.0 and ending < 8.0:  # a send takes 3 s to give up; the end of a server does not wait for it
                break
        else:
            pytest.fail(f"slowest answer and end of the server, in seconds: {measured}")
    finally:
        collector.gate.set()


# --- off ------------------------------------------------------------------------------------------------


def test_disabled_tracing_wraps_no_function():
    options = settings.parse("webhook", ["--listen", "127.0.0.1:0", "--plain-http"], {})
    off = server.select_tracing(options)
    table = [routes.Route("/echo", shell.echo)]
    assert off is tracing.OFF
    assert off.span("x") is off.span("y")
    off.note(lambda: pytest.fail("attributes are computed only for a span that is recorded"))
    assert off.wrap_routes(table) is table


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def test_opentelemetry_is_loaded_only_with_tracing():
    code = "import sys, webhook.__main__, extender.__main__; print([n for n in sys.modules if 'opentelemetry' in n])"
    assert python(code).stdout == "[]\n"


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_a_missing_tracing_extra_is_named(server, tmp_path):
    (tmp_path / "policy.yaml").write_text((admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text())
    (tmp_path / "snapshot.json").write_text('{"kind": "List", "items": []}')
    arguments = [
        *("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--plain-http"),
        *("--policy", str(tmp_path / "policy.yaml"), "--snapshot", str(tmp_path / "snapshot.json")),
    ]
    code = f"""
import sys
sys.modules["opentelemetry"] = None  # what an interpreter says of a package that is not installed
from {server} import __main__ as main
sys.exit(main.main({arguments!r}))
"""
    ended = python(code, RAILWRIGHT_OTLP_ENDPOINT="http://127.0.0.1:4318")
    assert ended.returncode == 2
    assert "--otlp-endpoint requires the extra `tracing`" in ended.stderr
    assert "pip install 'railwright[tracing]'" in ended.stderr
