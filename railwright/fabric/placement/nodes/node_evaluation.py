"""Evaluates a class of nodes for one scheduling signature, once for all equal nodes and equal pods.

The input is the state of a node (`node_facts`, hashable). The output (`NodeEvaluation`) has the reason to filter the
node, the modelled bandwidth per slot, and the inputs of all score terms except locality.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import node_facts, node_slots, numa, scheduling_signature
from railwright.fabric.reasons import reason


class ResourceUsage(NamedTuple):
    """Usage of one accelerator or pool on a node. Amounts in milli-units."""

    free: int
    allocatable: int
    requested: int  # by this pod


class NodeEvaluation(msgspec.Struct, frozen=True):
    """The evaluation of one node class for one scheduling signature."""

    facts: node_facts.NodeFacts
    demand: numa.NumaDemand
    pools: tuple[node_facts.PoolAvailability, ...]
    numa_assignments: tuple[
        numa.NumaAssignment, ...
    ]  # NUMA assignments of one pod after another; () if the layout is unknown
    capacity: node_slots.NodeCapacity
    refusal: reason.Reason | None  # why the node is filtered; None if the pod fits
    is_unresolvable: bool  # the pod would not fit even if all other pods left the node
    is_aligned: bool | None  # GPUs and rails can be on the same NUMA nodes; None if the layout is unknown
    usage: Mapping[str, ResourceUsage]  # of each requested accelerator and pool

    @property
    def available_rails(self) -> int:
        """Return the bit mask of the needed rails that the node has, free or not; all bits if the pod needs no rail."""
        if not self.pools:
            return node_slots.ALL_RAILS
        there = [pool.allocatable > 0 for pool in self.pools for _ in pool.need.rails]
        return sum(1 << bit for bit, is_there in enumerate(there) if is_there)


def evaluate(signature: scheduling_signature.SchedulingSignature, facts: node_facts.NodeFacts) -> NodeEvaluation:
    """Evaluate nodes with these facts."""
    pools = _list_pools(signature, facts)
    refusal = node_facts.find_refusal(signature, facts, pools)
    slots = min(
        facts.fits_by_other_resources,
        *_count_slots(signature, facts),
        facts.pairs.pods,
        node_facts.MAX_SLOTS_PER_NODE,
    )
    numa_assignments = numa.assign_all(facts.zones, signature.full_demand, slots) if facts.zones and slots else ()
    return NodeEvaluation(
        facts=facts,
        demand=signature.full_demand,
        pools=pools,
        numa_assignments=numa_assignments,
        capacity=_build_capacity(
            signature, facts, pools, numa_assignments, 0 if refusal.cause or not facts.eligible else slots
        ),
        refusal=refusal.cause,
        is_unresolvable=refusal.is_unresolvable,
        is_aligned=_compute_numa_factor(signature, numa_assignments[0]) >= 1.0 if numa_assignments else None,
        usage={
            name: ResourceUsage(free, allocatable, signature.requests.get(name, 0))
            for name, free, allocatable in zip(signature.devices, facts.free, facts.allocatable, strict=True)
            if signature.requests.get(name, 0) > 0
        },
    )


def _list_pools(
    signature: scheduling_signature.SchedulingSignature, facts: node_facts.NodeFacts
) -> tuple[node_facts.PoolAvailability, ...]:
    """Return the availability of each pool that the pod needs."""
    offset = len(signature.devices) - len(signature.needs)
    return tuple(
        node_facts.PoolAvailability(
            need=need,
            free=facts.free[offset + index],
            allocatable=facts.allocatable[offset + index],
            capacity=facts.capacity[offset + index],
        )
        for index, need in enumerate(signature.needs)
    )


def _count_slots(signature: scheduling_signature.SchedulingSignature, facts: node_facts.NodeFacts) -> list[int]:
    """Return the slots by each requested device. Rails needed only by record, annotation or policy are no limit."""
    return [
        max(0, free // signature.requests[name])
        for name, free in zip(signature.devices, facts.free, strict=True)
        if signature.requests.get(name, 0) > 0
    ]


def _build_capacity(
    signature: scheduling_signature.SchedulingSignature,
    facts: node_facts.NodeFacts,
    pools: tuple[node_facts.PoolAvailability, ...],
    numa_assignments: tuple[numa.NumaAssignment, ...],
    slots: int,
) -> node_slots.NodeCapacity:
    shares = _compute_shares(signature, facts, pools)
    crowded_shares = (
        ()
        if signature.is_single_pod
        else tuple(_compute_shares(signature, facts, pools, pods) for pods in range(2, slots + 1))
    )
    is_idle = all(free >= total for free, total in zip(facts.free, facts.allocatable, strict=True))
    if signature.fabric.placement.numa == "ignore" or not numa_assignments:
        slot_numa_factors, unsplit_slots = (1.0,) * slots, slots
    else:
        slot_numa_factors = tuple(
            sorted(
                (_compute_numa_factor(signature, assignment) for assignment in numa_assignments[:slots]), reverse=True
            )
        )
        unsplit_slots = _count_unsplit_slots(signature, facts, numa_assignments[:slots])
    return node_slots.NodeCapacity(
        shape=facts.shape,
        rails=sum(1 << bit for bit, share in enumerate(shares) if share > 0),
        shares=shares,
        slot_numa_factors=slot_numa_factors,
        is_idle=is_idle,
        unsplit_slots=unsplit_slots,
        crowded_shares=crowded_shares if any(pod_shares != shares for pod_shares in crowded_shares) else (),
    )


def _count_unsplit_slots(
    signature: scheduling_signature.SchedulingSignature,
    facts: node_facts.NodeFacts,
    numa_assignments: tuple[numa.NumaAssignment, ...],
) -> int:
    """Return the slots that use no more NUMA nodes than on an empty node. For a single-pod job only its GPUs count."""
    demand = (
        numa.NumaDemand(accelerators=signature.full_demand.accelerators, pools=())
        if signature.is_single_pod
        else signature.full_demand
    )
    if signature.is_single_pod:
        numa_assignments = numa.assign_all(facts.zones, demand, len(numa_assignments))
    ideal = numa.assign(facts.allocatable_zones, demand)
    min_zones = len(ideal.zones) if ideal else len(facts.zones)
    return sum(1 for assignment in numa_assignments if len(assignment.zones) <= min_zones)


def _compute_numa_factor(signature: scheduling_signature.SchedulingSignature, assignment: numa.NumaAssignment) -> float:
    """Return the NUMA factor, 0..1, of a pod's rail bandwidth: less than 1 if rails are on another NUMA node."""
    rail_devices = sum(amount for _, amount in signature.full_demand.pools) // resources.UNIT
    if assignment.is_aligned or not rail_devices:
        return 1.0
    return (assignment.local + bandwidth.MISALIGNED * (rail_devices - assignment.local)) / rail_devices


def _compute_shares(
    signature: scheduling_signature.SchedulingSignature,
    facts: node_facts.NodeFacts,
    pools: tuple[node_facts.PoolAvailability, ...],
    further_pods: int = 1,
) -> tuple[float, ...]:
    """Return the bandwidth of each needed rail as a share of all needed rails, for each of `further_pods` further pods.

    Pods share NICs with each other, with peers and with other jobs. Degraded rails count less.
    """
    rail_count = sum(len(pool.need.rails) for pool in pools)
    offset = len(signature.devices) - len(signature.needs)
    shares: list[float] = []
    for index, pool in enumerate(pools):
        count = len(pool.need.rails)
        others = _count_pods_per_nic(pool, facts.peer_usage[offset + index], signature, further_pods) - 1
        rail_bandwidth = bandwidth.compute_rail_bandwidth(
            bandwidth.RailUse(aligned=True, others=others, healthy=pool.is_healthy)
        )
        free_share = min(1.0, max(0, pool.free) / pool.need.amount)
        shares.extend([rail_bandwidth * free_share / rail_count] * count)
    return tuple(shares)


def compute_placed_shares(
    signature: scheduling_signature.SchedulingSignature, evaluation: NodeEvaluation
) -> tuple[float, ...]:
    """Return the bandwidth of each needed rail as a share of all needed rails, for the peers that the node runs.

    Where on the node they are is not known, so their rails count as aligned.
    """
    rail_count = sum(len(pool.need.rails) for pool in evaluation.pools)
    offset = len(signature.devices) - len(signature.needs)
    shares: list[float] = []
    for index, pool in enumerate(evaluation.pools):
        others = _count_pods_per_nic(pool, evaluation.facts.peer_usage[offset + index], signature, further_pods=0) - 1
        use = bandwidth.RailUse(aligned=True, others=others, healthy=pool.is_healthy)
        shares.extend([bandwidth.compute_rail_bandwidth(use) / rail_count] * len(pool.need.rails))
    return tuple(shares)


def _count_pods_per_nic(
    pool: node_facts.PoolAvailability,
    peer_usage: int,
    signature: scheduling_signature.SchedulingSignature,
    further_pods: int,
) -> int:
    """Return the pods per NIC of a pool with `further_pods` further pods, evenly distributed over the NICs."""
    one_pod_per_nic = signature.count_devices_of_nics(pool.need)
    is_requested = signature.requests.get(pool.need.resource, 0) > 0
    others = max(0, pool.allocatable - pool.free - (peer_usage if is_requested else 0))
    gang = peer_usage + further_pods * pool.need.amount
    if pool.need.amount > one_pod_per_nic:  # several devices of one NIC: a pod does not share a NIC with itself
        gang = gang * one_pod_per_nic // pool.need.amount
    return max(1, -(-(others + gang) // one_pod_per_nic))
