"""The best placement of one gang on what is free: the most modelled bandwidth, then the fewest leaves.

Exact, and independent of the planner's code, so that it can be the denominator. It tries bandwidths from the highest:
for each, the nodes that can give as much and the domains whose exit can carry as much are known, and in a tree it is
then a matter of counting whether the gang fits below some domain. Pods of a gang are equal; ranks are laid out domain
by domain, so each domain used has one ring edge out, which no other order can undercut.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.simulator import kubelet, model, world


class Best(msgspec.Struct, frozen=True):
    """The optimum of a gang."""

    value: float  # modelled bandwidth, 0..1
    hosts: tuple[int, ...]  # of each rank
    leaves: int


class Rooms(msgspec.Struct, frozen=True):
    """How many pods each host holds that are worth a bandwidth, and the sum of each leaf."""

    hosts: Mapping[int, int]
    leaves: Mapping[tuple[int, ...], int]  # whole chain of a leaf -> pods


def best(on: world.World, free: world.Free, pods: int) -> Best | None:
    """The optimum for a gang of so many pods; None when it does not fit. Of equals, one without NUMA splits."""
    found = _best(on, free, pods)
    if found is None or not any(grant.split for _, grant in model.from_free(free, found.hosts)):
        return found
    tidy = _best(on, _unsplit(free), pods)
    return tidy if tidy and tidy.value >= found.value and tidy.leaves <= found.leaves else found


def _best(on: world.World, free: world.Free, pods: int) -> Best | None:
    if free.total < pods:
        return None
    found: Best | None = None
    for rails in _rail_sets(free):
        for least in _thresholds(on, free, rails):
            if found is not None and least <= found.value:
                break
            rooms = rooms_for(on, free, least, rails)
            chosen = _fewest(on, free.demand, rooms, pods, least)
            if chosen is not None:
                found = _laid_out(on, free, rooms, chosen, pods)
                break
    return found


def rooms_for(on: world.World, free: world.Free, least: float, rails: frozenset[int] | None = None) -> Rooms:
    """Where pods that give at least so much can go."""
    hosts: dict[int, int] = {}
    leaves: dict[tuple[int, ...], int] = defaultdict(int)
    counts: dict[int, int] = {}  # grants are shared by equal hosts in equal states
    for index, grants in enumerate(free.grants):
        if not grants:
            continue
        room = counts.get(id(grants))
        if room is None:
            room = counts[id(grants)] = _prefix(grants, free.demand, least, rails)
        if room:
            hosts[index] = room
            leaves[on.hosts[index].chain] += room
    return Rooms(hosts, leaves)


def fewest_leaves(on: world.World, free: world.Free, pods: int) -> int:
    """The fewest leaves that hold a gang, whatever bandwidth that gives."""
    return _count(sorted(rooms_for(on, free, 0.0).leaves.values(), reverse=True), pods)


def holds_in_one_leaf(on: world.World, free: world.Free, pods: int, least: float) -> bool:
    """True when one leaf has room for the whole gang at no less than this bandwidth."""
    return any(room >= pods for rails in _rail_sets(free) for room in rooms_for(on, free, least, rails).leaves.values())


def unsplit(on: world.World, free: world.Free, pods: int, value: float, leaves: int) -> bool:
    """True when no pod need be over NUMA nodes without need, at no less bandwidth and on no more leaves."""
    found = _best(on, _unsplit(free), pods)
    return found is not None and found.value >= value and found.leaves <= leaves


def _unsplit(free: world.Free) -> world.Free:
    """The same moment without the grants from which on pods are split."""
    short = {id(each): tuple(itertools.takewhile(lambda grant: not grant.split, each)) for each in free.grants}
    grants = [short[id(each)] for each in free.grants]
    return world.Free(free.demand, grants, sum(map(len, grants)))


def _prefix(grants: Sequence[kubelet.Grant], demand: kubelet.Demand, least: float, rails: frozenset[int] | None) -> int:
    """Pods a host takes before one is worth less: kubelet's order cannot be chosen."""
    for count, grant in enumerate(grants):
        if rails is not None and not rails <= {rail for rail, _ in grant.uses}:
            return count
        if model.over(grants[: count + 1], rails, demand) < least:
            return count
    return len(grants)


def _rail_sets(free: world.Free) -> Sequence[frozenset[int] | None]:
    """The sets of rails that a gang may have in common: what hosts give, and what those share; None where any do."""
    if not free.demand.named:
        return (None,)
    given = {frozenset(rail for rail, _ in grant.uses) for grants in set(free.grants) for grant in grants}
    closed = set(given)
    fresh = given
    while fresh:
        fresh = {one & other for one in fresh for other in given} - closed
        closed |= fresh
    return sorted(closed, key=lambda rails: (-len(rails), sorted(rails)))


def _thresholds(on: world.World, free: world.Free, rails: frozenset[int] | None) -> Sequence[float]:
    """Every value a gang can have: a node's or a domain's exit's; the highest first."""
    values = {
        model.over(grants[:count], rails, free.demand)
        for grants in set(free.grants)
        for count in range(1, len(grants) + 1)
    }
    values |= {model.exit_of(on, free.demand, number) for number in range(len(on.domains))}
    return sorted(values, reverse=True)


def _fewest(
    on: world.World, demand: kubelet.Demand, rooms: Rooms, pods: int, least: float
) -> Sequence[tuple[int, ...]] | None:
    """The fewest leaves below one domain whose exits all carry `least`; None where no domain holds the gang so."""
    options = []
    for closeness, leaves in _options(on, demand, rooms, least):
        if sum(rooms.leaves[leaf] for leaf in leaves) >= pods:
            options.append((_cost(rooms, leaves, pods), closeness, leaves))
    if not options:
        return None
    _, _, leaves = min(options)
    return _tightest(rooms, leaves, pods)


def _options(
    on: world.World, demand: kubelet.Demand, rooms: Rooms, least: float
) -> Iterator[tuple[int, Sequence[tuple[int, ...]]]]:
    """(levels climbed, leaves) for every domain the gang may stay within, and for the whole fabric."""
    for leaf in rooms.leaves:
        yield 0, [leaf]
    for level in range(1, len(on.levels) + 1):
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
        for leaf in rooms.leaves:
            if all(model.exit_of(on, demand, domain) >= least for domain in leaf[:level]):
                groups[leaf[level:]].append(leaf)
        for leaves in groups.values():
            yield level, leaves


def _cost(rooms: Rooms, leaves: Sequence[tuple[int, ...]], pods: int) -> tuple[int, int]:
    """(leaves needed, room left over in them): fewest first, then the tightest."""
    sizes = sorted((rooms.leaves[leaf] for leaf in leaves), reverse=True)
    count = _count(sizes, pods)
    missing = pods - sum(sizes[: count - 1])
    last = min(size for size in sizes[count - 1 :] if size >= missing)
    return count, last - missing


def _count(sizes: Sequence[int], pods: int) -> int:
    """Leaves that hold so many pods, the largest first; 0 when all of them do not."""
    for count, size in enumerate(sizes, 1):
        pods -= size
        if pods <= 0:
            return count
    return 0


def _tightest(rooms: Rooms, leaves: Sequence[tuple[int, ...]], pods: int) -> Sequence[tuple[int, ...]]:
    order = sorted(leaves, key=lambda leaf: (-rooms.leaves[leaf], leaf))
    count = _count([rooms.leaves[leaf] for leaf in order], pods)
    missing = pods - sum(rooms.leaves[leaf] for leaf in order[: count - 1])
    last = min((leaf for leaf in order[count - 1 :] if rooms.leaves[leaf] >= missing), key=lambda x: rooms.leaves[x])
    return [*order[: count - 1], last]


def _laid_out(on: world.World, free: world.Free, rooms: Rooms, leaves: Sequence[tuple[int, ...]], pods: int) -> Best:
    """Ranks over the leaves domain by domain; in a leaf the nodes that hold most of the gang, then the fullest."""
    chosen = set(leaves)
    inside: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for host in rooms.hosts:
        leaf = on.hosts[host].chain
        if leaf in chosen:
            inside[leaf].append(host)
    hosts: list[int] = []
    filling = sorted(leaves, key=lambda leaf: tuple(reversed(leaf)))
    keep = min(leaves, key=lambda leaf: rooms.leaves[leaf])  # the last one taken: all others are filled
    spare = sum(rooms.leaves[leaf] for leaf in leaves) - pods
    for leaf in filling:
        take = rooms.leaves[leaf] - (spare if leaf == keep else 0)
        order = sorted(inside[leaf], key=lambda host: (sum(on.states[host][0]), host))
        slots = [host for host in order for _ in range(rooms.hosts[host])]
        hosts.extend(slots[:take])
    value = model.of_gang(on, free.demand, model.from_free(free, hosts))
    return Best(value.total, tuple(hosts), value.leaves)
