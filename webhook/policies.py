"""POST /validate/policy: a ConfigMap that would not be a valid policy is refused with all that is wrong with it.

Owns the wording of that refusal, and how many callers may wait for one: reviews of pods go on meanwhile. What is wrong
is `railwright.cluster.policies`' to say. A caller that is turned away, or told too late, lets the ConfigMap through
unchecked (failurePolicy Ignore); that is harmless, because a policy that is wrong never takes effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from railwright.cluster import policies, policy_process
from railwright.fabric import names, views
from railwright.fabric.policy import model, shortcomings
from railwright.serving import routes
from webhook import answer, wire

_READER = wire.Reader(views.ConfigMap, "ConfigMap")
_BAD_REQUEST = 400
_MAX_MESSAGE = 16 * 1024  # characters of errors that are told one by one; nobody reads more in a terminal
_MOST_CALLERS = 4  # at once: one whose policy is read, and those that wait for it
_RETRY_SECONDS = 1  # whole, or an API server does not try again within its own time
_SECONDS = 5.0  # how long a caller waits that does not say; timeoutSeconds of manifests/base/admission.yaml
_LONGEST_SECONDS = 30.0  # the most that a webhook configuration can say
_ON_ITS_WAY_SECONDS = 0.2  # of those, for the answer

Read = Callable[[str, float], Awaitable[model.Policy | policies.Rejected]]


class Validation:
    """The callers that wait to hear whether a policy is good. One policy is read at a time."""

    def __init__(self, read: Read = policy_process.read) -> None:
        self._read = read
        self._callers = 0
        self._turn = asyncio.Lock()

    async def handle(
        self,
        body: bytes,
        timeout: str = "",  # noqa: ASYNC109 - the caller's own words
        networks: shortcomings.Networks | None = None,
        offered: Collection[str] | None = None,
    ) -> answer.Answer:
        """Answer a review. `timeout` is how long the caller waits, as an API server writes it: `5s`.

        A valid policy is allowed with warnings about what it lacks in this cluster: `networks` and the resources that
        nodes have (`offered`) are None where they are not known.
        Raises wire.MalformedError for what is no review of a ConfigMap, and HttpError where too many callers wait
        already (429), or the policy could not be read in the caller's time (503).
        """
        request = _READER.read(body)
        config_map = request.object
        if config_map is None or not _is_policy(request):
            return _answer(request, None)
        text = (config_map.data or {}).get(names.POLICY_KEY)
        if text is None:
            return _answer(request, f"key {names.POLICY_KEY} is missing in data; put the policy there")
        if self._callers >= _MOST_CALLERS:
            reason = f"{self._callers} policies are being checked already; try again in {_RETRY_SECONDS} s"
            raise routes.HttpError(429, reason, {"Retry-After": str(_RETRY_SECONDS)})
        self._callers += 1
        try:
            result = await self._result(text, _seconds(timeout))
        except (policy_process.ReaderError, TimeoutError) as error:
            reason = str(error) or "other policies were being checked for too long"
            raise routes.HttpError(503, f"the policy was not checked: {reason}; apply it again") from None
        finally:
            self._callers -= 1
        if isinstance(result, policies.Rejected):
            return _answer(request, _told(result.errors))
        # in a thread, because the time grows with the number of rails
        return _answer(request, None, await asyncio.to_thread(shortcomings.find, result.document, networks, offered))

    async def _result(self, text: str, seconds: float) -> model.Policy | policies.Rejected:
        """What the text is. Raises TimeoutError, or what the reader raises."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            await self._turn.acquire()
        try:
            return await self._read(text, deadline - loop.time())
        finally:
            self._turn.release()


def _seconds(timeout: str) -> float:
    number = timeout.removesuffix("s")
    asked = float(number) if number.isascii() and number.isdecimal() else _SECONDS
    return max(0.0, min(asked, _LONGEST_SECONDS) - _ON_ITS_WAY_SECONDS)


def _is_policy(request: wire.Request[views.ConfigMap]) -> bool:
    """Our one ConfigMap, written: a selector may be wider than the contract."""
    name = request.name or (request.object.metadata.name if request.object else "")
    return (
        request.namespace == names.NAMESPACE
        and name == names.POLICY_CONFIGMAP
        and request.operation in {"CREATE", "UPDATE"}
    )


def _told(errors: Sequence[policies.PolicyError]) -> str:
    """All errors, a line each; what does not fit is counted."""
    count = len(errors)
    lines = [f"{count} error{'s' * (count != 1)} in {names.POLICY_KEY}:"]
    room = _MAX_MESSAGE - len(lines[0])
    for number, error in enumerate(errors):
        shown = line(error)
        room -= len(shown) + 1
        if room < 0:
            return "\n".join([*lines, f"and {count - number} more; correct these first"])
        lines.append(shown)
    return "\n".join(lines)


def line(error: policies.PolicyError) -> str:
    """One error as people read it: line, path, sentence."""
    where = "" if error.line is None else f"line {error.line}: "
    path = f"{error.path}: " if error.path else ""
    return f"{where}{path}{error.message}"


def _answer(request: wire.Request[views.ConfigMap], problem: str | None, warnings: Sequence[str] = ()) -> answer.Answer:
    if problem is None:
        body = wire.write(request.uid, wire.Verdict(warnings=warnings))
        return answer.Answer(body=body, outcome=answer.ALLOWED, warnings=len(warnings))
    message = f"ConfigMap {names.NAMESPACE}/{names.POLICY_CONFIGMAP}: {problem}"
    verdict = wire.Verdict(allowed=False, code=_BAD_REQUEST, message=message)
    body = wire.write(request.uid, verdict)
    return answer.Answer(body=body, outcome=answer.REFUSED, reason="policy", dry_run=bool(request.dry_run))
