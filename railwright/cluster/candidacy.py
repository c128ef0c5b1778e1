"""The rules of leader election for one candidate of a Lease, as pure values without network or clock.

The rules are those of client-go. The times in a record come from other clocks and are informational: a candidate
waits a lease's full duration by its own clock, from the moment at which it observed a change. A holder stops earlier
than that, counted from before its last successful write was sent. So there are never two leaders, as long as no clock
runs 1.5 times as fast as another.
"""

import math
from typing import Any

import msgspec

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
