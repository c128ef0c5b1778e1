"""Where kube-scheduler has put pods whose bindings no watch has shown yet, inferred from what it offers the next pod.

kube-scheduler announces nothing, and asks for the next pod before the binding of the last one is written. But it keeps
the last pod's node from the next one: a single node that was offered to the last pod and not to the next has been
taken, where nothing else explains that it is missing. Other explanations are: the two pods are not alike or belong to
different schedulers, time has passed, the offer is a sample, somebody else is seen on the node, or the node cannot take
such a pod any more. What is inferred holds for seconds, and ends when somebody else is seen there: gangs are planned by
it, and Volcano does not get the very devices. kube-scheduler itself is refused no node for it.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement import eligibility, fleet, ledger

_KEPT = 1000  # pods; a scheduler that has one node to choose from asks nothing but filter
_SCHEDULERS = 64  # names of schedulers remembered; a cluster runs a few, and callers may write any
MOMENT = 0.5  # seconds in which a pod with one node to choose from is on its way there
NEXT = 1.0  # seconds between two pods in a row; what is missing later has had time for other causes
SECONDS = 5.0  # a binding takes milliseconds, unless volumes are bound before it


class Asked(msgspec.Struct, frozen=True):
    """A pod that a kube-scheduler asks about."""

    entry: ledger.Entry  # without its node; since: when it is asked about
    scheduler: str  # spec.schedulerName
    spec: views.PodSpec
    constraints: Hashable  # pods with equal ones and equal requests may go to the same nodes
    offered: frozenset[str]
    left: frozenset[str] = frozenset()  # of the offered nodes, those that our filter left


class Unseen:
    """The pods of kube-schedulers that are neither waiting nor seen bound."""

    def __init__(self) -> None:
        self._last: dict[str, Asked] = {}  # by scheduler
        self._placed: dict[str, ledger.Entry] = {}
        self._tried: dict[str, Hashable] = {}  # uid -> gang of pods that nodes were left to

    def asked(self, question: Asked, cluster: fleet.Fleet) -> None:
        """A pod is asked about: it is nowhere yet. Infer where the pod before it went."""
        entry = question.entry
        self._placed.pop(entry.uid, None)
        last = self._last.pop(question.scheduler, None)
        if last is not None and last.entry.uid == entry.uid and entry.since - last.entry.since <= NEXT:
            return  # the filter looks again; kube-scheduler itself does not try a pod again so soon
        if self._released(entry) and last is not None and last.entry.gang == entry.gang:
            return
        if last is None or not _comparable(last, question):
            return
        missing = last.left.difference(question.offered)
        if len(missing) != 1:
            return
        (node,) = missing
        if _could_take(cluster, node, question):
            self._placed[last.entry.uid] = msgspec.structs.replace(last.entry, node=node)
            _trim(self._placed, _KEPT)

    def left(self, question: Asked) -> None:
        """The filter has left these nodes to the pod that is asked about."""
        self._last[question.scheduler] = question
        _trim(self._last, _SCHEDULERS)
        if question.entry.gang:
            self._tried[question.entry.uid] = question.entry.gang
            _trim(self._tried, _KEPT)

    def taken(self, cluster: fleet.Fleet, now: float, *, but: str) -> Mapping[str, resources.Amounts]:
        """By node, what pods but this one take that are very likely there and that no watch has shown there."""
        there = [entry for entry in self._placed.values() if entry.uid != but and _is_open(entry, cluster, now)]
        for last in self._last.values():
            if last.entry.uid != but and len(last.left) == 1 and now - last.entry.since <= MOMENT:
                entry = msgspec.structs.replace(last.entry, node=min(last.left))
                bound = cluster.pods.get(entry.uid)
                there += [] if bound is not None and bound.node else [entry]
        amounts: dict[str, Counter[str]] = {}
        for entry in there:
            amounts.setdefault(entry.node, Counter()).update(entry.requests)
        return amounts

    @contextmanager
    def counted(self, book: ledger.Ledger, cluster: fleet.Fleet, now: float) -> Iterator[None]:
        """Within it the ledger holds these pods too; what is no longer likely is forgotten."""
        self._placed = {uid: entry for uid, entry in self._placed.items() if _is_open(entry, cluster, now)}
        lent = [entry for entry in self._placed.values() if book.entry(entry.uid) is None]
        for entry in lent:
            book.allocate(entry, ledger.KUBE_SCOPE)
        try:
            yield
        finally:
            for entry in lent:
                book.deallocate(entry.uid)

    def _released(self, entry: ledger.Entry) -> bool:
        """Whether this pod is asked about again; its gang has no places then that are not seen.

        A plugin that holds a gang's pods back until all have a node releases all of them where one has none.
        """
        if entry.uid not in self._tried:
            return False
        self._tried = {uid: gang for uid, gang in self._tried.items() if gang != entry.gang}
        self._placed = {uid: other for uid, other in self._placed.items() if other.gang != entry.gang}
        return True


def _comparable(last: Asked, question: Asked) -> bool:
    """Whether the two pods follow one another and would be offered the same nodes but for what the first one took."""
    return (
        0 <= question.entry.since - last.entry.since <= NEXT
        and last.constraints == question.constraints
        and last.entry.requests == question.entry.requests
        and question.offered <= last.offered
    )


def _could_take(cluster: fleet.Fleet, node: str, question: Asked) -> bool:
    """Whether the node could take the pod by what is seen bound there, so that nothing seen explains its absence."""
    seen = cluster.nodes.get(node)
    return (
        seen is not None
        and eligibility.is_eligible(seen, question.spec)
        and _has_room(cluster, node, question.entry.requests)
    )


def _is_open(entry: ledger.Entry, cluster: fleet.Fleet, now: float) -> bool:
    pod = cluster.pods.get(entry.uid)
    waits = pod is not None and not pod.node and now - entry.since <= SECONDS
    return waits and entry.node in cluster.nodes and _has_room(cluster, entry.node, entry.requests)


def _has_room(cluster: fleet.Fleet, node: str, requests: resources.Amounts) -> bool:
    free = cluster.free(node)
    return all(free[name] >= amount for name, amount in requests.items() if name in free)


def _trim(kept: dict[str, Any], most: int) -> None:
    """Forget the oldest."""
    if len(kept) > most:
        del kept[next(iter(kept))]
