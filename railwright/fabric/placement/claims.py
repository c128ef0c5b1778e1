"""Leaves that other gangs, still being placed, are planned into: left to them where that costs this gang nothing.

Schedulers that place pod by pod mix the pods of two jobs; each job would take half of the leaf that was tightest for
both. Nothing is committed here: a claim refuses no node, lasts only while pods of its gang wait, and gives way wherever
this gang would have less bandwidth, another node type, more leaves or more spines without it.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology, workload
from railwright.fabric.placement import crew, fleet, ledger, planner

_KEPT = 32  # gangs asked about lately

Nodes = Mapping[topology.Domain, int]
"""Leaf -> nodes that a gang is planned to take of it."""


class Claims:
    """The leaves of the plans made lately."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._state = state
        self._book = book
        self._kept: OrderedDict[workload.GangKey, Nodes] = OrderedDict()

    def put(self, gang: workload.GangKey, remaining: int, plan: planner.Plan, per_node: int) -> None:
        """What the rest of a gang is planned to take, the asking pod too."""
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
        """What a gang was planned to take is void: its scheduler took it back, and will ask anew."""
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
        """The plan, or one as good that leaves to other gangs what they are planned to take."""
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
    """Whether a plan costs no more than another; `mates` are the leaves of those placed, by rank."""
    return (
        apart.bandwidth >= found.bandwidth
        and _spread(apart, mates) <= _spread(found, mates)
        and _returns(apart, mates) <= _returns(found, mates)
        and (found.shape is None or apart.shape is not None)
    )


def _returns(plan: planner.Plan, mates: Sequence[topology.Domain]) -> int:
    """How often the ring would come back to a domain it has left, if ranks follow the mates' in the plan's order."""
    order = [*mates, *plan.leaves]
    returns = 0
    for level in range(max(map(len, order), default=0)):
        domains = [leaf[level:] for leaf in order]
        entered = sum(here != before for before, here in zip([domains[-1], *domains[:-1]], domains, strict=True))
        returns += max(0, entered - len(set(domains)))
    return returns


def _spread(plan: planner.Plan, mates: Sequence[topology.Domain]) -> tuple[int, ...]:
    """Leaves, spines and so on that the gang would be on, its mates' own among them: leaving those is not free."""
    leaves = {*plan.leaves, *mates} - {topology.NOWHERE}
    return tuple(len({leaf[level:] for leaf in leaves}) for level in range(max(map(len, leaves), default=0)))


def _without(kinds: Mapping[int, int], claimed: int, supply: planner.Supply) -> Mapping[int, int]:
    """The nodes of a leaf without so many that have room."""
    if not claimed:
        return kinds
    left = dict(kinds)
    for kind in sorted(left, key=lambda kind: -len(supply.grades[kind].alignments)):
        if supply.grades[kind].alignments:
            gone = min(claimed, left[kind])
            left[kind] -= gone
            claimed -= gone
    return left
