"""Computes free devices per NUMA node of a node, and the best NUMA assignment of a pod.

Devices are located by a node shape or a NodeResourceTopology; bound pods are subtracted by the rule of
docs/interface.md 7.4. All amounts are milli-units. CPUs and memory are not modelled.
"""

import functools
import itertools
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import node_views, resources
from railwright.fabric.placement import scheduling_request
from railwright.fabric.policy import model


class Zone(msgspec.Struct, frozen=True):
    """Devices of one NUMA node: accelerators and rail resources. An amount of 0 means present, but in use or dead."""

    node: int
    free: resources.FrozenAmounts

    def subtract(self, used: resources.Amounts) -> "Zone":
        """Return the NUMA node without the used devices; amounts never drop below 0."""
        left = {name: max(0, amount - used.get(name, 0)) for name, amount in self.free.items()}
        return Zone(self.node, resources.FrozenAmounts(left))


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
    weights = {name: [len(zone.gpus) for zone in shape.numa] for name in accelerators if name in allocatable}
    for resource in dict.fromkeys(rail.resource for rail in rails if rail.resource):
        names = {rail.name for rail in rails if rail.resource == resource}
        weights[resource] = [len(names.intersection(zone.rails)) for zone in shape.numa]
    shares = {resource: _divide_devices(allocatable.get(resource, 0), by) for resource, by in weights.items()}
    return _build_zones(
        (number, {resource: shares[resource][number] for resource, by in weights.items() if by[number]})
        for number in range(len(shape.numa))
    )


def _divide_devices(amount: int, weights: Sequence[int]) -> Sequence[int]:
    """Divide whole devices by weight, rounded so that the shares add up."""
    devices, total = amount // resources.UNIT, sum(weights) or 1
    bounds = [(2 * devices * part + total) // (2 * total) for part in itertools.accumulate(weights, initial=0)]
    return [(end - begin) * resources.UNIT for begin, end in itertools.pairwise(bounds)]


_NAME = re.compile(r"node-(\d{1,4})", re.ASCII)  # as NFD and the resource-topology-exporter name a NUMA node


def read_zones(report: node_views.NodeResourceTopology, names: Collection[str], *, only_free: bool) -> Zones:
    """Return the reported amounts of these resources: the free ones, or all that are allocatable."""
    zones: dict[int, dict[str, int]] = {}
    for zone in report.zones:
        match = _NAME.fullmatch(zone.name) if zone.type == "Node" else None  # others are sockets or dies
        if match is not None and (node := int(match[1])) not in zones:
            written = {
                item.name: item.available if only_free and item.available is not None else item.allocatable
                for item in zone.resources
                if item.name in names
            }
            zones[node] = {name: max(0, milli) for name, milli in resources.parse_amounts(written).items()}
    return _build_zones(zones.items())


def add_missing_resources(zones: Zones, other_zones: Zones) -> Zones:
    """Return `zones` with the resources that only `other_zones` have; exporters may omit some."""
    names = {name for zone in zones for name in zone.free}
    free = {zone.node: dict(zone.free) for zone in zones}
    for zone in other_zones:
        missing = {name: amount for name, amount in zone.free.items() if name not in names}
        free.setdefault(zone.node, {}).update(missing)
    return _build_zones(free.items())


def _build_zones(zones: Iterable[tuple[int, Mapping[str, int]]]) -> Zones:
    """Return zones of (number, amounts); () if none has a resource."""
    built = tuple(
        Zone(node, resources.freeze_amounts(free)) for node, free in sorted(zones, key=operator.itemgetter(0))
    )
    return built if any(zone.free for zone in built) else ()


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
    return _subtract_usage(zones, tuple(sorted(filter(None, pods))))


@functools.lru_cache(maxsize=4096)  # many nodes have the same shape and the same pods
def _subtract_usage(zones: Zones, pods: tuple[scheduling_request.ResourceCounts, ...]) -> Zones:
    homes = Counter(name for zone in zones for name in zone.free)

    def get_sort_key(pod: scheduling_request.ResourceCounts) -> tuple[bool, int]:
        return all(homes[name] > 1 for name, _ in pod), -sum(amount for _, amount in pod)

    # Pods with a choice of NUMA nodes come last, so that they do not take the only place of another.
    for pod in sorted(pods, key=get_sort_key):
        # what other pods are charged for is gone; the resource with most devices counts as the accelerator
        left = [(name, min(amount, sum(zone.free.get(name, 0) for zone in zones))) for name, amount in pod]
        left.sort(key=lambda usage: -usage[1])
        if assignment := assign_pod(zones, scheduling_request.Demand(tuple(left[:1]), tuple(left[1:])), by_number=True):
            zones = subtract_zones(zones, assignment.taken)
    return zones


def subtract_zones(zones: Zones, taken: Zones, kept: Collection[str] = ()) -> Zones:
    """Subtract `taken` from the zones, but not the resources `kept`."""
    gone = {zone.node: {name: amount for name, amount in zone.free.items() if name not in kept} for zone in taken}
    return tuple([zone.subtract(used) if (used := gone.get(zone.node)) else zone for zone in zones])


# --- where a pod goes -------------------------------------------------------------------------------------

_Devices = Sequence[Mapping[str, int]]
"""For each NUMA node: resource -> number of devices."""


@functools.lru_cache(maxsize=4096)  # a cluster has few different numbers of free devices
def assign_pod(zones: Zones, demand: scheduling_request.Demand, *, by_number: bool = False) -> NumaAssignment | None:
    """Return the NUMA assignment of a pod, or None if its devices are not free.

    The pod gets one NUMA node if one has all its devices: the one with the least free, so that idle NUMA nodes stay
    idle (`by_number`: the first one). Otherwise NUMA nodes with its rails come first, so that few are needed. If each
    rail is on one NUMA node, as most are, no assignment has more local rails, or as many on fewer NUMA nodes. All rails
    of a pod without accelerators are local, and those of any pod if the layout is unknown.
    """
    listed = {name for zone in zones for name in zone.free}
    gpus, rails = (
        {name: -(-amount // resources.UNIT) for name, amount in side if amount > 0 and name in listed}
        for side in (demand.accelerators, demand.pools)
    )
    needed = gpus | rails

    def get_sort_key(row: tuple[int, Mapping[str, int]]) -> list[int]:
        # those with most of its rails first, so that few are needed; of equal ones the fullest, so that idle ones stay
        usable = [sum([min(most, row[1][name]) for name, most in side.items()]) for side in (rails, gpus)]
        if by_number:
            return [sum(usable) < sum(needed.values())]
        return [*map(operator.neg, usable), *(sum([row[1][name] for name in side]) for side in (gpus, rails))]

    rows = [(zone.node, {name: zone.free.get(name, 0) // resources.UNIT for name in needed}) for zone in zones]
    rows = [row for row in rows if any(row[1].values())]  # most zones of a Grace-Blackwell node have only memory
    rows.sort(key=get_sort_key)
    free = [here for _, here in rows]
    if any(sum([here[name] for here in free]) < devices for name, devices in needed.items()):
        return None
    local, taken = _assign_rails_and_gpus(gpus, rails, free)
    unlisted = demand.rail_devices - sum(rails.values())
    amounts = ({name: devices * resources.UNIT for name, devices in here.items()} for here in taken)
    zones_taken = _build_zones((node, here) for (node, _), here in zip(rows, amounts, strict=True) if here)
    return NumaAssignment(local + unlisted, zones_taken)


def _assign_rails_and_gpus(gpus: Mapping[str, int], rails: Mapping[str, int], free: _Devices) -> tuple[int, _Devices]:
    """Return (number of local rail devices, devices taken of each NUMA node).

    r of R rails on a NUMA node are local if it has more than (r - 1) / R of the pod's accelerators.
    """
    all_gpus, all_rails = sum(gpus.values()), sum(rails.values())
    if not gpus or not rails:
        return all_rails, _take_devices({**gpus, **rails}, free)
    gpus_free = [sum([here[name] for name in gpus]) for here in free]
    # rails go where free GPUs could serve them, then GPUs to the rails: as many as make them local, then their share
    rails_taken = _take_devices(rails, free, [-(-all_rails * gpu // all_gpus) for gpu in gpus_free])
    rails_here = [sum(here.values()) for here in rails_taken]
    least = [(rail - 1) * all_gpus // all_rails + 1 for rail in rails_here]
    gpus_taken = _take_devices(gpus, free, least, [rail * all_gpus // all_rails for rail in rails_here])
    local = [
        min(rail, -(-all_rails * sum(here.values()) // all_gpus))
        for rail, here in zip(rails_here, gpus_taken, strict=True)
    ]
    return sum(local), [{**ours, **theirs} for ours, theirs in zip(gpus_taken, rails_taken, strict=True)]


def _take_devices(needed: Mapping[str, int], free: _Devices, *bounds: Sequence[int]) -> _Devices:
    """Return the devices taken from each NUMA node; resources that only one NUMA node has are taken first.

    In order, all NUMA nodes are filled up to the first of `bounds`, then up to the next, then completely.
    """
    taken: list[dict[str, int]] = [{} for _ in free]
    everything = [sum(here.values()) for here in free]
    for name in sorted(needed, key=lambda name: sum([here[name] > 0 for here in free]) > 1):
        left = needed[name]
        for upper in (*bounds, everything):
            for here, bound, ours in zip(free, upper, taken, strict=True):
                more = min(left, bound - sum(ours.values()), here[name] - ours.get(name, 0))
                if more > 0:
                    ours[name] = ours.get(name, 0) + more
                    left -= more
    return taken


def assign_pods(
    zones: Zones, demand: scheduling_request.Demand, limit: int, unrequested: Collection[str] = ()
) -> tuple[NumaAssignment, ...]:
    """Return the NUMA assignments of up to `limit` equal pods, one after another, as long as they fit.

    Resources in `unrequested` are needed and not requested, so they are not used up.
    """
    assignments: list[NumaAssignment] = []
    while len(assignments) < limit and (assignment := assign_pod(zones, demand)):
        assignments.append(assignment)
        zones = subtract_zones(zones, assignment.taken, kept=unrequested)
    return tuple(assignments)
