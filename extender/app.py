"""The extender's applications: map paths to the handlers of both schedulers, and explain pods to authorized callers."""

from collections.abc import Sequence

import msgspec
from aiohttp import hdrs, web

from extender import access, decider, decoding, kube_scheduler, volcano
from extender import explanations as explaining
from railwright.fabric import names
from railwright.serving import application, metrics, turns

_MAX_BODY = 8 << 20  # bytes: a pod and 20,000 names of nodes
_MAX_VOLCANO_BODY = 16 << 20  # bytes: a task, and for predicate one node with its pods
_KUBE_ADVICE = "set nodeCacheCapable: true for this extender"
_EXPLAIN = "/explain/{namespace}/{pod}"

_KUBE = web.AppKey("kube", kube_scheduler.KubeScheduler)
_VOLCANO = web.AppKey("volcano", volcano.Volcano)
_EXPLANATIONS = web.AppKey("explanations", explaining.Explanations)
_POST = web.AppKey[access.Post | None]("post")


def build_application(
    deciding: decider.Decider,
    explanations: explaining.Explanations,
    post: access.Post | None,
    rules: application.Rules,
    *,
    with_volcano: bool,
) -> web.Application:
    """Return the application of --listen: kube-scheduler, explanations, and Volcano unless it has a port of its own.

    `post` sends access reviews to the API server; None if there is none.
    """
    routes = [
        web.post("/scheduler/filter", filter_nodes),
        web.post("/scheduler/prioritize", prioritize),
        web.get(_EXPLAIN, explain),
    ]
    # people call it with a token, through the API server's proxy, which presents no certificate
    rules.public = frozenset({_EXPLAIN})
    app = application.build(rules, [*routes, *(_list_volcano_routes() if with_volcano else ())])
    app[_KUBE], app[_VOLCANO] = kube_scheduler.KubeScheduler(deciding), volcano.Volcano(deciding)
    app[_EXPLANATIONS], app[_POST] = explanations, post
    return app


def build_volcano_application(deciding: decider.Decider, rules: application.Rules) -> web.Application:
    """Return the application of --volcano-listen."""
    app = application.build(rules, _list_volcano_routes())
    app[_VOLCANO] = volcano.Volcano(deciding)
    return app


def build_rules(max_body: int, counters: metrics.Metrics | None) -> application.Rules:
    """Return what an application of the extender accepts."""
    return application.Rules(max_body=max_body, counters=counters, malformed=(decoding.MalformedError,))


# --- kube-scheduler -------------------------------------------------------------------------------------------


async def filter_nodes(request: web.Request) -> web.Response:
    """Handle POST /scheduler/filter."""
    body = _get_body(request, _MAX_BODY, _KUBE_ADVICE)
    return application.reply(request.app[_KUBE].filter(body))


async def prioritize(request: web.Request) -> web.Response:
    """Handle POST /scheduler/prioritize."""
    body = _get_body(request, _MAX_BODY, _KUBE_ADVICE)
    return application.reply(request.app[_KUBE].prioritize(body))


def _get_body(request: web.Request, most: int, advice: str = "send a smaller one") -> bytes:
    """Return the body. Raises HttpError if it is larger than those of this path, which are below --max-body."""
    body = request[application.BODY]
    if len(body) > most:
        path = application.get_path(request)
        raise application.HttpError(413, f"the body is larger than {most} bytes, the limit of {path}: {advice}")
    return body


# --- Volcano --------------------------------------------------------------------------------------------------


def _list_volcano_routes() -> Sequence[web.RouteDef]:
    """Return the routes of Volcano. Each of its instances has its own scope (docs/interface.md 4.3)."""
    handlers = {
        "prioritize": prioritize_for_volcano,
        "predicate": predicate,
        "allocate": allocate,
        "deallocate": deallocate,
        "session-close": close_session,
    }
    return [
        web.post(f"/volcano{scope}/{verb}", handle) for verb, handle in handlers.items() for scope in ("", "/{scope}")
    ]


async def prioritize_for_volcano(request: web.Request) -> web.Response:
    """Handle POST /volcano/prioritize. Its body has every node: tens of megabytes."""
    return application.reply(await turns.run(request.app[_VOLCANO].prioritize(request[application.BODY])))


async def predicate(request: web.Request) -> web.Response:
    """Handle POST /volcano/predicate."""
    return application.reply(request.app[_VOLCANO].predicate(_get_body(request, _MAX_VOLCANO_BODY)))


async def allocate(request: web.Request) -> web.Response:
    """Handle POST /volcano/allocate."""
    body = _get_body(request, _MAX_VOLCANO_BODY)
    return application.reply(request.app[_VOLCANO].allocate(body, _read_scope(request)))


async def deallocate(request: web.Request) -> web.Response:
    """Handle POST /volcano/deallocate. A uid is assumed once, in any scope."""
    return application.reply(request.app[_VOLCANO].deallocate(_get_body(request, _MAX_VOLCANO_BODY)))


async def close_session(request: web.Request) -> web.Response:
    """Handle POST /volcano/session-close."""
    body = _get_body(request, _MAX_VOLCANO_BODY)
    return application.reply(request.app[_VOLCANO].close_session(body, _read_scope(request)))


def _read_scope(request: web.Request) -> str:
    scope = request.match_info.get("scope", "")
    decoding.check_names("the scope in the path", (scope,))
    return scope


# --- explanations ---------------------------------------------------------------------------------------------


async def explain(request: web.Request) -> web.Response:
    """Handle GET /explain/NAMESPACE/POD."""
    namespace, pod, headers = request.match_info["namespace"], request.match_info["pod"], request.headers
    authorization = headers.get(hdrs.AUTHORIZATION, "") or headers.get(names.PROXIED_AUTHORIZATION, "")
    denial = await access.check_pod_access(authorization, namespace, request.remote or "", request.app[_POST])
    if denial is not None:
        raise application.HttpError(*denial)
    explanation = request.app[_EXPLANATIONS].explain(namespace, pod)
    if explanation is None:
        raise application.HttpError(404, f"no opted-in pod {namespace}/{pod} is known here")
    return application.reply(msgspec.json.encode(explanation))
