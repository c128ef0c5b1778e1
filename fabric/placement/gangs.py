"""Which leaves the rest of a gang should take, closest and fewest first.

Owns the plan: mates' leaves first, then one leaf that holds all that remain (the tightest such), then the fewest
leaves under the closest common domain. It sees rooms (how many more of these pods each leaf can hold) and nothing
of nodes, devices or scores. Solved anew for every pod, so it needs no memory (placement study, point 2).
"""

from collections.abc import Iterable, Mapping, Sequence

from fabric import topology

Rooms = Mapping[topology.Domain, int]
"""Leaf -> how many more pods of this gang it can hold."""


def plan(remaining: int, rooms: Rooms, mates: Sequence[topology.Domain]) -> tuple[topology.Domain, ...]:
    """The leaves for `remaining` more pods, in the order to fill them.

    `mates` are the leaves of the pods already placed, the mate nearest in rank first. Leaves without room are left
    out; when the room of the whole cluster does not suffice, all leaves are planned, the largest first.
    """
    chosen: dict[topology.Domain, None] = {}  # in order, and quick to ask
    for leaf in dict.fromkeys(mates):
        if remaining > 0 and rooms.get(leaf, 0) > 0:
            chosen[leaf] = None
            remaining -= rooms[leaf]
    if remaining > 0:
        fresh = {leaf: room for leaf, room in rooms.items() if room > 0 and leaf not in chosen}
        anchor = next((leaf for leaf in mates if leaf), None)
        chosen.update(dict.fromkeys(_fewest(remaining, fresh, anchor)))
    return tuple(chosen)


def _fewest(remaining: int, rooms: Rooms, anchor: topology.Domain | None) -> Sequence[topology.Domain]:
    """The best fresh leaves for what the mates' leaves cannot hold."""
    depth = max(map(len, rooms), default=0)
    for level in range(depth + 1):
        candidates = [
            _prefix(remaining, {leaf: rooms[leaf] for leaf in leaves})
            for leaves in _groups(rooms, level)
            if sum(rooms[leaf] for leaf in leaves) >= remaining
        ]
        if candidates:
            return min(candidates, key=lambda leaves: _cost(leaves, rooms, anchor))
    return sorted(rooms, key=lambda leaf: (leaf == topology.NOWHERE, -rooms[leaf], leaf))


def _groups(rooms: Rooms, level: int) -> Iterable[Sequence[topology.Domain]]:
    """Leaves by their common domain `level` steps up; nodes without a leaf label belong to none."""
    groups: dict[topology.Domain, list[topology.Domain]] = {}
    for leaf in rooms:
        if leaf != topology.NOWHERE:
            groups.setdefault(leaf[level:], []).append(leaf)
    return groups.values()


def _prefix(remaining: int, rooms: Rooms) -> Sequence[topology.Domain]:
    """The fewest leaves that hold `remaining`: the largest first, the last one the tightest that suffices."""
    order = sorted(rooms, key=lambda leaf: (-rooms[leaf], leaf))
    for taken, leaf in enumerate(order):
        if rooms[leaf] >= remaining:
            enough = [other for other in order[taken:] if rooms[other] >= remaining]
            return [*order[:taken], min(enough, key=lambda other: (rooms[other], other))]
        remaining -= rooms[leaf]
    return order


def _cost(
    leaves: Sequence[topology.Domain], rooms: Rooms, anchor: topology.Domain | None
) -> tuple[int, int, int, Sequence[topology.Domain]]:
    """Fewest leaves, then closest to the mates, then the tightest fit, then by name."""
    away = topology.distance(anchor, leaves[0]) if anchor else 0
    return len(leaves), away, sum(rooms[leaf] for leaf in leaves), leaves
