"""The NUMA nodes of a node: what is free on each, and whether a pod's rails can be had beside its accelerators.

Owns where devices are (by a node shape or a NodeResourceTopology), what bound pods have taken of them (ruling 22) and
the best place for a pod. Amounts in milli-units. Of processors and memory it knows nothing, nor what kubelet's
topology manager would refuse: that is `kubelet`'s. The arithmetic of pairing is in `pairs`.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement import pairs
from railwright.fabric.policy import model

Pairs = tuple[tuple[str, int], ...]
"""(resource, milli-units), sorted by resource."""


class Zone(msgspec.Struct, frozen=True):
    """One NUMA node of a node: its accelerators and the resources of rails. One with 0 is there, and taken or dead."""

    node: int
    free: Pairs


Zones = tuple[Zone, ...]
"""The NUMA nodes by number; () where nothing is known of them."""


class Want(msgspec.Struct, frozen=True):
    """What one pod asks."""

    accelerators: Pairs
    pools: Pairs  # of the resources of its rails


class Spot(msgspec.Struct, frozen=True):
    """A place for one pod.

    A resource that no NUMA node names is not judged, for nothing is known of where it is: its devices count as local
    and are not in `taken`. Whether the node has it at all is the business of `rails`.
    """

    aligned: bool  # every rail is beside the accelerators it serves: in one NUMA node, or in matching pairs
    local: int  # of the rail devices wanted, how many are
    taken: Zones  # what the pod takes of each NUMA node
    zones: tuple[int, ...]  # the NUMA nodes it uses


# --- where devices are ------------------------------------------------------------------------------------


def of_shape(
    shape: model.NodeShape, rails: Sequence[model.Rail], allocatable: resources.Amounts, accelerators: Sequence[str]
) -> Zones:
    """All that the node has, nothing taken, by the shape's GPU indexes and rails; () where it says nothing of them.

    What is allocatable of a resource is divided by how many of its GPUs, or of the rails that draw on it, each NUMA
    node has. A rail that is dead (allocatable 0 or absent) is named with 0; one that the shape has nowhere is not.
    """
    numa = sorted(shape.numa, key=lambda each: each.node)
    weights = {name: [len(each.gpus) for each in numa] for name in accelerators if name in allocatable}
    for resource in dict.fromkeys(rail.resource for rail in rails if rail.resource):
        drawing = {rail.name for rail in rails if rail.resource == resource}
        weights[resource] = [len(drawing.intersection(each.rails)) for each in numa]
    free: list[dict[str, int]] = [{} for _ in numa]
    for resource, by in weights.items():
        for here, share, weight in zip(free, _divided(allocatable.get(resource, 0), by), by, strict=True):
            if weight:
                here[resource] = share
    return _known((each.node, here) for each, here in zip(numa, free, strict=True))


def of_topology(found: views.NodeResourceTopology, names: Collection[str]) -> Zones:
    """What the object says is available now of these resources, by its zones of type Node."""
    return _reported(found, names, lambda each: each.available if each.available is not None else each.allocatable)


def whole(found: views.NodeResourceTopology, names: Collection[str]) -> Zones:
    """What the object says is allocatable: all, nothing taken."""
    return _reported(found, names, lambda each: each.allocatable)


def capacity(found: views.NodeResourceTopology, names: Collection[str]) -> Zones:
    """What the object says is there, devices that are not healthy included."""
    return _reported(found, names, lambda each: each.capacity or each.allocatable)


def completed(zones: Zones, by: Zones) -> Zones:
    """The zones, and from others the resources that they name nowhere: an exporter need not report all."""
    names = {name for zone in zones for name, _ in zone.free}
    free = {zone.node: dict(zone.free) for zone in zones}
    for zone in by:
        free.setdefault(zone.node, {}).update((name, amount) for name, amount in zone.free if name not in names)
    return _known(free.items())


def _reported(
    found: views.NodeResourceTopology, names: Collection[str], amount: Callable[[views.ZoneResource], views.Written]
) -> Zones:
    zones: dict[int, dict[str, int]] = {}
    for zone in found.zones:
        node = node_of(zone)
        if node is not None and node not in zones:
            written = {each.name: amount(each) for each in zone.resources if each.name in names}
            zones[node] = {name: max(0, milli) for name, milli in resources.amounts(written).items()}
    return _known(zones.items())


_NAME = re.compile(r"node-(\d{1,4})", re.ASCII)  # as NFD and the resource-topology-exporter name a NUMA node


def node_of(zone: views.TopologyZone) -> int | None:
    """The number of a NUMA node; None for a zone that is none (a socket, a die)."""
    match = _NAME.fullmatch(zone.name) if zone.type == "Node" else None
    return int(match[1]) if match else None


def _known(zones: Iterable[tuple[int, Mapping[str, int]]]) -> Zones:
    found = tuple(Zone(node, tuple(sorted(free.items()))) for node, free in sorted(zones, key=lambda each: each[0]))
    return found if any(zone.free for zone in found) else ()


def _divided(amount: int, weights: Sequence[int]) -> Sequence[int]:
    """Whole devices by weight; those that do not divide go to the largest remainders, the first of equals."""
    total, devices = sum(weights), amount // resources.UNIT
    if not total:
        return [0] * len(weights)
    shares = [devices * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda at: (-(devices * weights[at] % total), at))
    for at in by_remainder[: devices - sum(shares)]:
        shares[at] += 1
    return [share * resources.UNIT for share in shares]


# --- what is taken ----------------------------------------------------------------------------------------


def charged(zones: Zones, held: Iterable[resources.Amounts]) -> Zones:
    """The zones without what bound pods hold, by ruling 22; in whatever order the pods come.

    A pod is charged to the NUMA node of its rails, else to the lowest that has all it holds; one that needs several is
    charged in matching pairs, else with as many local rails as can be. Never below 0. Pods whose rails tell where they
    are go first, the larger ones before the others.
    """
    names = {name for zone in zones for name, _ in zone.free}
    pods = (tuple(sorted((name, held_) for name, held_ in pod.items() if name in names and held_ > 0)) for pod in held)
    return _charged(zones, tuple(sorted(pod for pod in pods if pod)))


@functools.lru_cache(maxsize=4096)  # nodes of one shape with the same pods on them are many
def _charged(zones: Zones, pods: tuple[Pairs, ...]) -> Zones:
    homes: dict[str, int] = {}
    for zone in zones:
        for name, _ in zone.free:
            homes[name] = homes.get(name, 0) + 1

    def order(pod: Pairs) -> tuple[bool, int]:
        return all(homes[name] > 1 for name, _ in pod), -sum(amount for _, amount in pod)

    for pod in sorted(pods, key=order):
        zones = without(zones, _held(zones, pod))
    return zones


def _held(zones: Zones, pod: Pairs) -> Zones:
    """What a pod has of each zone, as far as it is not charged to others already."""
    free = [dict(zone.free) for zone in zones]
    there = [(name, min(amount, sum(here.get(name, 0) for here in free))) for name, amount in pod]
    there.sort(key=lambda each: -each[1])  # which are accelerators nobody says: what it holds most of is paired
    order = _having(free, there)
    rows = _rows(free, order, there)
    split = pairs.best(rows[:1], rows[1:], len(order)) if order else None
    return _taken([zones[at].node for at in order], there, split.laid) if split else ()


def without(zones: Zones, taken: Zones) -> Zones:
    """The zones without what is taken of them; never below 0."""
    by = {zone.node: dict(zone.free) for zone in taken}
    return tuple(
        Zone(zone.node, tuple((name, max(0, amount - gone.get(name, 0))) for name, amount in zone.free))
        if (gone := by.get(zone.node))
        else zone
        for zone in zones
    )


# --- where a pod goes -------------------------------------------------------------------------------------


def spot(zones: Zones, want: Want) -> Spot | None:
    """The best place for a pod; None where what it wants of the named resources is not free.

    Aligned if possible, else with the most local rails; then the fewest NUMA nodes; then those with the least free
    that suffice, so that whole NUMA nodes stay whole. A pod without rails, or without accelerators, is aligned wherever
    it fits: there is no rail that could be far from an accelerator. Where nothing is known (zones ()) it is too.
    """
    free = [dict(zone.free) for zone in zones]
    gpus, rails = _named(free, want.accelerators), _named(free, want.pools)
    unjudged = _devices(want.pools) - _devices(rails)
    if not gpus and not rails:
        return Spot(aligned=True, local=unjudged, taken=(), zones=())

    def fullness(at: int) -> tuple[int, int, int]:
        here = free[at]
        return sum(here.get(name, 0) for name, _ in gpus), sum(here.get(name, 0) for name, _ in rails), at

    asked = gpus + rails
    enough = [at for at, here in enumerate(free) if all(here.get(name, 0) >= amount for name, amount in asked)]
    if enough:  # one NUMA node has it all, and no other place is better
        node = zones[min(enough, key=fullness) if len(enough) > 1 else enough[0]].node
        alone = Zone(node, tuple(sorted(asked)))
        return Spot(aligned=True, local=_devices(want.pools), taken=(alone,), zones=(node,))
    order = sorted(_having(free, asked), key=fullness)
    split = pairs.best(_rows(free, order, gpus), _rows(free, order, rails), len(order)) if order else None
    if split is None:
        return None
    taken = _taken([zones[at].node for at in order], (*gpus, *rails), split.laid)
    return Spot(split.aligned, split.local + unjudged, taken, tuple(zone.node for zone in taken))


def members(zones: Zones, want: Want, limit: int) -> tuple[Spot, ...]:
    """Places for so many equal pods, one after another, as long as they fit."""
    found: list[Spot] = []
    while len(found) < limit and (each := spot(zones, want)):
        found.append(each)
        zones = without(zones, each.taken)
    return tuple(found)


def _named(free: Sequence[Mapping[str, int]], wanted: Pairs) -> list[tuple[str, int]]:
    """What is asked of resources that some NUMA node has."""
    return [(name, amount) for name, amount in wanted if amount > 0 and any(name in here for here in free)]


def _having(free: Sequence[Mapping[str, int]], wanted: Sequence[tuple[str, int]]) -> list[int]:
    """The places that have any of it: a Grace-Blackwell node reports dozens of NUMA nodes, most of memory alone."""
    return [at for at, here in enumerate(free) if any(here.get(name, 0) > 0 for name, _ in wanted)]


def _devices(wanted: Iterable[tuple[str, int]]) -> int:
    return sum(-(-amount // resources.UNIT) for _, amount in wanted)


def _rows(
    free: Sequence[Mapping[str, int]], order: Sequence[int], wanted: Sequence[tuple[str, int]]
) -> tuple[pairs.Row, ...]:
    """Whole devices of each resource, the preferred place first."""
    rows = []
    for name, amount in wanted:
        devices = -(-amount // resources.UNIT)
        rows.append((devices, tuple([min(devices, free[at].get(name, 0) // resources.UNIT) for at in order])))
    return tuple(rows)


def _taken(nodes: Sequence[int], wanted: Sequence[tuple[str, int]], laid: Sequence[Sequence[int]]) -> Zones:
    found = []
    for at, node in enumerate(nodes):
        here = [(name, row[at] * resources.UNIT) for (name, _), row in zip(wanted, laid, strict=True) if row[at]]
        if here:
            found.append((node, tuple(sorted(here))))
    return tuple(Zone(*each) for each in sorted(found))
