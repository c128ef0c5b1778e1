"""Maps the extender's paths to the handlers of both schedulers, and serves explanations to authorized callers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from extender import access, decider, decoding, kube_scheduler, volcano, volcano_wire
from railwright.fabric import names
from railwright.serving import limits, routes, turns

_MALFORMED = (decoding.MalformedError,)
_MAX_BODY = 8 << 20  # bytes: a pod and 20,000 names of nodes
_MAX_VOLCANO_BODY = 16 << 20  # bytes: a task, and for predicate one node with its pods
_KUBE_ADVICE = "set nodeCacheCapable: true for this extender"
_RETRY_SECONDS = 0.05  # within this time the watch usually catches up with kube-scheduler's own caches
_RETRIES_PER_REQUEST = 3  # a busy machine needs more than one
# kube-scheduler waits for filter pod by pod, so retries may take a fifth of its time in the long run
_RETRIES_PER_SECOND, _RETRY_BURST = 4, 9


def build_tables(
    deciding: decider.Decider, post: access.Post | None, *, separates_volcano: bool
) -> tuple[list[routes.Route], list[routes.Route]]:
    """Return the routes of --listen and those of --volcano-listen."""
    table, volcano_table = build_routes(deciding, post), build_volcano_routes(deciding)
    return (table, volcano_table) if separates_volcano else ([*table, *volcano_table], [])


def build_routes(deciding: decider.Decider, post: access.Post | None) -> list[routes.Route]:
    """Return the routes of kube-scheduler and of explanations.

    `post` sends access reviews to the API server; None if there is none.
    """
    handlers = kube_scheduler.KubeScheduler(deciding)
    return [
        routes.Route(
            "/scheduler/filter",
            _record_after(deciding, _build_filter(handlers, deciding.clock)),
            malformed=_MALFORMED,
            max_body=_MAX_BODY,
            advice=_KUBE_ADVICE,
            requires_certificate=True,
        ),
        routes.Route(
            "/scheduler/prioritize",
            _record_after(deciding, _reply_in_turns(lambda call: handlers.prioritize(call.body))),
            malformed=_MALFORMED,
            max_body=_MAX_BODY,
            advice=_KUBE_ADVICE,
            requires_certificate=True,
        ),
        # people call it with a token, through the API server's proxy, which presents no certificate
        routes.Route("/explain/{namespace}/{pod}", _build_explain(deciding, post), method="GET"),
    ]


def build_volcano_routes(deciding: decider.Decider) -> list[routes.Route]:
    """Return the routes of Volcano. Each of its instances has its own scope (docs/interface.md 4.3)."""
    handlers = volcano.Volcano(deciding)
    table = []

    def prioritize(call: routes.Call) -> turns.Steps[bytes]:
        return handlers.prioritize(call.body, _read_scope(call), cast("volcano_wire.NodeReader | None", call.reader))

    score = _record_after(deciding, _reply_in_turns(prioritize))
    check = _record_after(deciding, _reply_in_turns(lambda call: handlers.predicate(call.body, _read_scope(call))))
    for scope in ("", "/{scope}"):
        table += [
            routes.Route(
                f"/volcano{scope}/prioritize", score, malformed=_MALFORMED, build_reader=volcano_wire.NodeReader
            ),
            routes.Route(f"/volcano{scope}/predicate", check, malformed=_MALFORMED, max_body=_MAX_VOLCANO_BODY),
        ]
    for verb, handle in (
        ("allocate", handlers.allocate),
        ("deallocate", handlers.deallocate),
        ("session-close", handlers.close_session),
    ):
        table.append(_build_volcano_route(f"/volcano/{verb}", handle))
        table.append(_build_volcano_route(f"/volcano/{{scope}}/{verb}", handle))
    return [route._replace(requires_certificate=True) for route in table]


def build_ops_routes(deciding: decider.Decider) -> list[routes.Route]:
    """Return the routes of the port for probes and metrics. The webhook calls them."""
    return [
        routes.Route(
            "/asked/{uid}", lambda call: deciding.asked.answer(call.parameters["uid"], deciding.clock()), method="GET"
        )
    ]


def _build_filter(handlers: kube_scheduler.KubeScheduler, clock: Callable[[], float]) -> routes.Handle:
    """Return the handler of filter, which evaluates a request again if it rejects every node.

    kube-scheduler retries a pending pod at the very event that makes it schedulable, often before our own watch has
    delivered that event. It then does not retry a rejected pod before another event, for up to five minutes.
    """
    budget = limits.TokenBucket(_RETRIES_PER_SECOND, _RETRY_BURST, clock)

    def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        result = turns.run(handlers.filter_nodes(call.body))
        if not isinstance(result, tuple):
            return reply_later(call.body, result)
        body, rejects_all = result
        return retry(call.body) if rejects_all and budget.take() else routes.Reply(body)

    async def reply_later(request: bytes, result: Awaitable[tuple[bytes, bool]]) -> routes.Reply:
        body, rejects_all = await result
        return await retry(request) if rejects_all and budget.take() else routes.Reply(body)

    async def retry(body: bytes) -> routes.Reply:
        retries_left = _RETRIES_PER_REQUEST
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            retries_left -= 1
            response, rejects_all = turns.complete(handlers.filter_nodes(body))
            if not (rejects_all and retries_left and budget.take()):
                return routes.Reply(response)

    return answer


def _reply_in_turns(handle: Callable[[routes.Call], turns.Steps[bytes]]) -> routes.Handle:
    def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        body = turns.run(handle(call))
        return routes.Reply(body) if isinstance(body, bytes) else reply_later(body)

    async def reply_later(body: Awaitable[bytes]) -> routes.Reply:
        return routes.Reply(await body)

    return answer


def _record_after(deciding: decider.Decider, handle: routes.Handle) -> routes.Handle:
    """Have decisions recorded once the answer is sent: a server writes at the end of an iteration of the event loop."""

    def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        asyncio.get_running_loop().call_soon(deciding.record_decisions)
        return handle(call)

    return answer


def _build_volcano_route(path: str, handle: Callable[[bytes, str], bytes]) -> routes.Route:
    def answer(call: routes.Call) -> routes.Reply:
        return routes.Reply(handle(call.body, _read_scope(call)))

    return routes.Route(path, answer, malformed=_MALFORMED, max_body=_MAX_VOLCANO_BODY)


def _read_scope(call: routes.Call) -> str:
    scope = call.parameters.get("scope", "")
    decoding.check_names("the scope in the path", (scope,))
    return scope


def _build_explain(deciding: decider.Decider, post: access.Post | None) -> routes.Handle:
    async def answer(call: routes.Call) -> routes.Reply:
        namespace, pod = call.parameters["namespace"], call.parameters["pod"]
        headers = call.headers
        authorization = headers.get("authorization") or headers.get(names.PROXIED_AUTHORIZATION.lower(), "")
        denial = await access.check_pod_access(authorization, namespace, call.peer, post)
        if denial is not None:
            raise routes.HttpError(*denial)
        explanation = deciding.explain(namespace, pod)
        if explanation is None:
            raise routes.HttpError(404, deciding.explain_absence(f"{namespace}/{pod}"))
        return routes.Reply(msgspec.json.encode(explanation))

    return answer
