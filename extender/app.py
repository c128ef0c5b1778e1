"""The extender's HTTP routes: requests of both schedulers, and explanations of pods for authorized callers."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from aiohttp import hdrs, web

from extender import access, decider, decoding, kube_scheduler, volcano
from railwright.fabric import intent, names, resources
from railwright.fabric.overview import gang_assessment, overview_types
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import pod_usage
from railwright.serving import application, metrics

_MAX_BODY = 256 << 20  # bytes: Volcano's prioritize has every node with every task, of which only names are kept
_MAX_KUBE_BODY = 8 << 20  # bytes: a pod and 20,000 names of nodes
_MAX_VOLCANO_BODY = 16 << 20  # bytes: a task, and for predicate one node with its pods
_KUBE_SCHEDULER_FIX = "set nodeCacheCapable: true for this extender"
_EXPLAIN = "/explain/{namespace}/{pod}"

_Answer = Callable[..., bytes]
"""Takes the body of a request, and the name of the Volcano in its path ("" for none); returns the answer's body."""


def build_application(
    deciding: decider.Decider,
    assessor: gang_assessment.Assessor,
    post: access.Post | None,
    counters: metrics.Metrics | None,
    *,
    with_volcano: bool,
) -> web.Application:
    """Return the HTTP routes of --listen: kube-scheduler, explanations, and Volcano unless it has a port of its own.

    `post` sends access reviews to the API server; None if there is none.
    """
    kube = kube_scheduler.KubeScheduler(deciding)
    routes = [
        web.post("/scheduler/filter", _build_handler(kube.filter, _MAX_KUBE_BODY, _KUBE_SCHEDULER_FIX)),
        web.post("/scheduler/prioritize", _build_handler(kube.prioritize, _MAX_KUBE_BODY, _KUBE_SCHEDULER_FIX)),
        web.get(_EXPLAIN, _build_explain_handler(assessor, post)),
    ]
    rules = _build_http_rules(counters)
    # people call it with a token, through the API server's proxy, which presents no certificate
    rules.public = frozenset({_EXPLAIN})
    return application.build_application(rules, [*routes, *(_list_volcano_routes(deciding) if with_volcano else ())])


def build_volcano_application(deciding: decider.Decider, counters: metrics.Metrics) -> web.Application:
    """Return the HTTP routes of --volcano-listen."""
    return application.build_application(_build_http_rules(counters), _list_volcano_routes(deciding))


def _build_http_rules(counters: metrics.Metrics | None) -> application.Rules:
    return application.Rules(
        max_body=_MAX_BODY,
        counters=counters,
        malformed=(decoding.MalformedError,),
        body_types=dict.fromkeys(("/volcano/prioritize", "/volcano/{scope}/prioritize"), volcano.PrioritizeBody),
    )


def _build_handler(
    answer: _Answer, most: int, advice: str = "send a smaller one", *, has_scope: bool = False
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return an HTTP handler that replies with `answer`, and rejects bodies of more than `most` bytes."""

    async def answer_request(request: web.Request) -> web.Response:
        body = request[application.BODY]
        if len(body) > most:
            path = application.get_route_path(request)
            raise application.HttpError(413, f"the body is larger than {most} bytes, the limit of {path}: {advice}")
        if not has_scope:
            return application.build_response(answer(body))
        scope = request.match_info.get("scope", "")
        decoding.check_names("the scope in the path", (scope,))
        return application.build_response(answer(body, scope))

    return answer_request


def _list_volcano_routes(deciding: decider.Decider) -> Sequence[web.RouteDef]:
    """Return the routes of Volcano. Each instance of Volcano has its own scope (docs/interface.md 4.3)."""
    answers = volcano.Volcano(deciding)

    handlers = {
        "prioritize": _build_handler(answers.prioritize, _MAX_VOLCANO_BODY),
        "predicate": _build_handler(answers.predicate, _MAX_VOLCANO_BODY),
        "allocate": _build_handler(answers.allocate, _MAX_VOLCANO_BODY, has_scope=True),
        "deallocate": _build_handler(answers.deallocate, _MAX_VOLCANO_BODY),  # a uid is assumed once, in any scope
        "session-close": _build_handler(answers.close_session, _MAX_VOLCANO_BODY, has_scope=True),
    }
    return [
        web.post(f"/volcano{scope}/{verb}", handle) for verb, handle in handlers.items() for scope in ("", "/{scope}")
    ]


def _build_explain_handler(
    assessor: gang_assessment.Assessor, post: access.Post | None
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer_explain(request: web.Request) -> web.Response:
        namespace, pod, headers = request.match_info["namespace"], request.match_info["pod"], request.headers
        authorization = headers.get(hdrs.AUTHORIZATION, "") or headers.get(names.PROXIED_AUTHORIZATION, "")
        denial = await access.check_pod_access(authorization, namespace, request.remote or "", post)
        if denial is not None:
            raise application.HttpError(*denial)
        explanation = explain_pod(f"{namespace}/{pod}", assessor)
        if isinstance(explanation, str):
            raise application.HttpError(404, explanation)
        return application.build_response(msgspec.json.encode(explanation))

    return answer_explain


# --- explanations ---------------------------------------------------------------------------------------------
# They are computed from the present state, without the memory of gangs, so that every replica gives the same. The
# devices of a running pod count as free.


def explain_pod(key: str, assessor: gang_assessment.Assessor) -> overview_types.Explanation | str:
    """Explain a pod (namespace/name). Return a sentence if it is unknown, ended, not opted in, or without fabric."""
    pod = assessor.find_pod(key)
    request = assessor.build_request(pod) if pod is not None else None
    if pod is None or pod.reduced is None or request is None:
        undefined = assessor.describe_undefined_fabric(pod)
        return undefined.text if undefined else f"no opted-in pod {key} is known here"
    members = assessor.list_members(pod)
    return overview_types.Explanation(
        pod=pod.key,
        node=pod.node,
        scheduler=pod.reduced.spec.scheduler_name or "default-scheduler",
        fabric=request.fabric_name,
        needs=[_describe_need(need, request) for need in request.needs],
        devices=pod_usage.list_held_rails(request.fabric, pod, assessor.cluster),
        gang=assessor.describe_gang(members, assessor.assess_gang(members)),
        candidate_nodes=len(request.nodes),
        nodes=assessor.engine.explain_nodes(request, pod.node),
    )


def _describe_need(need: intent.Need, request: scheduling_request.SchedulingRequest) -> str:
    """Return, as text, the rails of a need with the number of requested devices, or "not requested"."""
    resource = intent.format_resource(need.resource)
    if need.resource in request.unrequested and request.fabric.claims is None:  # such as `skip: devices`
        return f"{need.display_name}: {resource} (not requested)"
    return f"{need.display_name}: {need.amount // resources.UNIT} {resource}"
