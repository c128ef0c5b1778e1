"""The extender's paths, each onto one verb of `schedulers`; and explanations for whoever may see the pod."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from extender import access, requests, schedulers
from railwright.fabric import names
from railwright.serving import routes

_MALFORMED = (requests.MalformedError,)
_LOOK_SECONDS = 0.05  # by then the watch mostly has what kube-scheduler knew when it asked
_LOOKS_A_REQUEST = 3  # a busy machine is later
_LOOKS_A_SECOND, _LOOKS_AT_ONCE = 4, 9  # kube-scheduler waits for us pod by pod: in the long run a fifth of its time


def offered(verbs: schedulers.Schedulers, post: access.Post | None) -> list[routes.Route]:
    """All routes. `post` asks the API server who may read explanations; None where there is none."""
    table = [
        routes.Route("/scheduler/filter", _filter(verbs), malformed=_MALFORMED),
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


class _Looks:
    """How often nodes may be looked at again: a few at once, then so many a second (a token bucket)."""

    def __init__(self) -> None:
        self._left, self._at = float(_LOOKS_AT_ONCE), time.monotonic()

    def take(self) -> bool:
        """True where one more look may be taken now."""
        now = time.monotonic()
        self._left = min(_LOOKS_AT_ONCE, self._left + (now - self._at) * _LOOKS_A_SECOND)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _filter(verbs: schedulers.Schedulers) -> routes.Handle:
    """Filter, with further looks where every node is refused.

    kube-scheduler tries a waiting pod again at the very event that helps it, often before our own watch has brought
    that event. A pod refused then is not tried again before something else happens, for up to five minutes.
    """
    looks = _Looks()

    def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        body, hopeless = verbs.judge(call.body)
        return again(call.body) if hopeless and looks.take() else routes.Reply(body)

    async def again(body: bytes) -> routes.Reply:
        left = _LOOKS_A_REQUEST
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            left -= 1
            judged, hopeless = verbs.judge(body)
            if not (hopeless and left and looks.take()):
                return routes.Reply(judged)

    return answer


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
            raise routes.HttpError(
                404,
                f"no decision on {namespace}/{pod} is kept (the last 1,000 are): it did not opt in, or no scheduler "
                "has asked about it; look at its label and at the scheduler's extender configuration",
            )
        return routes.Reply(msgspec.json.encode(told))

    return answer
