"""Computes free devices per NUMA node of a node, and the best NUMA assignment of a pod.

Devices are located by a node shape or a NodeResourceTopology; bound pods are subtracted by the rule of
docs/interface.md 7.4. All amounts are milli-units. CPUs and memory are not modelled.
"""

import functools
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.policy import model


class Zone(msgspec.Struct, frozen=True):
    """Devices of one NUMA node: accelerators and rail resources. An amount of 0 means present, but in use or dead."""

    node: int
    free: resources.FrozenAmounts


Zones = tuple[Zone, ...]
"""The NUMA nodes of a node by number; () if the layout is unknown."""


class NumaAssignment(msgspec.Struct, frozen=True):
    """The NUMA assignment of one pod.

    A resource that no NUMA node lists has no known location: its devices count as local and are not in `taken`. Whether
    the node has them at all is checked with the rails.
    """

    local: int  # number of rail devices on the NUMA nodes of the accelerators that they serve
    taken: Zones  # devices of each NUMA node that the pod uses

    @property
    def zones(self) -> tuple[int, ...]:
        """Return the numbers of the NUMA nodes that the pod uses."""
        return tuple(zone.node for zone in self.taken)


# --- where devices are ------------------------------------------------------------------------------------


def build_zones_from_shape(
    shape: model.NodeShape, rails: Sequence[model.Rail], allocatable: resources.Amounts, accelerators: Sequence[str]
) -> Zones:
    """Return the allocatable devices of each NUMA node by the node shape; () if the shape has no NUMA layout.

    The allocatable amount of a resource is divided in proportion to the GPUs, or to the rails that use the resource, of
    each NUMA node. A dead rail (allocatable 0 or absent) is listed with 0; a rail that the shape lacks is not listed.
    """
    numa = shape.numa
    weights = {name: [len(zone.gpus) for zone in numa] for name in accelerators if name in allocatable}
    for resource in dict.fromkeys(rail.resource for rail in rails if rail.resource):
        rails_on_resource = {rail.name for rail in rails if rail.resource == resource}
        weights[resource] = [len(rails_on_resource.intersection(zone.rails)) for zone in numa]
    free: list[dict[str, int]] = [{} for _ in numa]
    for resource, by in weights.items():
        for here, share, weight in zip(free, _divide(allocatable.get(resource, 0), by), by, strict=True):
            if weight:
                here[resource] = share
    return build_zones(enumerate(free))


def read_available_zones(report: node_views.NodeResourceTopology, names: Collection[str]) -> Zones:
    """Return the reported available amounts of these resources, by zones of type Node."""
    return _read_zones(report, names, lambda item: item.available if item.available is not None else item.allocatable)


def read_allocatable_zones(report: node_views.NodeResourceTopology, names: Collection[str]) -> Zones:
    """Return the reported allocatable amounts, as if no pod used them."""
    return _read_zones(report, names, lambda item: item.allocatable)


def fill_missing_from(zones: Zones, other_zones: Zones) -> Zones:
    """Add resources missing from `zones` using `other_zones`; exporters may omit some."""
    names = {name for zone in zones for name in zone.free}
    free = {zone.node: dict(zone.free) for zone in zones}
    for zone in other_zones:
        missing = {name: amount for name, amount in zone.free.items() if name not in names}
        free.setdefault(zone.node, {}).update(missing)
    return build_zones(free.items())


def _read_zones(
    report: node_views.NodeResourceTopology,
    names: Collection[str],
    amount: Callable[[node_views.ZoneResource], views.RawQuantity],
) -> Zones:
    zones: dict[int, dict[str, int]] = {}
    for zone in report.zones:
        match = _NAME.fullmatch(zone.name) if zone.type == "Node" else None  # others are sockets or dies
        if match is not None and (node := int(match[1])) not in zones:
            written = {item.name: amount(item) for item in zone.resources if item.name in names}
            zones[node] = {name: max(0, milli) for name, milli in resources.parse_amounts(written).items()}
    return build_zones(zones.items())


_NAME = re.compile(r"node-(\d{1,4})", re.ASCII)  # as NFD and the resource-topology-exporter name a NUMA node


def build_zones(zones: Iterable[tuple[int, Mapping[str, int]]]) -> Zones:
    """Return zones of (number, amounts); () if none has a resource."""
    built = tuple(Zone(node, resources.freeze(free)) for node, free in sorted(zones, key=operator.itemgetter(0)))
    return built if any(zone.free for zone in built) else ()


def _divide(amount: int, weights: Sequence[int]) -> Sequence[int]:
    """Divide whole devices by weight; the remainder goes to the largest fractions, on ties to the lowest index."""
    total, devices = sum(weights), amount // resources.UNIT
    if not total:
        return [0] * len(weights)
    shares = [devices * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda at: (-(devices * weights[at] % total), at))
    for at in by_remainder[: devices - sum(shares)]:
        shares[at] += 1
    return [share * resources.UNIT for share in shares]


# --- what is taken ----------------------------------------------------------------------------------------


def subtract_usage(zones: Zones, requests: Iterable[resources.Amounts]) -> Zones:
    """Subtract what bound pods use from `zones` (docs/interface.md 7.4). The result does not depend on pod order.

    A pod is charged to the NUMA node of its rails, otherwise to the lowest one that fits it. Amounts never drop below
    0. Pods with rails on one NUMA node only are charged first, then larger pods before smaller ones.
    """
    names = {name for zone in zones for name in zone.free}
    pods = (
        tuple(sorted((name, amount) for name, amount in pod.items() if name in names and amount > 0))
        for pod in requests
    )
    return _subtract_usage(zones, tuple(sorted(pod for pod in pods if pod)))


@functools.lru_cache(maxsize=4096)  # many nodes have the same shape and the same pods
def _subtract_usage(zones: Zones, pods: tuple[scheduling_request.ResourceCounts, ...]) -> Zones:
    homes: dict[str, int] = {}
    for zone in zones:
        for name in zone.free:
            homes[name] = homes.get(name, 0) + 1

    def order(pod: scheduling_request.ResourceCounts) -> tuple[bool, int]:
        return all(homes[name] > 1 for name, _ in pod), -sum(amount for _, amount in pod)

    # Pods with a choice of NUMA nodes come last, so that they do not take the only place of another.
    for pod in sorted(pods, key=order):
        zones = subtract_zones(zones, _find_usage(zones, pod))
    return zones


def _find_usage(zones: Zones, pod: scheduling_request.ResourceCounts) -> Zones:
    """Return the devices of each zone to charge to a pod, limited to those that are not charged to other pods."""
    there = [(name, min(amount, sum(zone.free.get(name, 0) for zone in zones))) for name, amount in pod]
    there.sort(key=lambda usage: -usage[1])  # the resource with most devices counts as the accelerator: none is marked
    assignment = assign(zones, scheduling_request.Demand(tuple(there[:1]), tuple(there[1:])), by_number=True)
    return assignment.taken if assignment else ()


def subtract_zones(zones: Zones, taken: Zones) -> Zones:
    """Subtract `taken` from the zones; amounts never drop below 0."""
    by = {zone.node: zone.free for zone in taken}
    return tuple(
        [
            Zone(
                zone.node,
                resources.FrozenAmounts(
                    {name: max(0, amount - gone.get(name, 0)) for name, amount in zone.free.items()}
                ),
            )
            if (gone := by.get(zone.node))
            else zone
            for zone in zones
        ]
    )


# --- where a pod goes -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)  # a cluster has few different numbers of free devices
def assign(zones: Zones, demand: scheduling_request.Demand, *, by_number: bool = False) -> NumaAssignment | None:
    """Return the NUMA assignment of a pod, or None if its devices are not free.

    The pod gets one NUMA node if one has all its devices: the one with the least free, so that idle NUMA nodes stay
    idle (`by_number`: the first one). Otherwise it gets those with its rails first, so that few are needed. If each
    rail is on one NUMA node, as most are, no assignment has more local rails, or as many on fewer NUMA nodes. All rails
    of a pod without accelerators are local, and those of any pod if the layout is unknown.
    """
    listed = {name for zone in zones for name in zone.free}
    gpus, rails = (
        {name: amount for name, amount in side if amount > 0 and name in listed}
        for side in (demand.accelerators, demand.pools)
    )
    demanded, unlisted = gpus | rails, _count_devices(demand.pools) - _count_devices(rails.items())
    # most zones of a Grace-Blackwell node have only memory
    order = [zone for zone in zones if any(zone.free.get(name, 0) > 0 for name in demanded)]
    if not by_number:
        order.sort(key=lambda zone: [sum([zone.free.get(name, 0) for name in side]) for side in (gpus, rails)])
    for zone in order:
        if all(zone.free.get(name, 0) >= amount for name, amount in demanded.items()):
            taken = Zone(zone.node, resources.FrozenAmounts(demanded))
            return NumaAssignment(_count_devices(demand.pools), (taken,))
    if any(sum([zone.free.get(name, 0) for zone in order]) < amount for name, amount in demanded.items()):
        return None
    if not by_number:
        order.sort(
            key=lambda zone: [
                sum([min(amount, zone.free.get(name, 0)) for name, amount in side.items()]) for side in (rails, gpus)
            ],
            reverse=True,
        )
    local, split = _split(_build_rows(order, gpus), _build_rows(order, rails))
    by_zone = ({name: row[at] * resources.UNIT for name, row in split.items() if row[at]} for at in range(len(order)))
    zones_taken = build_zones((zone.node, here) for zone, here in zip(order, by_zone, strict=True) if here)
    return NumaAssignment(local + unlisted, zones_taken)


_Rows = Mapping[str, tuple[int, Sequence[int]]]
"""Resource -> (devices that a pod needs, devices that each NUMA node has free)."""


def _build_rows(order: Sequence[Zone], demand: Mapping[str, int]) -> _Rows:
    return {
        name: (-(-amount // resources.UNIT), [zone.free.get(name, 0) // resources.UNIT for zone in order])
        for name, amount in demand.items()
    }


def _split(gpus: _Rows, rails: _Rows) -> tuple[int, Mapping[str, Sequence[int]]]:
    """Return (number of local rail devices, devices of each NUMA node by resource).

    r of R rails on a NUMA node are local if it has more than (r - 1) / R of the pod's accelerators.
    """
    all_gpus, all_rails = (sum(devices for devices, _ in side.values()) for side in (gpus, rails))
    if not gpus or not rails:
        return all_rails, _fill(gpus) | _fill(rails)
    most_local = [-(-all_rails * here // all_gpus) for here in _add_up([free for _, free in gpus.values()])]
    rails_taken = _fill(rails, most_local)
    rails_here = _add_up(rails_taken.values())
    least = [(count - 1) * all_gpus // all_rails + 1 for count in rails_here]
    share = [count * all_gpus // all_rails for count in rails_here]
    gpus_taken = _fill(gpus, least, share)
    gpus_here = zip(rails_here, _add_up(gpus_taken.values()), strict=True)
    return sum(min(count, -(-all_rails * here // all_gpus)) for count, here in gpus_here), gpus_taken | rails_taken


def _fill(rows: _Rows, *bounds: Sequence[int]) -> dict[str, Sequence[int]]:
    """Take resources from the NUMA nodes in order, those that only one has first.

    All NUMA nodes are first filled up to the first of `bounds`, then up to the next, then with what they have.
    """
    everything = _add_up([free for _, free in rows.values()])
    filled, taken = [0] * len(everything), dict[str, Sequence[int]]()
    for name in sorted(rows, key=lambda name: max(rows[name][1]) < sum(rows[name][1])):
        left, free = rows[name]
        counts = [0] * len(free)
        for upper in (*bounds, everything):
            for zone, bound in enumerate(upper):
                more = max(0, min(left, bound - filled[zone], free[zone] - counts[zone]))
                counts[zone] += more
                filled[zone] += more
                left -= more
        taken[name] = counts
    return taken


def _add_up(rows: Iterable[Sequence[int]]) -> Sequence[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def assign_all(
    zones: Zones, demand: scheduling_request.Demand, limit: int, unrequested: Collection[str] = ()
) -> tuple[NumaAssignment, ...]:
    """Return the NUMA assignments of up to `limit` equal pods, one after another, as long as they fit.

    Resources in `unrequested` are needed and not requested, so they are not used up.
    """
    assignments: list[NumaAssignment] = []
    while len(assignments) < limit and (assignment := assign(zones, demand)):
        assignments.append(assignment)
        taken = assignment.taken
        if unrequested:
            taken = build_zones(
                (zone.node, {name: amount for name, amount in zone.free.items() if name not in unrequested})
                for zone in taken
            )
        zones = subtract_zones(zones, taken)
    return tuple(assignments)


def _count_devices(demand: Iterable[tuple[str, int]]) -> int:
    return sum(-(-amount // resources.UNIT) for _, amount in demand)
