"""Bodies on every path of both servers: too large, and no valid requests. Malformed reviews are fault 32."""

import asyncio

import admitting
import extending
import malformed
import placing
import pytest

from extender import app as extender_app
from extender import state as extender_states
from railwright.serving import dispatch, limits, metrics, routes
from webhook import app, state

BOUNDS = limits.Limits(max_body=4096)


def build_dispatchers() -> list[tuple[dispatch.Dispatcher, list[str]]]:
    """Return a dispatcher of the webhook and one of the extender, with the paths of their requests."""
    by = placing.policy()
    deciding = extending.Extender(extender_states.State(assume_seconds=30), lambda: by, clock=lambda: 0.0).decider
    reviews = app.build_routes(state.State(), admitting.fabric, metrics.Metrics("webhook"), lambda _: None)
    requests = [*extender_app.build_routes(deciding, None), *extender_app.build_volcano_routes(deciding)]
    return [
        (dispatch.Dispatcher(reviews, BOUNDS, None), malformed.WEBHOOK),
        (dispatch.Dispatcher(requests, BOUNDS, None), [*malformed.EXTENDER, malformed.ENDS]),
    ]


def find(dispatcher: dispatch.Dispatcher, path: str) -> tuple[routes.Route, dict[str, str]]:
    return dispatcher._table.find("POST", path)


def test_a_body_over_the_limit_gets_413_on_every_path():
    for dispatcher, paths in build_dispatchers():
        for path in paths:
            route, _ = find(dispatcher, path)
            dispatcher.check_size(4096, route)
            with pytest.raises(routes.HttpError, match="4096") as refused:
                dispatcher.check_size(4097, route)
            assert refused.value.status == 413, path


async def post(dispatcher: dispatch.Dispatcher, path: str, body: bytes) -> routes.Reply:
    route, parameters = find(dispatcher, path)
    reply = dispatcher.answer(route, routes.Call(body, parameters, {}, {}, ""))
    return reply if isinstance(reply, routes.Reply) else await reply


@pytest.mark.parametrize("body", malformed.BODIES.values(), ids=malformed.BODIES)
def test_a_malformed_body_gets_400_with_a_reason(body):
    _, (extender, _) = build_dispatchers()
    for path in malformed.EXTENDER:
        reply = asyncio.run(post(extender, path, body))
        assert reply.status == 400, (path, reply.body)
        assert b'"reason":"' in reply.body.replace(b": ", b":"), path


@pytest.mark.parametrize(
    ("body", "status"), [*((malformed.BODIES[name], 400) for name in ("empty", "not JSON", "a list")), (b"{}", 200)]
)
def test_the_end_of_a_session_is_any_object(body, status):
    _, (extender, _) = build_dispatchers()
    assert asyncio.run(post(extender, malformed.ENDS, body)).status == status
