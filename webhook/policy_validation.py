"""POST /validate/policy: rejects a ConfigMap with an invalid policy, and lists all its errors.

Formats the rejection and limits the number of waiting callers, so that reviews of pods continue meanwhile.
`railwright.cluster.policies` finds the errors. If a caller gets an HTTP error or times out, the API server admits the
object unchecked (`failurePolicy: Ignore`). That is harmless, because an invalid policy never takes effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from railwright.cluster import installed_names, policies, policy_process
from railwright.fabric import names, views
from railwright.fabric.policy import model, shortcomings
from railwright.fabric.reasons import rendering
from railwright.serving import routes
from webhook import reviews

_CONFIG_MAPS = reviews.Reader(views.ConfigMap, "ConfigMap")
_BAD_REQUEST = 400
_MAX_MESSAGE = 16 * 1024  # characters of listed errors; more is unreadable in a terminal
_MAX_CALLERS = 4  # one whose policy is being read, and three that wait
_RETRY_SECONDS = 1  # Retry-After takes whole seconds, and the API server's own timeout is short
_DEFAULT_SECONDS = 5.0  # for a caller that sends no `timeout`; equal to timeoutSeconds in manifests/base/admission.yaml
_MAX_SECONDS = 30.0  # the largest timeoutSeconds of a webhook configuration
_REPLY_SECONDS = 0.2  # reserved for sending the answer

_Request = reviews.Request[views.ConfigMap]
Read = Callable[[str, float], Awaitable[model.Policy | policies.Rejected]]


class Validator:
    """Validates one policy at a time, for a limited number of callers."""

    def __init__(self, read: Read = policy_process.read) -> None:
        self._read = read
        self._callers = 0
        self._turn = asyncio.Lock()

    async def handle(
        self,
        body: bytes,
        timeout: str = "",  # noqa: ASYNC109 - the query parameter of the API server
        networks: shortcomings.Networks | None = None,
        offered: Collection[str] | None = None,
    ) -> reviews.Answer:
        """Answer a review. `timeout` is the caller's timeout as an API server writes it: `5s`.

        A valid policy is allowed, with warnings about networks and resources that the cluster lacks. `networks` and
        `offered` (the resources of the nodes) are None if unknown.
        Raises reviews.MalformedError for anything but a review of a ConfigMap. Raises HttpError if too many callers
        wait already (429), or if the policy could not be read within the timeout (503).
        """
        request = _CONFIG_MAPS.read(body)
        if request.object is None or not _is_policy(request):
            return reviews.allow(request)
        text = (request.object.data or {}).get(names.POLICY_KEY)
        if text is None:
            return _reject(request, f"key {names.POLICY_KEY} is missing in data; put the policy there")
        if self._callers >= _MAX_CALLERS:
            problem = f"{self._callers} policies are being checked already; try again in {_RETRY_SECONDS} s"
            raise routes.HttpError(429, problem, {"Retry-After": str(_RETRY_SECONDS)})
        self._callers += 1
        try:
            result = await self._read_in_turn(text, _parse_timeout(timeout))
        except (policy_process.ReaderError, TimeoutError) as error:
            cause = str(error) or "the checks of other policies took longer than the timeout"
            raise routes.HttpError(503, f"the policy was not checked: {cause}; apply it again") from None
        finally:
            self._callers -= 1
        if isinstance(result, policies.Rejected):
            return _reject(request, _format_errors(result.errors))
        # in a thread, because the duration grows with the number of rails
        reasons = await asyncio.to_thread(shortcomings.find, result.document, networks, offered)
        return reviews.allow(request, rendering.describe_all(reasons))

    async def _read_in_turn(self, text: str, seconds: float) -> model.Policy | policies.Rejected:
        """Wait for earlier callers and read the policy. Raises TimeoutError and the errors of the reader."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        async with asyncio.timeout_at(deadline):
            await self._turn.acquire()
        try:
            return await self._read(text, deadline - loop.time())
        finally:
            self._turn.release()


def _parse_timeout(timeout: str) -> float:
    number = timeout.removesuffix("s")
    seconds = float(number) if number.isascii() and number.isdecimal() else _DEFAULT_SECONDS
    return max(0.0, min(seconds, _MAX_SECONDS) - _REPLY_SECONDS)


def _is_policy(request: _Request) -> bool:
    """True if an object with the policy's name is written. The webhook configuration may select others too.

    One that is being deleted does not count: the removal of its finalizers is an update.
    """
    if request.object is None or request.object.metadata.deletion_timestamp:
        return False
    name = request.name or request.object.metadata.name
    return (
        request.namespace == installed_names.NAMESPACE
        and name == installed_names.POLICY
        and request.operation in {"CREATE", "UPDATE"}
    )


def _format_errors(errors: Sequence[policies.PolicyError]) -> str:
    """Return one line for each error, and the number of errors that do not fit."""
    count = min(len(errors), policies.MAX_ERRORS)
    lines = [f"{policies.format_count(errors)} in {names.POLICY_KEY}:"]
    remaining = _MAX_MESSAGE - len(lines[0])
    for number, error in enumerate(errors):
        line = str(error)
        remaining -= len(line) + 1
        if remaining < 0:
            return "\n".join([*lines, f"and {count - number} more; correct these first"])
        lines.append(line)
    return "\n".join(lines)


def _reject(request: _Request, problem: str) -> reviews.Answer:
    message = f"ConfigMap {installed_names.NAMESPACE}/{installed_names.POLICY}: {problem}"
    response = reviews.Response(allowed=False, code=_BAD_REQUEST, message=message)
    return reviews.build_answer(request, response, reason="policy")
