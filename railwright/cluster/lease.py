"""Leader election among replicas by a Lease of the API server.

The rules are those of client-go, as functions on values without network or clock. The times in a record come from other
clocks and are informational: a candidate waits a lease's full duration by its own clock, from the moment at which it
observed a change. A holder stops earlier than that, counted from before its last successful write was sent. So there
are never two leaders, as long as no clock runs 1.5 times as fast as another.

`Election` sends the requests, with deadlines, and reports changes. `leading` compares clocks, so it becomes False in
time even if this process was suspended or the API server does not answer.
"""

import asyncio
import datetime as dt
import logging
import math
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors

NEVER = -math.inf


class Timings(msgspec.Struct, frozen=True):
    """Times in seconds. The defaults are client-go's (tools/leaderelection, as kube-scheduler sets them)."""

    duration: float = 15.0  # other candidates wait this long after the last change they observed
    renew: float = 10.0  # the holder stops this long after its last successful write
    retry: float = 2.0  # polling interval, extended by up to a fifth

    def __post_init__(self) -> None:
        """Raise ValueError for times with which two could lead at once, or none for long."""
        if not (0 < 2 * self.retry <= self.renew < self.duration):
            raise ValueError(f"{self}: duration must be longer than renew, and renew twice as long as retry or longer")


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Lease's spec (coordination.k8s.io/v1) that an election reads and writes."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Candidate(msgspec.Struct, frozen=True):
    """The state of one candidate."""

    identity: str
    timings: Timings
    record: Record | None = None  # as last observed; None if no Lease was ever observed
    seen: float = NEVER  # local time at which the record was first observed
    until: float = NEVER  # local time until which this candidate leads


def is_leader(candidate: Candidate, now: float) -> bool:
    """True while no other candidate can have acquired the Lease."""
    return now < candidate.until


def observe(candidate: Candidate, record: Record | None, now: float) -> Candidate:
    """Return the state after reading the Lease. `now` is the time after the response, so that the wait is never too
    short.

    `record` None means that there is no Lease. A deleted Lease still blocks until it would have expired, because its
    holder may not have noticed.
    """
    until = candidate.until if record and record.holder_identity == candidate.identity else NEVER
    if record is None or record == candidate.record:
        return msgspec.structs.replace(candidate, until=until)
    return msgspec.structs.replace(candidate, record=record, seen=now, until=until)


def get_expiry(candidate: Candidate) -> float:
    """Return the local time at which this candidate may acquire the Lease; NEVER if no other candidate holds it."""
    record = candidate.record
    if record is None or not record.holder_identity or record.holder_identity == candidate.identity:
        return NEVER
    return candidate.seen + max(1, record.lease_duration_seconds or math.ceil(candidate.timings.duration))


def propose(candidate: Candidate, now: float, stamp: str) -> Record | None:
    """Return the record to write to acquire or renew the Lease; None while another candidate may hold it.

    `stamp` is the time to write into the record.
    """
    if now < get_expiry(candidate):
        return None
    held = candidate.record or Record()
    mine = held.holder_identity == candidate.identity
    transitions = held.lease_transitions or 0
    return Record(
        holder_identity=candidate.identity,
        lease_duration_seconds=math.ceil(candidate.timings.duration),
        acquire_time=held.acquire_time if mine else stamp,
        renew_time=stamp,
        lease_transitions=transitions if mine or candidate.record is None else transitions + 1,
    )


def acquire(candidate: Candidate, record: Record, sent: float, now: float) -> Candidate:
    """Return the state after a successful write; `sent` is the time before the request."""
    return msgspec.structs.replace(candidate, record=record, seen=now, until=sent + candidate.timings.renew)


def step_down(candidate: Candidate) -> Candidate:
    """Return the state of a candidate that no longer leads, whatever the record contains."""
    return msgspec.structs.replace(candidate, until=NEVER)


def release(candidate: Candidate, stamp: str) -> Record | None:
    """Return the record that releases the Lease, so that others need not wait; None if another candidate holds it."""
    record = candidate.record
    if record is None or record.holder_identity != candidate.identity:
        return None
    return msgspec.structs.replace(record, holder_identity="", lease_duration_seconds=1, renew_time=stamp)


def compute_pause(candidate: Candidate, now: float, jitter: float) -> float:
    """Return the seconds until the next poll, at most until the next deadline; `jitter` from 0 to 1 adds jitter."""
    retry = candidate.timings.retry * (1 + jitter / 5)
    due = candidate.until if is_leader(candidate, now) else get_expiry(candidate)
    return min(retry, due - now) if due > now else retry


def merge_spec(record: Record, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Lease's spec with this record; fields that others wrote are kept."""
    own: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in {**spec, **own}.items() if value is not None}


# --- the requests of a candidate ----------------------------------------------------------------------------


_GROUP = "/apis/coordination.k8s.io/v1"
_UNAUTHORIZED, _NOT_FOUND = 401, 404
# 422 for a Lease that was to be created but exists by now: the request has no version
_CONFLICTS = frozenset({409, 422})
_RELEASE_SECONDS = 1.0  # to release the Lease; otherwise it expires
_log = logging.getLogger("railwright.cluster")


class _Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_decode = msgspec.json.Decoder(_Lease).decode


def create_identity(pod: str) -> str:
    """Return a name unique to this process, also after a restart: `pod` and eight random characters."""
    return f"{pod}_{secrets.token_hex(4)}"


def read_uptime() -> float:
    """Return seconds of a monotonic clock that includes the time in which the machine was suspended."""
    suspended = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.monotonic() if suspended is None else time.clock_gettime(suspended)


class Election:
    """One candidate. `run` takes part in the election; `leading` is True while it leads."""

    def __init__(  # noqa: PLR0913 - parameters that tests vary are given by name
        self,
        client: clients.Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timings: Timings | None = None,
        changed: Callable[[bool], None] = lambda _leading: None,
        eligible: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = read_uptime,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        jitter: random.Random | None = None,
    ) -> None:
        """`changed` is called on the loop with True and False in turn, with False as soon as the lease ends.

        A candidate that is not `eligible` does not take part, and releases the Lease.
        """
        self._client, self._changed, self._clock, self._now = client, changed, clock, now
        self._eligible = eligible
        self._name, self._path = name, f"{_GROUP}/namespaces/{namespace}/leases/{name}"
        self._namespace = namespace
        self._timings = timings or Timings()
        self._candidate = Candidate(identity=identity, timings=self._timings)
        self._jitter = jitter or random.Random()  # noqa: S311 - jitter, not secrecy
        self._last_written: _Lease | None = None  # our own last write, so the next one needs no read before it
        self._leaving = asyncio.Event()
        self._may_hold = False  # a write of ours may have succeeded, so we may hold the Lease
        self._reported_leading = False
        self._last_error = ""

    @property
    def identity(self) -> str:
        """Name of this candidate in the Lease."""
        return self._candidate.identity

    @property
    def leading(self) -> bool:
        """True while no other candidate can lead."""
        return is_leader(self._candidate, self._clock())

    @property
    def holder(self) -> str:
        """Holder of the Lease when it was last read; "" for nobody or unknown."""
        record = self._candidate.record
        return (record.holder_identity or "") if record else ""

    @property
    def term(self) -> int:
        """Number of changes of the holder when the Lease was last read; constant while nobody else led."""
        record = self._candidate.record
        return (record.lease_transitions or 0) if record else 0

    def resign(self) -> None:
        """Stop leading now; `run` releases the Lease so that another candidate takes it at once."""
        self._leaving.set()
        self._step_down()

    async def run(self) -> None:
        """Take part in the election until cancelled, then release the Lease."""
        try:
            while not self._leaving.is_set():
                if self._eligible():
                    await self._try_once()
                elif self.holder == self.identity:
                    self._step_down()
                    await self._release()
                await self._pause()
            await self._release()
            await asyncio.Event().wait()
        finally:
            self._step_down()
            await self._release()

    async def _try_once(self) -> None:
        """Try once to acquire or renew the Lease."""
        try:
            await self._try_acquire()
            self._last_error = ""
        except (errors.ClusterError, TimeoutError) as error:
            self._last_written = None
            await self._handle_failure(error)
        self._report_change()

    def _limit_call(self) -> asyncio.Timeout:
        """Return the timeout of one call: half the renewal time; for a leader at most until its lease ends."""
        seconds, left = self._timings.renew / 2, self._candidate.until - self._clock()
        return asyncio.timeout(min(seconds, left) if left > 0 else seconds)

    async def _try_acquire(self) -> None:
        lease = self._last_written
        if lease is None:
            async with self._limit_call():
                lease = await self._read()
            self._report_change()
        record = propose(self._candidate, self._clock(), self._format_now())
        if record is None:
            return
        sent, self._may_hold = self._clock(), True
        async with self._limit_call():
            self._last_written = await self._write_lease(lease, record)
        if not self._leaving.is_set():
            self._candidate = acquire(self._candidate, record, sent, self._clock())

    async def _read(self) -> _Lease | None:
        try:
            lease = self._decode_lease(await self._client.get(self._path))
            record = msgspec.convert(lease.spec, Record)
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._candidate = observe(self._candidate, None, self._clock())
            return None
        except msgspec.ValidationError as error:
            raise errors.UnreachableError(f"{self._path}: spec: {error}") from error
        self._candidate = observe(self._candidate, record, self._clock())
        return lease

    async def _write_lease(self, lease: _Lease | None, record: Record) -> _Lease:
        """Write the record if the Lease is unchanged since it was read. Raises ApiError 409 otherwise."""
        base = lease or _Lease(metadata={"name": self._name, "namespace": self._namespace})
        body = msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": base.metadata,
                "spec": merge_spec(record, base.spec),
            }
        )
        # the same PUT creates a missing Lease, because RBAC can limit it by name
        return self._decode_lease(await self._client.put(self._path, body))

    def _decode_lease(self, answer: bytes) -> _Lease:
        try:
            return _decode(answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.UnreachableError(f"{self._path}: not a Lease: {error}") from error

    async def _release(self) -> None:
        """Release the Lease if we may hold it; if this fails, it expires."""
        if not self._may_hold:
            return
        try:
            self._last_written = None
            async with asyncio.timeout(_RELEASE_SECONDS):
                lease = await self._read()  # a write with a lost response may have succeeded
                record = release(self._candidate, self._format_now())
                if lease is not None and record is not None:
                    await self._write_lease(lease, record)
                    self._candidate = observe(self._candidate, record, self._clock())
                self._may_hold = False
        except (errors.ClusterError, TimeoutError) as error:
            _log.warning("lease not released", extra={"fields": {"lease": self._name, "error": str(error)}})

    async def _handle_failure(self, error: Exception) -> None:
        if isinstance(error, errors.ApiError) and error.status in _CONFLICTS:
            return  # another candidate was faster; the next poll shows which
        text = str(error) or f"{self._path}: no answer in time"
        if text != self._last_error:
            self._last_error = text
            fields = {"lease": self._name, "error": text, "fix": _suggest_fix(error, self._path)}
            _log.warning("lease not renewed" if self.leading else "lease not read", extra={"fields": fields})
        if isinstance(error, errors.ApiError) and error.status == _UNAUTHORIZED:
            try:
                await self._client.renew()
            except errors.ConfigurationError as unusable:
                _log.warning("credentials", extra={"fields": {"error": str(unusable)}})

    async def _pause(self) -> None:
        seconds = compute_pause(self._candidate, self._clock(), self._jitter.random())
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            self._report_change()

    def _step_down(self) -> None:
        self._candidate = step_down(self._candidate)
        self._report_change()

    def _report_change(self) -> None:
        """Report a change of leadership once."""
        leading = self.leading
        if leading == self._reported_leading:
            return
        self._reported_leading = leading
        fields = {"lease": self._name, "identity": self.identity, "holder": self.holder}
        _log.info("leading" if leading else "no longer leading", extra={"fields": fields})
        self._changed(leading)

    def _format_now(self) -> str:
        return self._now().astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _suggest_fix(error: Exception, path: str) -> str:
    if isinstance(error, errors.ApiError) and error.status == 403:
        rights = f"get, update and create on {path}"
        return f"the account needs {rights}: apply the roles and bindings of the installation again"
    return "retried automatically; the leader stops when its lease ends, and nobody leads until the API server answers"
