"""Asks the extender, when a pod is bound, whether the pod's scheduler has asked it about this pod.

A scheduler that cannot reach the extender, or is not configured to call it, places a gang without a view of its rails,
and nothing else in the cluster shows it. The question goes to the extender's port for probes over plain HTTP: the
answer reveals one bit about a UID, and needs none of the certificates that the extender may require of schedulers.

An extender that nobody can connect to has not placed the pod. One that is slow, or answers with an error, may have:
such a pod is asked about again after its binding, until the extender answers.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable

import aiohttp
import msgspec

from railwright.fabric import intent, views
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_SECONDS = 0.2  # a scheduler waits for the binding; an answer takes about a millisecond
_PAUSE_SECONDS = 2.0  # after a failure, so that an absent extender does not delay each binding
_LATER_SECONDS = 5.0  # of a question after the binding, for which nobody waits
_MAX_UNANSWERED = 1024  # pods that are asked about again
_MAX_ANSWER = 4096  # bytes
_CLOCK_SECONDS = 5.0  # by which the clocks of API server and webhook may differ
_CONNECTIONS = 16
_OK = 200


class _Answer(msgspec.Struct):
    asked: bool
    answering_seconds: float


_decode = msgspec.json.Decoder(_Answer).decode
_NOT_ASKED = (
    "it got no request about them: the scheduler is not configured to call it, cannot reach it, or does not trust "
    "its CA, such as a new one"
)
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
Report = Callable[[views.Pod, reason.Reason], None]


class Extender:
    """The extender whose port for probes is at `url`. `now` returns the time with its zone."""

    def __init__(self, url: str, now: Callable[[], dt.datetime]) -> None:
        self._url, self._now = url, now
        self._failed_until, self._failure = 0.0, ""
        self._unanswered: dict[str, views.Pod] = {}  # by UID
        self._has_unanswered = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def find_problem(self, pod: views.Pod) -> reason.Reason | None:
        """Return the reason if a pod with rails was placed without the extender, otherwise None.

        A pod that is older than the extender's memory of requests has none: a scheduler may have asked before. Nor has
        a pod for which the extender does not answer now: `keep_asking` asks again later.
        """
        if not intent.read_record(pod).rails:
            return None
        loop = asyncio.get_running_loop()
        if loop.time() >= self._failed_until:
            try:
                return self._assess(pod, await self._ask(pod.metadata.uid, _SECONDS))
            except _FAILURES as error:
                self._failed_until, self._failure = loop.time() + _PAUSE_SECONDS, _describe_absence(error)
        if self._failure:
            return _build_reason(pod, self._failure)
        if len(self._unanswered) < _MAX_UNANSWERED:
            self._unanswered[pod.metadata.uid] = pod
            self._has_unanswered.set()
        return None

    async def keep_asking(self, report: Report) -> None:
        """Run `ask_again` every two seconds while there are pods without an answer."""
        while True:
            await self._has_unanswered.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(*_FAILURES):
                await self.ask_again(report)
                self._has_unanswered.clear()

    async def ask_again(self, report: Report) -> None:
        """Report each pod without an answer if it was placed without the extender. Raises one of _FAILURES."""
        while self._unanswered:
            uid, pod = next(iter(self._unanswered.items()))
            problem = self._assess(pod, await self._ask(uid, _LATER_SECONDS))
            del self._unanswered[uid]
            if problem is not None:
                report(pod, problem)

    def _assess(self, pod: views.Pod, answer: _Answer) -> reason.Reason | None:
        if answer.asked or self._is_older(pod, answer.answering_seconds):
            return None
        return _build_reason(pod, _NOT_ASKED)

    async def _ask(self, uid: str, seconds: float) -> _Answer:
        """Return the extender's answer. Raises one of _FAILURES."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        timeout = aiohttp.ClientTimeout(total=seconds)
        url = f"{self._url}/asked/{uid}"
        async with self._session.get(url, allow_redirects=False, timeout=timeout) as response:
            body = await response.content.read(_MAX_ANSWER)
            if response.status != _OK:
                raise ValueError(f"status {response.status}")
        return _decode(body)

    def _is_older(self, pod: views.Pod, answering_seconds: float) -> bool:
        """True if a scheduler may have asked about the pod before the extender began to remember requests."""
        try:
            created = dt.datetime.fromisoformat(pod.metadata.creation_timestamp or "")
            age = (self._now() - created).total_seconds()
        except (TypeError, ValueError):  # not a time, or without a zone
            return True
        return age + _CLOCK_SECONDS > answering_seconds


def _describe_absence(error: Exception) -> str:
    """Return why nobody can connect to the extender; "" for a failure that schedulers need not have had."""
    match error:
        case TimeoutError():
            return ""
        case aiohttp.ClientConnectorDNSError():
            return "the name of the extender's Service has no address"
        case aiohttp.ClientConnectorError():
            return "the extender cannot be reached"
        case _:
            return ""


def _build_reason(pod: views.Pod, problem: str) -> reason.Reason:
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    return reason.make(AdmissionCode.PLACED_WITHOUT_EXTENDER, scheduler=scheduler, problem=problem)
