"""Selects the nodes that a single-pod job is planned on, in the order of `terms.completion`.

Partly used nodes come first. The leaf matters only if the pod needs an idle node, because that reduces a free leaf.
"""

from collections import Counter

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import outlook, planner


class Choice(msgspec.Struct, frozen=True):
    """The best nodes."""

    supply: planner.Supply  # capacity of these nodes only
    completes: bool  # these nodes are partly used
    bound: planner.Value  # highest modelled bandwidth of all offered nodes


def choose(view: outlook.Outlook) -> Choice | None:
    """Return the best of the offered nodes, or None if none has a slot."""
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
    """Score the candidate nodes: base score plus `first` up to this fill priority, plus `others` above it."""
    current, nodes = view.board, view.question.nodes
    totals: dict[int | None, float] = {None: 0.0}  # None: a node that the cache does not contain
    for kind, stands in enumerate(current.standings):
        tier = first if stands.grade.reserve <= reserve else others
        totals[kind] = 0.0 if stands.refusal else current.base[kind] + tier
    return dict(zip(nodes, map(totals.__getitem__, map(view.kinds().get, nodes)), strict=True))
