"""A job of one pod among the nodes that it is offered: which of them come first.

Owns what of a cluster is left to plan on. What a node is worth to such a pod is told by `terms.completion`. A pod that
completes a node breaks no leaf, so its leaf matters only where a whole node has to be broken.
"""

from collections import Counter

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import outlook, planner


class Choice(msgspec.Struct, frozen=True):
    """The nodes that come first."""

    supply: planner.Supply  # of these nodes alone
    completes: bool  # they are in use already
    bound: planner.Value  # the most modelled bandwidth that any node offered could give


def choose(view: outlook.Outlook) -> Choice | None:
    """The nodes that come first of those offered; None where none has room."""
    standings, all_orders, nodes = view.board.standings, view.board.orders, view.question.nodes
    counts = Counter(zip(map(view.board.leaves.get, nodes), map(view.kinds().get, nodes), strict=True))
    kinds = {kind for _, kind in counts if kind is not None and standings[kind].grade.alignments}
    if not kinds:
        return None
    orders = {kind: all_orders[kind] for kind in kinds}
    first = min(orders.values())
    leaves: dict[topology.Domain, dict[int, int]] = {}
    for (leaf, kind), count in counts.items():
        if leaf is not None and kind is not None and orders.get(kind) == first:
            leaves.setdefault(leaf, {})[kind] = count
    return Choice(
        supply=outlook.supplied(view, leaves),
        completes=not any(standings[kind].grade.untouched for kind, order in orders.items() if order == first),
        bound=max(_bandwidth(standings[kind].grade) for kind in kinds),
    )


def _bandwidth(grade: planner.Grade) -> planner.Value:
    return grade.share(grade.rails) * max(grade.alignments)


def points(view: outlook.Outlook, first: float, others: float, reserve: int) -> dict[str, float]:
    """Every node's points where the pod completes one: `first` more for nodes of this reserve, `others` for others."""
    current, nodes = view.board, view.question.nodes
    totals: dict[int | None, float] = {None: 0.0}  # a node that the cache has not seen
    for kind, stands in enumerate(current.standings):
        tier = first if stands.grade.reserve <= reserve else others
        totals[kind] = 0.0 if stands.refusal else current.base[kind] + tier
    return dict(zip(nodes, map(totals.__getitem__, map(view.kinds().get, nodes)), strict=True))
