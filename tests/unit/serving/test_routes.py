"""Routes of paths, the token bucket that limits rates, and caches that are frozen once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.serving import limits, routes


def answer(_call: routes.Call) -> routes.Reply:
    return routes.Reply(b"")


TABLE = routes.Table(
    [
        routes.Route("/volcano/prioritize", answer),
        routes.Route("/volcano/{scope}/prioritize", answer),
        routes.Route("/both", answer),
        routes.Route("/both", answer, "GET"),
        routes.Route("/explain/{namespace}/{pod}", answer, "GET"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "expected", "parameters"),
    [
        ("POST", "/volcano/prioritize", "/volcano/prioritize", {}),
        ("POST", "/volcano/east/prioritize", "/volcano/{scope}/prioritize", {"scope": "east"}),
        ("GET", "/both", "/both", {}),
        ("GET", "/explain/train/w-0", "/explain/{namespace}/{pod}", {"namespace": "train", "pod": "w-0"}),
    ],
)
def test_the_right_route_is_found_with_its_parameters(method, path, expected, parameters):
    route, values = TABLE.find(method, path)
    assert (route.path, dict(values)) == (expected, parameters)
    assert route.method == method


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("POST", "/", 404, None),
        ("POST", "/volcano//prioritize", 404, None),
        ("POST", "/volcano/east/prioritize/", 404, None),
        ("GET", "/volcano/prioritize", 405, "POST"),
        ("DELETE", "/both", 405, "GET, HEAD, POST"),
        ("POST", "/explain/a/b", 405, "GET, HEAD"),
    ],
)
def test_requests_for_other_routes_are_refused(method, path, status, allow):
    with pytest.raises(routes.HttpError) as refused:
        TABLE.find(method, path)
    assert refused.value.status == status
    assert refused.value.headers.get("Allow") == allow


def test_a_route_given_twice_is_refused():
    with pytest.raises(ValueError, match="POST /a is defined twice"):
        routes.Table([routes.Route("/a", answer), routes.Route("/a", answer)])


@given(st.text())
def test_any_reason_becomes_json(reason):
    assert json.loads(routes.build_error_reply(routes.HttpError(400, reason)).body)["error"]["code"] == 400


# --- the token bucket -----------------------------------------------------------------------------------------


def test_a_burst_is_allowed_once():
    bucket = limits.TokenBucket(rate=1, burst=3, clock=lambda: 0.0)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]


def test_tokens_are_refilled_at_the_rate_up_to_the_burst():
    now = 0.0
    bucket = limits.TokenBucket(rate=10, burst=2, clock=lambda: now)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now = 0.1
    assert [bucket.take() for _ in range(2)] == [True, False]
    now = 2.0  # time for nineteen tokens, of which two fit
    assert [bucket.take() for _ in range(3)] == [True, True, False]
