"""Finds why a node is filtered for pods with one scheduling signature, by docs/interface.md 7.3."""

from collections.abc import Sequence
from typing import NamedTuple

from railwright.fabric import intent, resources
from railwright.fabric.claims import objects, pair_demand
from railwright.fabric.placement.nodes import node_facts, numa, scheduling_signature
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class Refusal(NamedTuple):
    """The reason to filter a node."""

    cause: reason.Reason | None = None  # None if the pod fits
    is_unresolvable: bool = False  # the pod would not fit even if all other pods left the node


def find_refusal(
    signature: scheduling_signature.SchedulingSignature,
    facts: node_facts.NodeFacts,
    pools: tuple[node_facts.PoolAvailability, ...],
) -> Refusal:
    """Return why the node is filtered, by docs/interface.md 7.3."""
    placement = signature.fabric.placement
    refusal = _find_rails_refusal(_list_strict_pools(signature, pools))
    if not refusal.cause and facts.used_elsewhere:
        refusal = Refusal(_find_assumed_elsewhere(signature, facts))
    if not refusal.cause and facts.pairs.missing is not None:
        refusal = Refusal(_describe_pair(signature, facts.pairs.missing))
    if not refusal.cause and placement.numa == "required":
        refusal = _find_numa_refusal(signature, facts)
    return refusal if refusal.cause else Refusal(facts.admission_error, facts.is_never_admissible)


def _list_strict_pools(
    signature: scheduling_signature.SchedulingSignature, pools: tuple[node_facts.PoolAvailability, ...]
) -> Sequence[node_facts.PoolAvailability]:
    """Return the pools without which the pod cannot run on a node.

    A rail that a claim names is one of them, whatever the policy says, because the allocator gives no other one.
    """
    if signature.fabric.claims is not None:
        return [pool for pool in pools if signature.requests.get(pool.need.resource, 0) > 0]
    return pools if signature.fabric.placement.rails == "required" else ()


def _find_assumed_elsewhere(
    signature: scheduling_signature.SchedulingSignature, facts: node_facts.NodeFacts
) -> reason.Reason | None:
    """Return a reason if a requested device is free except for an assumed pod of another scheduler.

    Applies with any policy: the requesting scheduler does not know that pod, and kubelet would reject the later one.
    """
    for name, free, used_elsewhere in zip(signature.devices, facts.free, facts.used_elsewhere, strict=True):
        amount = signature.requests.get(name, 0)
        if free < amount <= free + used_elsewhere:
            label = next((need.label for need in signature.needs if need.resource == name), name)
            return describe_assumed_elsewhere(label, name, free, amount)
    return None


def describe_assumed_elsewhere(label: str, resource: str, free: int, needed: int, node: str = "") -> reason.Reason:
    """Return the reason that an unbound pod of another scheduler has the device; amounts in milli-units."""
    return reason.make(
        Code.DEVICE_ASSUMED_ELSEWHERE,
        device=label,
        resource=intent.format_resource(resource),
        free=max(0, free) // resources.UNIT,
        needed=needed // resources.UNIT,
        node=node,
    )


def _find_rails_refusal(pools: Sequence[node_facts.PoolAvailability]) -> Refusal:
    busy = None
    for pool in pools:
        if not pool.is_possible:
            return Refusal(_describe_rail(Code.RAIL_UNAVAILABLE, pool), is_unresolvable=True)
        if not pool.is_sufficient and busy is None:
            busy = _describe_rail(Code.RAIL_BUSY, pool)
    return Refusal(busy)


def _describe_rail(code: Code, pool: node_facts.PoolAvailability) -> reason.Reason:
    return reason.make(
        code,
        rail=pool.need.label,
        resource=intent.format_resource(pool.need.resource),
        free=max(0, pool.free // resources.UNIT),
        allocatable=pool.allocatable // resources.UNIT,
        needed=pool.need.amount // resources.UNIT,
    )


def _describe_pair(signature: scheduling_signature.SchedulingSignature, pair: pair_demand.Pair) -> reason.Reason:
    labels = {need.resource: need.label for need in signature.needs}
    devices = [
        (labels.get(kind.name, kind.name.removeprefix(objects.IMPLICIT_RESOURCE_PREFIX)), count)
        for kind, count in pair.devices
    ]
    return reason.make(Code.PAIR_BUSY, devices=reason.take_first(devices), attribute=pair.attribute)


def _find_numa_refusal(signature: scheduling_signature.SchedulingSignature, facts: node_facts.NodeFacts) -> Refusal:
    demand = signature.full_demand
    if not facts.zones or not demand.accelerators or not demand.pools:
        return Refusal()
    best = numa.assign(facts.zones, demand)
    if best is None or not best.is_aligned:
        ideal = numa.assign(facts.allocatable_zones, demand)
        if ideal is None or not ideal.is_aligned:
            return Refusal(reason.make(Code.NUMA_ALIGNMENT_UNAVAILABLE), is_unresolvable=True)
        return Refusal(reason.make(Code.NUMA_ALIGNMENT_BUSY))
    return Refusal()
