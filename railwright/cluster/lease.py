"""One leader among replicas, by a Lease of the API server.

Owns the requests, their deadlines and who is told. The rules are `candidacy`'s. `leading` is a look at the clock, so it
is false in time even where this process was stopped for a while, or the API server does not answer.
"""

import asyncio
import datetime as dt
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from railwright.cluster import candidacy, errors
from railwright.cluster import client as clients

Timings = candidacy.Timings
_GROUP = "/apis/coordination.k8s.io/v1"
_UNAUTHORIZED, _NOT_FOUND = 401, 404
_OVERTAKEN = frozenset({409, 422})  # the latter for one that was to be created and is there by now: it has no version
_LEAVE_SECONDS = 1.0  # to give the Lease back; without that it ends by itself
_log = logging.getLogger("railwright.cluster")


class _Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(_Lease).decode


def identity(pod: str) -> str:
    """A name no other process has, nor this pod after a restart: `pod` and eight random characters."""
    return f"{pod}_{secrets.token_hex(4)}"


def uptime() -> float:
    """Seconds by a clock that no one sets, and that counts the time in which the machine was suspended."""
    suspended = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.monotonic() if suspended is None else time.clock_gettime(suspended)


class Election:
    """One candidate. `run` keeps it standing; `leading` says whether it leads now."""

    def __init__(  # noqa: PLR0913 - what tests vary comes by name
        self,
        client: clients.Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timings: Timings | None = None,
        changed: Callable[[bool], None] = lambda _leading: None,
        eligible: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = uptime,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        chance: random.Random | None = None,
    ) -> None:
        """`changed` is called on the loop with True and False in turn, the latter as soon as the time is up.

        Who is not `eligible` does not stand, and gives the Lease back.
        """
        self._client, self._changed, self._clock, self._now = client, changed, clock, now
        self._eligible = eligible
        self._name, self._path = name, f"{_GROUP}/namespaces/{namespace}/leases/{name}"
        self._namespace = namespace
        self._timings = timings or Timings()
        self._candidate = candidacy.Candidate(identity=identity, timings=self._timings)
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not secrecy
        self._kept: _Lease | None = None  # our own last write: the next one needs no look before
        self._leaving = asyncio.Event()
        self._bids = False  # a write of ours may have arrived, so the Lease may be ours
        self._shown = False
        self._told = ""

    @property
    def identity(self) -> str:
        """What this candidate is called in the Lease."""
        return self._candidate.identity

    @property
    def leading(self) -> bool:
        """True while no other candidate can lead."""
        return candidacy.leads(self._candidate, self._clock())

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last read; "" for nobody, or not known yet."""
        record = self._candidate.record
        return (record.holder_identity or "") if record else ""

    @property
    def term(self) -> int:
        """How often the Lease had changed hands when it was last read: the same as long as nobody else led."""
        record = self._candidate.record
        return (record.lease_transitions or 0) if record else 0

    def resign(self) -> None:
        """Lead no more, from now on; `run` gives the Lease back so that another takes it at once."""
        self._leaving.set()
        self._step_down()

    async def run(self) -> None:
        """Stand for ever; when cancelled, give the Lease back."""
        try:
            while not self._leaving.is_set():
                if self._eligible():
                    await self._round()
                elif self.holder == self.identity:
                    self._step_down()
                    await self._leave()
                await self._pause()
            await self._leave()
            await asyncio.Event().wait()
        finally:
            self._step_down()
            await self._leave()

    async def _round(self) -> None:
        """One attempt to lead, or to lead on."""
        try:
            await self._stand()
            self._told = ""
        except (errors.ClusterError, TimeoutError) as error:
            self._kept = None
            await self._failed(error)
        self._show()

    def _soon(self) -> asyncio.Timeout:
        """For one call, so that a slow API server has a leader too. A leader's ends with its time: it is told then."""
        seconds, left = self._timings.renew / 2, self._candidate.until - self._clock()
        return asyncio.timeout(min(seconds, left) if left > 0 else seconds)

    async def _stand(self) -> None:
        lease = self._kept
        if lease is None:
            async with self._soon():
                lease = await self._read()
            self._show()
        record = candidacy.bid(self._candidate, self._clock(), self._stamp())
        if record is None:
            return
        sent, self._bids = self._clock(), True
        async with self._soon():
            self._kept = await self._written(lease, record)
        if not self._leaving.is_set():
            self._candidate = candidacy.won(self._candidate, record, sent, self._clock())

    async def _read(self) -> _Lease | None:
        try:
            lease = self._decoded(await self._client.get(self._path))
            record = msgspec.convert(lease.spec, candidacy.Record)
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._candidate = candidacy.saw(self._candidate, None, self._clock())
            return None
        except msgspec.ValidationError as error:
            raise errors.UnreachableError(f"{self._path}: spec: {error}") from error
        self._candidate = candidacy.saw(self._candidate, record, self._clock())
        return lease

    async def _written(self, lease: _Lease | None, record: candidacy.Record) -> _Lease:
        """The Lease with this record, if it is still what was read: else ApiError 409."""
        kept = lease or _Lease(metadata={"name": self._name, "namespace": self._namespace})
        body = msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": kept.metadata,
                "spec": candidacy.tree(record, kept.spec),
            }
        )
        # one that is not there is created by the same PUT, for which the right to create can be limited by name
        return self._decoded(await self._client.put(self._path, body))

    def _decoded(self, answer: bytes) -> _Lease:
        try:
            return _decode(answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.UnreachableError(f"{self._path}: not a Lease: {error}") from error

    async def _leave(self) -> None:
        """Give the Lease back, where it may be ours; whatever fails, it ends by itself."""
        if not self._bids:
            return
        try:
            self._kept = None
            async with asyncio.timeout(_LEAVE_SECONDS):
                lease = await self._read()  # a write whose answer was lost may have made it ours
                record = candidacy.vacant(self._candidate, self._stamp())
                if lease is not None and record is not None:
                    await self._written(lease, record)
                    self._candidate = candidacy.saw(self._candidate, record, self._clock())
                self._bids = False
        except (errors.ClusterError, TimeoutError) as error:
            _log.warning("lease not given back", extra={"fields": {"lease": self._name, "error": str(error)}})

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, errors.ApiError) and error.status in _OVERTAKEN:
            return  # somebody was faster: the next look shows who
        text = str(error) or f"{self._path}: no answer in time"
        if text != self._told:
            self._told = text
            fields = {"lease": self._name, "error": text, "fix": _fix(error, self._path)}
            _log.warning("lease not renewed" if self.leading else "lease not read", extra={"fields": fields})
        if isinstance(error, errors.ApiError) and error.status == _UNAUTHORIZED:
            try:
                await self._client.renew()
            except errors.ConfigurationError as unusable:
                _log.warning("credentials", extra={"fields": {"error": str(unusable)}})

    async def _pause(self) -> None:
        seconds = candidacy.pause(self._candidate, self._clock(), self._chance.random())
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            self._show()

    def _step_down(self) -> None:
        self._candidate = candidacy.stepped_down(self._candidate)
        self._show()

    def _show(self) -> None:
        """Tell of a change, once."""
        leading = self.leading
        if leading == self._shown:
            return
        self._shown = leading
        fields = {"lease": self._name, "identity": self.identity, "holder": self.holder}
        _log.info("leading" if leading else "no longer leading", extra={"fields": fields})
        self._changed(leading)

    def _stamp(self) -> str:
        return self._now().astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fix(error: Exception, path: str) -> str:
    if isinstance(error, errors.ApiError) and error.status == 403:
        return f"the account needs get, update and create on {path}: apply the roles of manifests/base"
    return "it is tried again; who leads stops when its time is up, and nobody leads until the API server answers"
