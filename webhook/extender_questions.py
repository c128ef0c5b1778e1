"""Asks the extender, when a pod is bound, whether the pod's scheduler has asked it about this pod.

A scheduler that cannot reach the extender, or is not configured to call it, places a gang without a view of its rails,
and nothing else in the cluster shows it. The question goes to the extender's port for probes over plain HTTP: the
answer reveals one bit about a UID, and needs none of the certificates that the extender may require of schedulers.
"""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Protocol

import aiohttp
import msgspec

from railwright.fabric import intent, views
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_SECONDS = 0.2  # a scheduler waits for the binding; an answer takes about a millisecond
_PAUSE_SECONDS = 2.0  # after a failure, so that an absent extender does not delay each binding
_MAX_ANSWER = 4096  # bytes
_CLOCK_SECONDS = 5.0  # by which the clocks of API server and webhook may differ
_CONNECTIONS = 16
_OK = 200


class _Answer(msgspec.Struct):
    asked: bool
    answering_seconds: float


_decode = msgspec.json.Decoder(_Answer).decode


class Extender(Protocol):
    """Answers for the extender."""

    async def find_problem(self, pod: views.Pod) -> reason.Reason | None:
        """Return the reason if a pod was placed without the extender, otherwise None."""

    async def close(self) -> None:
        """Close the connections."""


class _NoExtender:
    """Stands for an installation without an extender."""

    async def find_problem(self, pod: views.Pod) -> reason.Reason | None:
        del pod
        return None

    async def close(self) -> None:
        pass


NO_EXTENDER = _NoExtender()


class RemoteExtender:
    """The extender whose port for probes is at `url`. `now` returns the time with its zone."""

    def __init__(self, url: str, now: Callable[[], dt.datetime]) -> None:
        self._url, self._now = url, now
        self._failed_until, self._failure = 0.0, ""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def find_problem(self, pod: views.Pod) -> reason.Reason | None:
        """Return the reason if a pod with rails was placed without the extender, otherwise None.

        A pod that is older than the extender's memory of requests has none: a scheduler may have asked before.
        """
        if not intent.read_record(pod).rails:
            return None
        problem = await self._find_problem(pod)
        if not problem:
            return None
        scheduler = pod.spec.scheduler_name or "default-scheduler"
        return reason.make(AdmissionCode.PLACED_WITHOUT_EXTENDER, scheduler=scheduler, problem=problem)

    async def _find_problem(self, pod: views.Pod) -> str:
        loop = asyncio.get_running_loop()
        if loop.time() < self._failed_until:
            return self._failure
        try:
            answer = await self._ask(pod.metadata.uid)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self._failed_until, self._failure = loop.time() + _PAUSE_SECONDS, _describe(error)
            return self._failure
        if answer.asked or self._is_older(pod, answer.answering_seconds):
            return ""
        return "the scheduler did not ask it about them"

    async def _ask(self, uid: str) -> _Answer:
        """Return the extender's answer. Raises aiohttp.ClientError, TimeoutError, OSError or ValueError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_SECONDS),
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
                trust_env=False,
            )
        async with self._session.get(f"{self._url}/asked/{uid}", allow_redirects=False) as response:
            body = await response.content.read(_MAX_ANSWER)
            if response.status != _OK:
                raise ValueError(f"the extender answers with status {response.status}")
        return _decode(body)

    def _is_older(self, pod: views.Pod, answering_seconds: float) -> bool:
        """True if a scheduler may have asked about the pod before the extender began to remember requests."""
        try:
            created = dt.datetime.fromisoformat(pod.metadata.creation_timestamp or "")
            age = (self._now() - created).total_seconds()
        except (TypeError, ValueError):  # not a time, or without a zone
            return True
        return age + _CLOCK_SECONDS > answering_seconds


def _describe(error: Exception) -> str:
    match error:
        case TimeoutError():
            return f"the extender did not answer within {_SECONDS:g} s"
        case aiohttp.ClientConnectorDNSError():
            return "the name of the extender's Service has no address"
        case aiohttp.ClientConnectorError():
            return "the extender cannot be reached"
        case msgspec.MsgspecError():
            return "the answer of the extender is not understood"
        case ValueError():
            return str(error)
        case _:
            return "the connection to the extender broke"
