"""Too large and invalid bodies on every path of both servers."""

import copy
import io
import json

import admitting
import extending
import placing
import pytest
from aiohttp import test_utils

from extender import state as extender_states
from railwright.serving import application, metrics
from webhook import app, state

MAX_BODY = 4096
JSON = {"Content-Type": "application/json"}
WEBHOOK = ("/mutate/pods", "/mutate/workloads", "/validate/policy")
EXTENDER = (
    "/scheduler/filter",
    "/scheduler/prioritize",
    "/volcano/prioritize",
    "/volcano/predicate",
    "/volcano/allocate",
    "/volcano/deallocate",
    "/volcano/east/prioritize",
    "/volcano/east/allocate",
)
ENDS = "/volcano/session-close"  # accepts any JSON object, because it reads nothing from it
BODIES = {
    "empty": b"",
    "not JSON": b"{",
    "null": b"null",
    "a list": b"[]",
    "a number": b"12345678901234567890123456789012345678901234567890",
    "too deep": b'{"a":' * 20_000,
    "not UTF-8": b'{"kind": "\xff\xfe"}',
    "a lone surrogate": b'{"request": "\\ud800"}',
    "NaN": b'{"task": NaN}',
    "of another shape": b'{"task": 1, "Pod": 1, "request": 1, "kind": 1}',
}


def build_malformed_reviews(good: dict) -> dict[str, bytes]:
    """Return reviews with one error each, made from a valid one."""

    def change(**changes: object) -> bytes:
        tree = copy.deepcopy(good)
        for path, value in changes.items():
            at, *steps = tree, *path.split("__")
            for step in steps[:-1]:
                at = at[step]
            at[steps[-1]] = value
        return json.dumps(tree).encode()

    text = json.dumps(good).encode()
    return {
        "no request": change(request=None),
        "another kind": change(kind="Pod"),
        "v1beta1": change(apiVersion="admission.k8s.io/v1beta1"),
        "5,000 digits": change(request__object__spec__securityContext={"runAsUser": 0}).replace(
            b'"runAsUser": 0', b'"runAsUser": ' + b"9" * 5000
        ),
        "NaN inside": text[:-1] + b', "n": NaN}',
        "a bomb inside": change(request__object=None).replace(b'"object": null', b'"object": ' + b"[" * 20_000),
        "a surrogate inside": change(request__uid="SURROGATE").replace(b"SURROGATE", b"\\ud800"),
        "cut off": text[:-2],
    }


def build_webhook():
    return app.Webhook(state.State(), admitting.fabric, metrics.WebhookMetrics()).build_application()


def build_extender():
    by = placing.build_policy()
    verbs = extending.Extender(extender_states.State(), lambda: by, clock=lambda: 0.0)
    return verbs.build_application()


async def post(client: test_utils.TestClient, path: str, body: bytes) -> tuple[int, dict]:
    answer = await client.post(path, data=io.BytesIO(body), headers=JSON)
    return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("build", "paths"),
    [(build_webhook, WEBHOOK), (build_extender, [*EXTENDER, ENDS])],
)
async def test_a_body_over_the_limit_gets_413_on_every_path(build, paths):
    service = build()
    service[application.RULES].max_body = MAX_BODY
    async with test_utils.TestClient(test_utils.TestServer(service)) as client:
        for path in paths:
            status, body = await post(client, path, b" " * (MAX_BODY + 1))
            assert (status, "4096 bytes" in body["error"]["reason"]) == (413, True), path
            assert (await post(client, path, b" " * MAX_BODY))[0] == 400, path


@pytest.mark.parametrize(("build", "most"), [(build_webhook, 7 << 20), (build_extender, 256 << 20)])
def test_the_body_limit_of_a_server_is_the_documented_size(build, most):
    assert build()[application.RULES].max_body == most


async def test_a_body_over_the_limit_of_its_path_gets_413_with_advice():
    async with test_utils.TestClient(test_utils.TestServer(build_extender())) as client:
        for path, size, advice in (
            ("/scheduler/filter", 8 << 20, "set nodeCacheCapable: true"),
            ("/volcano/east/allocate", 16 << 20, "send a smaller one"),
        ):
            status, body = await post(client, path, b" " * (size + 1))
            assert (status, advice in body["error"]["reason"]) == (413, True), body


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_malformed_body_gets_400_with_a_reason(body):
    await assert_malformed(build_extender, EXTENDER, body)


REVIEW = admitting.review(admitting.pod())
REVIEWS = BODIES | build_malformed_reviews(json.loads(REVIEW))


@pytest.mark.parametrize("body", REVIEWS.values(), ids=REVIEWS)
async def test_a_malformed_review_gets_400_with_a_reason(body):
    await assert_malformed(build_webhook, WEBHOOK, body)


async def assert_malformed(build, paths, body: bytes) -> None:
    async with test_utils.TestClient(test_utils.TestServer(build())) as client:
        for path in paths:
            status, answer = await post(client, path, body)
            assert (status, bool(answer["error"]["reason"])) == (400, True), path


async def test_volcano_verbs_that_the_extender_does_not_offer_get_404():
    async with test_utils.TestClient(test_utils.TestServer(build_extender())) as client:
        for verb in ("jobready", "jobReady", "ready", "jobenqueueable", "reclaimable", "preemptable"):
            assert (await post(client, f"/volcano/{verb}", b'{"job": {}}'))[0] == 404, verb


@pytest.mark.parametrize(
    ("body", "status"), [*((BODIES[name], 400) for name in ("empty", "not JSON", "a list")), (b"{}", 200)]
)
async def test_session_close_accepts_any_object_as_body(body, status):
    async with test_utils.TestClient(test_utils.TestServer(build_extender())) as client:
        assert (await post(client, ENDS, body))[0] == status
