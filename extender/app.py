"""The extender's paths, each onto one verb of `schedulers`; and explanations for whoever may see the pod."""

from collections.abc import Callable

import msgspec

from extender import access, requests, schedulers
from fabric import names
from serving import routes

_MALFORMED = (requests.MalformedError,)


def offered(verbs: schedulers.Schedulers, post: access.Post | None) -> list[routes.Route]:
    """All routes. `post` asks the API server who may read explanations; None where there is none."""
    table = [
        _kube("/scheduler/filter", verbs.filter),
        _kube("/scheduler/prioritize", verbs.prioritize),
    ]
    for verb, handle in (
        ("prioritize", verbs.volcano_prioritize),
        ("predicate", verbs.volcano_predicate),
        ("allocate", verbs.volcano_allocate),
        ("deallocate", verbs.volcano_deallocate),
        ("session-close", verbs.volcano_close),
    ):
        table.append(_volcano(f"/volcano/{verb}", handle))
        table.append(_volcano(f"/volcano/{{scope}}/{verb}", handle))  # one scope a scheduler instance (ruling 25)
    table.append(routes.Route("/explain/{namespace}/{pod}", _explain(verbs, post), method="GET"))
    return table


def _kube(path: str, handle: Callable[[bytes], bytes]) -> routes.Route:
    return routes.Route(path, lambda call: routes.Reply(handle(call.body)), malformed=_MALFORMED, immediate=True)


def _volcano(path: str, handle: Callable[[bytes, str], bytes]) -> routes.Route:
    def answer(call: routes.Call) -> routes.Reply:
        return routes.Reply(handle(call.body, call.parameters.get("scope", "")))

    return routes.Route(path, answer, malformed=_MALFORMED, immediate=True)


def _explain(verbs: schedulers.Schedulers, post: access.Post | None) -> routes.Handle:
    async def answer(call: routes.Call) -> routes.Reply:
        namespace, pod = call.parameters["namespace"], call.parameters["pod"]
        headers = call.headers
        authorization = headers.get("Authorization") or headers.get(names.PROXIED_AUTHORIZATION, "")
        denial = await access.denied(authorization, namespace, call.peer, post)
        if denial is not None:
            raise routes.HttpError(*denial)
        told = verbs.explanations.of(namespace, pod, verbs.gangs)
        if told is None:
            raise routes.HttpError(404, f"no decision on {namespace}/{pod} is kept (the last 1,000 are)")
        return routes.Reply(msgspec.json.encode(told))

    return answer
