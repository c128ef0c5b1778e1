"""Who may lead, as one candidate for a Lease sees it: pure values, no network and no clock of its own.

Owns the rules of client-go's leader election. The times in a record were written by other clocks and are for people:
a candidate waits a lease's whole duration by its own clock, from the moment at which it saw the record change. A holder
stops sooner than that, counted from before its last good write was sent. So there are never two, as long as no clock
runs half as fast again as another.
"""

import math
from typing import Any

import msgspec

NEVER = -math.inf


class Timings(msgspec.Struct, frozen=True):
    """Seconds. Defaults are client-go's (tools/leaderelection, as kube-scheduler sets them)."""

    duration: float = 15.0  # others wait so long after the last change they saw
    renew: float = 10.0  # the holder stops so long after its last good write
    retry: float = 2.0  # between two looks, and up to a fifth more

    def __post_init__(self) -> None:
        """Raises ValueError for timings by which two could lead at once, or none for long."""
        if not (0 < 2 * self.retry <= self.renew < self.duration):
            raise ValueError(f"{self}: duration must be longer than renew, and renew twice as long as retry or longer")


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a Lease (coordination.k8s.io/v1), as far as an election reads and writes it."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Candidate(msgspec.Struct, frozen=True):
    """What one candidate knows."""

    identity: str
    timings: Timings
    record: Record | None = None  # as last seen; None: none was ever there
    seen: float = NEVER  # when that was new, by the local clock
    until: float = NEVER  # leads before this, by the local clock


def leads(candidate: Candidate, now: float) -> bool:
    """True while nobody else can have taken the Lease."""
    return now < candidate.until


def saw(candidate: Candidate, record: Record | None, now: float) -> Candidate:
    """After reading the Lease; `now` is from after the answer came, so that a holder is never waited for too short.

    None means that there is none. One that was seen and is gone is waited for as if it were there: its holder may not
    have noticed.
    """
    until = candidate.until if record and record.holder_identity == candidate.identity else NEVER
    if record is None or record == candidate.record:
        return msgspec.structs.replace(candidate, until=until)
    return msgspec.structs.replace(candidate, record=record, seen=now, until=until)


def expires(candidate: Candidate) -> float:
    """When this candidate may take the Lease, by the local clock; NEVER waits where nobody else holds it."""
    record = candidate.record
    if record is None or not record.holder_identity or record.holder_identity == candidate.identity:
        return NEVER
    return candidate.seen + max(1, record.lease_duration_seconds or math.ceil(candidate.timings.duration))


def bid(candidate: Candidate, now: float, stamp: str) -> Record | None:
    """What to write in order to lead, or to lead on; None while somebody else may. `stamp` is the time, for people."""
    if now < expires(candidate):
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


def won(candidate: Candidate, record: Record, sent: float, now: float) -> Candidate:
    """After a good write; `sent` is from before it went out."""
    return msgspec.structs.replace(candidate, record=record, seen=now, until=sent + candidate.timings.renew)


def stepped_down(candidate: Candidate) -> Candidate:
    """Leads no more, whatever the record says."""
    return msgspec.structs.replace(candidate, until=NEVER)


def vacant(candidate: Candidate, stamp: str) -> Record | None:
    """What to write so that the next one need not wait; None where this candidate is not the holder."""
    record = candidate.record
    if record is None or record.holder_identity != candidate.identity:
        return None
    return msgspec.structs.replace(record, holder_identity="", lease_duration_seconds=1, renew_time=stamp)


def pause(candidate: Candidate, now: float, chance: float) -> float:
    """Seconds until the next look; `chance` is from 0 to 1. No later than the moment at which something is due."""
    retry = candidate.timings.retry * (1 + chance / 5)
    due = candidate.until if leads(candidate, now) else expires(candidate)
    return min(retry, due - now) if due > now else retry


def tree(record: Record, spec: dict[str, Any]) -> dict[str, Any]:
    """A Lease's spec with this record in it; what others wrote beside it stays."""
    own: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in {**spec, **own}.items() if value is not None}
