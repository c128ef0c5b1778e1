"""Evaluates nodes for pods: their slots, the modelled bandwidth of each slot, and the inputs of the score terms.

Nodes with equal facts (`NodeFacts`, hashable) form one class (`NodeClass`). Pods with equal requests and constraints,
usually all workers of a gang, are of one kind, and one request without nodes stands for all of them
(`SchedulingRequest.build_kind`). So a class is evaluated once for a kind of pods. Devices in use, or a broken rail,
leave no slot. Locality depends on the plan of a gang, and is not evaluated here.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, resources
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import numa
from railwright.fabric.placement.state import object_info

MAX_SLOTS_PER_NODE = 64  # upper limit for the slots of one node; a larger number counts as this


class Devices(NamedTuple):
    """The amounts of an accelerator, or of the resource of some rails, on a node, in milli-units."""

    free: int
    allocatable: int
    capacity: int
    requested: int  # by one pod; 0 if it needs a rail without requesting it, which is then no limit

    @property
    def used(self) -> int:
        """Return the amount that pods on the node use."""
        return max(0, self.allocatable - self.free)


class NodeFacts(NamedTuple):
    """All facts about a node that its evaluation reads."""

    eligible: bool
    shape: str
    fits_by_other_resources: int  # pods that fit by CPU, memory and number of pods, at most MAX_SLOTS_PER_NODE
    devices: tuple[Devices, ...]  # in the order of `Demand.names`
    broken: tuple[object_info.BrokenRail, ...]  # rails of the pod; the node comes last
    zones: numa.Zones = ()
    allocatable_zones: numa.Zones = ()  # allocatable, as if no pod ran on the node


# --- the class of a node --------------------------------------------------------------------------------------

Bandwidth = float
"""Modelled bandwidth, 0..1."""

TOLERANCE = 1e-9  # two sums of the same shares may differ in the last bit


class Pool(msgspec.Struct, frozen=True):
    """The devices of the rails that share a resource, on a node.

    The rails of a pod that have no resource are a pool with the name "" that is always free.
    """

    need: intent.Need
    devices: Devices
    broken: Sequence[object_info.BrokenRail]  # of its rails
    is_healthy: bool  # all devices of the plugin are allocatable
    rates: tuple[Bandwidth, ...]  # share of a free device of each of its rails: 1, less if degraded, 0 if broken

    @property
    def is_sufficient(self) -> bool:
        """True if the pool has enough free devices for one pod."""
        return self.devices.free >= self.need.amount


class NodeClass(msgspec.Struct, frozen=True, eq=False):
    """Nodes with equal facts, as pods of one kind see them.

    A node index has exactly one object for each value of the facts, so comparing objects compares facts.
    """

    facts: NodeFacts
    demand: scheduling_request.Demand
    pools: tuple[Pool, ...]
    usage: Mapping[str, Devices]  # of each requested accelerator and pool
    numa_assignments: tuple[numa.NumaAssignment, ...]  # of one pod after another; () if the layout is unknown
    # one item per slot, best first: 1 if GPUs and NICs share a NUMA node, else less
    slot_numa_factors: tuple[float, ...]
    # bandwidth of each needed rail, as a share of all needed rails, with 0, 1, ... further pods on the node
    shares: tuple[tuple[Bandwidth, ...], ...]
    rails: int  # bit mask of the needed rails that have bandwidth left
    bandwidths: Sequence[Bandwidth]  # per pod with 1, 2, ... further pods on the node, which all share its NICs
    is_idle: bool  # no accelerator or rail of the node is in use
    is_full: bool  # too few resources are free for a pod
    has_unsplit_slot: bool  # one of its slots uses no more NUMA nodes than necessary
    fill_priority: int  # order in a leaf, lower first: partly used nodes, idle nodes, nodes that would split NUMA
    score: float = 0.0  # without locality, 0..100

    def get_shares(self, pods: int) -> tuple[Bandwidth, ...]:
        """Return the bandwidth shares of the rails if `pods` more pods, or as many as fit, run on the node."""
        return self.shares[min(pods, len(self.shares) - 1)]

    def get_numa_factor(self, number: int) -> float:
        """Return the NUMA factor of the `number`-th slot of a node; 1 if the node has fewer slots."""
        return next(iter(self.slot_numa_factors[number - 1 :]), 1.0)

    def count_slots(self, min_bandwidth: Bandwidth) -> int:
        """Return the number of slots on a node at this bandwidth or more."""
        least = min_bandwidth - TOLERANCE
        for slot, value in enumerate(self.bandwidths):  # best first
            if value < least:
                return slot
        return len(self.bandwidths)


Counts = dict[NodeClass, int]
"""Number of nodes by class."""


# --- evaluation -----------------------------------------------------------------------------------------------


def build_class(kind: scheduling_request.SchedulingRequest, facts: NodeFacts) -> NodeClass:
    """Return the class of nodes with these facts, for pods of this kind."""
    pools = _list_pools(kind, facts)
    usage = {
        name: devices for name, devices in zip(kind.demand.names, facts.devices, strict=True) if devices.requested > 0
    }
    by_device = [max(0, row.free // row.requested) for row in usage.values()]
    fitting = min(facts.fits_by_other_resources, *by_device, 1 if kind.is_single_pod else MAX_SLOTS_PER_NODE)
    assignments = numa.assign_pods(facts.zones, kind.demand, fitting, kind.unrequested) if facts.zones else ()
    slots = fitting if facts.eligible and not facts.broken else 0
    factors, has_unsplit_slot = [1.0] * slots, slots > 0
    if assignments:
        factors = [_compute_numa_factor(kind, assignment) for assignment in assignments[:slots]]
        has_unsplit_slot = _has_unsplit_slot(kind, facts, assignments[:slots])
    accelerators = [usage[name] for name, _ in kind.demand.accelerators]
    busy = max([-(-row.used // row.requested) for row in accelerators], default=0)
    shares = tuple([_compute_shares(kind, pools, busy, pods) for pods in range(max(1, slots) + 1)])
    factors.sort(reverse=True)
    is_idle = all(devices.free >= devices.allocatable for devices in facts.devices)
    return NodeClass(
        facts=facts,
        demand=kind.demand,
        pools=pools,
        usage=usage,
        numa_assignments=assignments,
        slot_numa_factors=tuple(factors),
        shares=shares,
        rails=sum(1 << bit for bit, share in enumerate(shares[1]) if share > 0),
        bandwidths=tuple([factor * (sum(shares[pods]) if pools else 1.0) for pods, factor in enumerate(factors, 1)]),
        is_idle=is_idle,
        is_full=not facts.fits_by_other_resources or not all(by_device),
        has_unsplit_slot=has_unsplit_slot,
        fill_priority=2 * (not has_unsplit_slot) + is_idle,
    )


def _list_pools(kind: scheduling_request.SchedulingRequest, facts: NodeFacts) -> tuple[Pool, ...]:
    """Return each pool that the pod needs, and its rails without a resource."""
    rows = list(zip(kind.needs, facts.devices[-len(kind.needs) :], strict=False))
    if rails := kind.uncounted_rails:
        amount = len(rails) * resources.UNIT
        rows.append((intent.Need(rails, "", amount), Devices(amount, amount, amount, amount)))
    broken = {row.rail: row for row in facts.broken}
    pools = []
    for need, devices in rows:
        is_healthy = devices.allocatable >= devices.capacity
        rate = 1.0 if is_healthy else bandwidth.DEGRADED
        rates = tuple([0.0 if rail in broken else rate for rail in need.rails])
        pools.append(Pool(need, devices, [broken[rail] for rail in need.rails if rail in broken], is_healthy, rates))
    return tuple(pools)


def _has_unsplit_slot(
    kind: scheduling_request.SchedulingRequest, facts: NodeFacts, assignments: Sequence[numa.NumaAssignment]
) -> bool:
    """True if a slot uses no more NUMA nodes than on an empty node. For a single-pod job only its GPUs count."""
    demand = kind.demand
    if kind.is_single_pod:
        demand = scheduling_request.Demand(accelerators=demand.accelerators, pools=())
        assignments = numa.assign_pods(facts.zones, demand, len(assignments))
    ideal = numa.assign_pod(facts.allocatable_zones, demand)
    min_zones = len(ideal.zones) if ideal else len(facts.zones)
    return any(len(assignment.zones) <= min_zones for assignment in assignments)


def _compute_numa_factor(kind: scheduling_request.SchedulingRequest, assignment: numa.NumaAssignment) -> float:
    """Return the NUMA factor, 0..1, of a pod's rail bandwidth: less than 1 if rails are on another NUMA node."""
    rail_devices = kind.demand.rail_devices
    if assignment.local >= rail_devices:
        return 1.0
    return (assignment.local + bandwidth.MISALIGNED * (rail_devices - assignment.local)) / rail_devices


def _compute_shares(
    kind: scheduling_request.SchedulingRequest, pools: tuple[Pool, ...], busy: int, further_pods: int
) -> tuple[Bandwidth, ...]:
    """Return the bandwidth of each needed rail, as a share of all needed rails, if `further_pods` more pods run here.

    0 is for peers that already run on the node: their NUMA nodes are unknown, so their rails count as aligned. Pods
    share NICs with each other, with peers and with other jobs. Degraded rails count less. `busy` is the number of such
    pods that the accelerators in use may belong to.
    """
    rail_count = sum(len(pool.need.rails) for pool in pools)
    shares: list[Bandwidth] = []
    for pool in pools:
        # A NIC shared by g pods gives each 1/g (measured pair: 0.62 of two NICs, llm-d blog 2026-08-20). That includes
        # pods of one gang: NCCL treats pods with different host names as different hosts, with traffic over the NIC.
        pods, amount = 1, pool.need.amount
        if pool.need.resource:
            # a pod with several devices of one NIC does not share the NIC with itself
            unit = max(amount, kind.count_at_one_pod_per_nic(pool.need))
            # of pods that do not request devices, only the accelerators show that they are there
            used = pool.devices.used if pool.devices.requested else max(pool.devices.used, busy * amount)
            pods = max(1, -(-(used + further_pods * amount) // unit))
        free_share = min(1.0, max(0, pool.devices.free) / amount) if further_pods else 1.0
        rail_share = 1 / pods * free_share / rail_count
        shares.extend([rail_share * rate for rate in pool.rates])
    return tuple(shares)
