"""Computes the final scores of all candidate nodes: the node's own score plus the score of its leaf's locality tier."""

import operator
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import topology
from railwright.fabric.placement import ask, board, lone, outlook, planner
from railwright.fabric.placement.terms import locality


def of(question: ask.Ask, seen: outlook.Outlook, found: planner.Plan, gang: locality.GangStanding) -> dict[str, float]:
    """Return the score, 0..100, of each candidate node: its own score plus that of its leaf's locality tier."""
    current = seen.board
    if gang.completes:
        return lone.points(seen, current.points(locality.DUE), current.points(locality.PLANNED), gang.reserve)
    scores = _by_themselves(question, seen)
    if gang.due is None:
        return scores
    usable = [not stands.refusal for stands in current.standings]
    worth = [
        fits and (not gang.counted or found.worth(stands.grade))
        for fits, stands in zip(usable, current.standings, strict=True)
    ]
    for leaf, names in _leaves_in_play(current, gang):
        tier = locality.tier(leaf, gang)
        points = [current.points(tier)] * len(current.standings)
        if leaf == gang.due and gang.counted:
            spared = current.points(locality.PLANNED)
            points = [
                spared if stands.grade.reserve > gang.reserve else each
                for each, stands in zip(points, current.standings, strict=True)
            ]
        good: Sequence[bool] = worth if tier >= locality.PLANNED else usable
        for name in names:
            if name in scores and good[index := _index(seen, name)]:
                scores[name] += points[index]
    return scores


def _by_themselves(question: ask.Ask, seen: outlook.Outlook) -> dict[str, float]:
    """Return the score of each candidate node without locality."""
    current = seen.board
    try:
        found_points = operator.itemgetter(*question.nodes)(current.points_of) if len(question.nodes) > 1 else ()
        scores = dict(zip(question.nodes, found_points, strict=False))
    except KeyError:  # a candidate node is not in the cache
        scores = {}
    if len(scores) != len(question.nodes):
        scores = {name: current.points_of.get(name, 0.0) for name in question.nodes}
    for name, kind in seen.exceptions.items():
        if name in scores:
            scores[name] = current.base[kind]
    return scores


def least_reserve(supply: planner.Supply, due: topology.Domain, found: planner.Plan) -> int:
    """Return the lowest fill priority of the nodes in the target leaf that meet the plan."""
    grades = (supply.grades[kind] for kind, nodes in supply.leaves.get(due, {}).items() if nodes > 0)
    return min((grade.reserve for grade in grades if found.worth(grade)), default=locality.NO_RESERVE)


def _index(seen: outlook.Outlook, name: str) -> int:
    found = seen.index(name)
    return -1 if found is None else found


def _leaves_in_play(
    current: board.Board, gang: locality.GangStanding
) -> Iterable[tuple[topology.Domain, Mapping[str, None]]]:
    """Yield the leaves above the lowest tier, with their nodes: planned leaves, and leaves with the target's parent."""
    due, planned = gang.due, {gang.due, *gang.plan}
    for leaf, names in current.nodes.items():
        if due is not None and (leaf in planned or locality.is_beside(leaf, due)):
            yield leaf, names
