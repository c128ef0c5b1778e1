"""Evaluates a class of nodes for one kind of pods, once for all equal nodes and equal pods.

The request of a kind has all inputs from the pod and the policy (`scheduling_request`). Pods with the same signature,
usually all workers of a gang, share the cached evaluations of all nodes.

The input is the state of a node (`NodeFacts`, hashable). The output (`NodeClass`) has the modelled bandwidth per
slot, and the inputs of all score terms except locality. Devices that are taken, or a broken rail, leave no slot.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, resources
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import numa
from railwright.fabric.placement.state import object_info

MAX_SLOTS_PER_NODE = 64  # upper limit for the slots of one node; a larger number counts as this


class Devices(NamedTuple):
    """An accelerator, or the pool of some rails, on a node. Amounts in milli-units."""

    free: int
    allocatable: int
    capacity: int
    requested: int  # by one pod; 0 if it needs a rail without requesting it, which is then no limit
    peers: int = 0  # used by peers of the requesting pod, which share its NICs, requested or not

    @property
    def used_by_others(self) -> int:
        """Return the amount that pods outside of the gang use."""
        return max(0, self.allocatable - self.free - (self.peers if self.requested else 0))


class NodeFacts(NamedTuple):
    """Node state that determines its evaluation."""

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

ALL_RAILS = -1  # as a bit mask
TOLERANCE = 1e-9  # two sums of the same shares may differ in the last bit


def sum_shares(shares: Sequence[Bandwidth], rails: int) -> Bandwidth:
    """Return the bandwidth over these rails, given the share of each requested rail; 1 without rails."""
    return sum(share for bit, share in enumerate(shares) if rails >> bit & 1) if shares else 1.0


class Pool(msgspec.Struct, frozen=True):
    """The devices of some rails on a node.

    The rails of a pod that have no resource are a pool with the name "" that is always free.
    """

    need: intent.Need
    devices: Devices
    broken: frozenset[str] = frozenset()  # its rails that are

    @property
    def is_sufficient(self) -> bool:
        """True if the pool has enough free devices for one pod."""
        return self.devices.free >= self.need.amount

    @property
    def is_healthy(self) -> bool:
        """True if all devices of the plugin are allocatable."""
        return self.devices.allocatable >= self.devices.capacity

    def rate_rails(self) -> tuple[float, ...]:
        """Return the bandwidth share of a free device of each of its rails: 1, less if degraded, 0 if broken."""
        healthy = 1.0 if self.is_healthy else bandwidth.DEGRADED
        return tuple([0.0 if rail in self.broken else healthy for rail in self.need.rails])


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
    shares: tuple[tuple[float, ...], ...]
    has_unsplit_slot: bool = True  # one of its slots uses no more NUMA nodes than necessary
    score: float = 0.0  # without locality, 0..100
    fill_order: tuple[float, ...] = ()  # sort key for a single-pod job, lower first; () for other jobs

    @property
    def rails(self) -> int:
        """Return the bit mask of the needed rails that have bandwidth left."""
        return sum(1 << bit for bit, share in enumerate(self.shares[1]) if share > 0)

    @property
    def available_rails(self) -> int:
        """Return the bit mask of the rails that the node has, free or not; all bits if the pod needs no rail."""
        there = [pool.devices.allocatable > 0 and rate > 0 for pool in self.pools for rate in pool.rate_rails()]
        return sum(1 << bit for bit, is_there in enumerate(there) if is_there) if there else ALL_RAILS

    def get_shares(self, pods: int) -> tuple[float, ...]:
        """Return the shares with this number of further pods, or with as many as fit."""
        return self.shares[min(pods, len(self.shares) - 1)]

    def get_numa_factor(self, number: int) -> float:
        """Return the factor of the slot of this number, from 1; 1 if there is no such slot."""
        return next(iter(self.slot_numa_factors[number - 1 :]), 1.0)

    def count_slots(self, rails: int, min_bandwidth: Bandwidth) -> int:
        """Return the number of slots on a node at this bandwidth or more, over these rails."""
        least = min_bandwidth - TOLERANCE
        bandwidths = list_bandwidths(self, rails)
        for slot, value in enumerate(bandwidths):  # best first
            if value < least:
                return slot
        return len(bandwidths)

    @property
    def is_idle(self) -> bool:
        """True if no accelerator or rail of the node is in use."""
        return all(devices.free >= devices.allocatable for devices in self.facts.devices)

    @property
    def fill_priority(self) -> int:
        """Return the fill order in a leaf, lower first: partly used nodes, idle nodes, nodes that would split NUMA."""
        return 2 * (not self.has_unsplit_slot) + self.is_idle

    @property
    def is_full(self) -> bool:
        """True if too few resources are free for a pod."""
        return not self.facts.fits_by_other_resources or any(row.free < row.requested for row in self.usage.values())


@functools.lru_cache(maxsize=4096)  # a plan asks some twenty times for those of a few classes
def list_bandwidths(node_class: NodeClass, rails: int) -> Sequence[Bandwidth]:
    """Return the bandwidth per pod with 1, 2, ... further pods on a node; () if it lacks any of the rails.

    The pods share its NICs, so that each further one slows down all.
    """
    if node_class.rails & rails != rails:
        return ()
    factors = enumerate(node_class.slot_numa_factors, 1)
    return tuple([factor * sum_shares(node_class.shares[pods], rails) for pods, factor in factors])


# --- evaluation -----------------------------------------------------------------------------------------------


def evaluate(kind: scheduling_request.SchedulingRequest, facts: NodeFacts) -> NodeClass:
    """Return the class of nodes with these facts, for pods of this kind."""
    pools = _list_pools(kind, facts)
    usage = {
        name: devices for name, devices in zip(kind.demand.names, facts.devices, strict=True) if devices.requested > 0
    }
    by_device = [max(0, row.free // row.requested) for row in usage.values()]
    fitting = min(facts.fits_by_other_resources, *by_device, 1 if kind.is_single_pod else MAX_SLOTS_PER_NODE)
    numa_assignments = (
        numa.assign_all(facts.zones, kind.demand, fitting, kind.unrequested) if facts.zones and fitting else ()
    )
    slots = fitting if facts.eligible and not facts.broken else 0
    factors, has_unsplit_slot = [1.0] * slots, slots > 0
    if numa_assignments:
        factors = [_compute_numa_factor(kind, assignment) for assignment in numa_assignments[:slots]]
        has_unsplit_slot = _has_unsplit_slot(kind, facts, numa_assignments[:slots])
    return NodeClass(
        facts=facts,
        demand=kind.demand,
        pools=pools,
        usage=usage,
        numa_assignments=numa_assignments,
        slot_numa_factors=tuple(sorted(factors, reverse=True)),
        shares=tuple([_compute_shares(kind, pools, pods) for pods in range(max(1, slots) + 1)]),
        has_unsplit_slot=has_unsplit_slot,
    )


def _list_pools(kind: scheduling_request.SchedulingRequest, facts: NodeFacts) -> tuple[Pool, ...]:
    """Return each pool that the pod needs, and its rails without a resource."""
    rows = list(zip(kind.needs, facts.devices[-len(kind.needs) :], strict=False))
    if rails := kind.uncounted_rails:
        amount = len(rails) * resources.UNIT
        rows.append((intent.Need(rails, "", amount), Devices(amount, amount, amount, amount)))
    broken = frozenset([row.rail for row in facts.broken])
    return tuple([Pool(need, devices, broken) for need, devices in rows])


def _has_unsplit_slot(
    kind: scheduling_request.SchedulingRequest,
    facts: NodeFacts,
    numa_assignments: tuple[numa.NumaAssignment, ...],
) -> bool:
    """True if a slot uses no more NUMA nodes than on an empty node. For a single-pod job only its GPUs count."""
    demand = kind.demand
    if kind.is_single_pod:
        demand = scheduling_request.Demand(accelerators=demand.accelerators, pools=())
        numa_assignments = numa.assign_all(facts.zones, demand, len(numa_assignments), kind.unrequested)
    ideal = numa.assign(facts.allocatable_zones, demand)
    min_zones = len(ideal.zones) if ideal else len(facts.zones)
    return any(len(assignment.zones) <= min_zones for assignment in numa_assignments)


def _compute_numa_factor(kind: scheduling_request.SchedulingRequest, assignment: numa.NumaAssignment) -> float:
    """Return the NUMA factor, 0..1, of a pod's rail bandwidth: less than 1 if rails are on another NUMA node."""
    rail_devices = kind.demand.rail_devices
    if assignment.local >= rail_devices:
        return 1.0
    return (assignment.local + bandwidth.MISALIGNED * (rail_devices - assignment.local)) / rail_devices


def _compute_shares(
    kind: scheduling_request.SchedulingRequest, pools: tuple[Pool, ...], further_pods: int
) -> tuple[float, ...]:
    """Return the bandwidth of each needed rail as a share of all needed rails, for each of `further_pods` further pods.

    0 stands for the peers that the node runs: their NUMA nodes are unknown, so their rails count as aligned. Pods
    share NICs with each other, with peers and with other jobs. Degraded rails count less.
    """
    rail_count = sum(len(pool.need.rails) for pool in pools)
    shares: list[float] = []
    for pool in pools:
        # A NIC shared by g pods gives each 1/g (measured pair: 0.62 of two NICs, llm-d blog 2026-08-20). That includes
        # pods of one gang: NCCL treats pods with different host names as different hosts, with traffic over the NIC.
        pods = _count_pods_per_nic(pool, kind, further_pods) if pool.need.resource else 1
        free_share = min(1.0, max(0, pool.devices.free) / pool.need.amount) if further_pods else 1.0
        rail_share = 1 / pods * free_share / rail_count
        shares.extend([rail_share * rate for rate in pool.rate_rails()])
    return tuple(shares)


def _count_pods_per_nic(pool: Pool, kind: scheduling_request.SchedulingRequest, further_pods: int) -> int:
    """Return the pods per NIC of a pool with `further_pods` further pods, evenly distributed over the NICs."""
    one_pod_per_nic = kind.count_devices_of_nics(pool.need)
    amount = pool.need.amount
    gang = pool.devices.peers + further_pods * amount
    if amount > one_pod_per_nic:  # several devices of one NIC: a pod does not share a NIC with itself
        gang = gang * one_pod_per_nic // amount
    return max(1, -(-(pool.devices.used_by_others + gang) // one_pod_per_nic))


# --- classes --------------------------------------------------------------------------------------------------


Counts = dict[NodeClass, int]
"""Number of nodes by class."""
