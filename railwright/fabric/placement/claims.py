"""Soft reservations: keeps a gang off the leaves planned for other gangs, if that does not make its plan worse.

Schedulers that place pod by pod interleave the pods of two jobs. Without reservations each job takes half of the leaf
that is tightest for both. A reservation filters no node and lasts only while its gang has unplaced pods. It is ignored
if it would cost this gang bandwidth, node type, leaves or spines.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology, workload
from railwright.fabric.placement import crew, fleet, ledger, planner

_KEPT = 32  # most recently planned gangs

Nodes = Mapping[topology.Domain, int]
"""Leaf -> number of its nodes that are reserved for a gang."""


class Claims:
    """The reservations of the most recently planned gangs."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._state = state
        self._book = book
        self._kept: OrderedDict[workload.GangKey, Nodes] = OrderedDict()

    def put(self, gang: workload.GangKey, remaining: int, plan: planner.Plan, per_node: int) -> None:
        """Reserve the planned leaves for the unplaced pods of a gang, including the requesting pod."""
        self._kept.pop(gang, None)
        if not gang or not plan.complete:
            return
        taken: dict[topology.Domain, int] = {}
        for leaf in plan.leaves:
            share = min(remaining, plan.rooms[leaf])
            if share:
                taken[leaf] = -(-share // max(1, per_node))
            remaining -= share
        self._kept[gang] = taken
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def drop(self, gang: workload.GangKey) -> None:
        """Drop the reservation of a gang, after its scheduler rolled back."""
        self._kept.pop(gang, None)

    def solved(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        gang: workload.GangKey,
        found: planner.Plan,
        members: crew.Crew,
        supply: planner.Supply,
        mates: planner.Mates,
        leaf_of: Mapping[str, topology.Domain],
    ) -> planner.Plan:
        """Return an equally good plan that respects the reservations of other gangs, otherwise the given plan."""
        others = self._of_others(gang)
        if others.keys().isdisjoint(found.leaves) or not found.complete:
            return found
        leaves = {leaf: _without(kinds, others.get(leaf, 0), supply) for leaf, kinds in supply.leaves.items()}
        rest = msgspec.structs.replace(supply, leaves=leaves)
        apart = planner.solve(members.remaining, rest, mates)
        ring = [leaf_of.get(node, topology.NOWHERE) for _, _, node in members.ring]
        if not apart.complete or not _as_good(apart, found, ring):
            return found
        return msgspec.structs.replace(apart, least=found.least, least_with_mates=found.least_with_mates)

    def _of_others(self, gang: workload.GangKey) -> Nodes:
        nodes: dict[topology.Domain, int] = {}
        for other, taken in list(self._kept.items()):
            if other == gang:
                continue
            waiting = sum(1 for _ in crew.unplaced(other, self._state, self._book))
            if not waiting:
                del self._kept[other]
            for leaf, count in taken.items():
                if waiting:
                    nodes[leaf] = nodes.get(leaf, 0) + min(count, waiting)
        return nodes


def _as_good(apart: planner.Plan, found: planner.Plan, mates: Sequence[topology.Domain]) -> bool:
    """True if `apart` is as good as `found`. `mates` are the leaves of the placed peers by rank."""
    return (
        apart.bandwidth >= found.bandwidth
        and _spread(apart, mates) <= _spread(found, mates)
        and _returns(apart, mates) <= _returns(found, mates)
        and (found.shape is None or apart.shape is not None)
    )


def _returns(plan: planner.Plan, mates: Sequence[topology.Domain]) -> int:
    """Return how often the ring re-enters a domain, if the planned leaves follow those of the peers in order."""
    order = [*mates, *plan.leaves]
    returns = 0
    for level in range(max(map(len, order), default=0)):
        domains = [leaf[level:] for leaf in order]
        entered = sum(here != before for before, here in zip([domains[-1], *domains[:-1]], domains, strict=True))
        returns += max(0, entered - len(set(domains)))
    return returns


def _spread(plan: planner.Plan, mates: Sequence[topology.Domain]) -> tuple[int, ...]:
    """Return the number of leaves, of spines, and so on, that the gang would use, including those of its peers."""
    leaves = {*plan.leaves, *mates} - {topology.NOWHERE}
    return tuple(len({leaf[level:] for leaf in leaves}) for level in range(max(map(len, leaves), default=0)))


def _without(kinds: Mapping[int, int], claimed: int, supply: planner.Supply) -> Mapping[int, int]:
    """Remove `claimed` nodes with free slots from the leaf's class counts."""
    if not claimed:
        return kinds
    left = dict(kinds)
    for kind in sorted(left, key=lambda kind: -len(supply.grades[kind].alignments)):
        if supply.grades[kind].alignments:
            gone = min(claimed, left[kind])
            left[kind] -= gone
            claimed -= gone
    return left
