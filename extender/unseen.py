"""Where kube-scheduler has put pods whose bindings no watch has shown yet, told from what it offers the next pod.

kube-scheduler announces nothing, and asks for the next pod before the binding of the last one is written. But it holds
the last pod's node back from the next: a single node that was offered then and is not now has very likely been taken.
That is a hint, and it holds for seconds: gangs are planned by it, and Volcano is asked to look again where it would
take the very device. kube-scheduler itself is refused no node for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from fabric import resources
from fabric.placement import fleet, ledger

SCOPE = "/scheduler"  # no name of a Volcano instance holds a slash (ruling 25)
_KEPT = 1000  # pods; a scheduler that has one node to choose from asks nothing but filter
MOMENT = 0.5  # seconds in which a pod with one node to choose from is on its way there
SECONDS = 5.0  # a binding takes milliseconds, unless volumes are bound before it


class _Asked(msgspec.Struct, frozen=True):
    """The last pod asked about, and the nodes left to it."""

    entry: ledger.Entry  # without its node
    nodes: frozenset[str]


class Unseen:
    """The pods of one kube-scheduler that are neither waiting nor seen bound."""

    def __init__(self) -> None:
        self._last: _Asked | None = None
        self._placed: dict[str, ledger.Entry] = {}

    def asked(self, uid: str, nodes: Collection[str], now: float) -> None:
        """A pod is asked about: it is nowhere yet, and the pod before it went to what is missing of its nodes."""
        self._placed.pop(uid, None)
        last, self._last = self._last, None
        if last is None or last.entry.uid == uid:
            return
        missing = last.nodes.difference(nodes)
        if len(missing) == 1:
            self._placed[last.entry.uid] = msgspec.structs.replace(last.entry, node=min(missing), since=now)
            if len(self._placed) > _KEPT:
                del self._placed[next(iter(self._placed))]

    def left(self, entry: ledger.Entry, nodes: Iterable[str]) -> None:
        """These nodes were left to the pod that is asked about."""
        self._last = _Asked(entry=entry, nodes=frozenset(nodes))

    def beside(self, node: str, pods: Mapping[str, fleet.FleetPod], now: float) -> resources.Amounts:
        """What is taken of a node by pods that are very likely there and that no watch has shown there."""
        there = [each for uid, each in self._placed.items() if each.node == node and _open(each, pods.get(uid), now)]
        last = self._last
        if last is not None and last.nodes == {node} and now - last.entry.since <= MOMENT:
            pod = pods.get(last.entry.uid)
            there += [] if pod is not None and pod.node else [last.entry]
        taken: Counter[str] = Counter()
        for each in there:
            taken.update(each.requests)
        return taken

    @contextmanager
    def counted(self, book: ledger.Ledger, pods: Mapping[str, fleet.FleetPod], now: float) -> Iterator[None]:
        """Within it the ledger holds these pods too; what the cluster shows by now is forgotten."""
        self._placed = {uid: each for uid, each in self._placed.items() if _open(each, pods.get(uid), now)}
        lent = [each for uid, each in self._placed.items() if book.entry(uid) is None]
        for entry in lent:
            book.allocate(entry, SCOPE)
        try:
            yield
        finally:
            for entry in lent:
                book.deallocate(entry.uid)


def _open(entry: ledger.Entry, pod: fleet.FleetPod | None, now: float) -> bool:
    return pod is not None and not pod.node and now - entry.since <= SECONDS
