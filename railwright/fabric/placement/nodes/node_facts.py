"""Defines the state of a node that determines its evaluation for one scheduling signature, and why it is filtered."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, resources
from railwright.fabric.claims import device_pairs, objects
from railwright.fabric.placement.nodes import numa, scheduling_signature
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

MAX_SLOTS_PER_NODE = 64  # upper limit for the slots of one node; a larger number counts as this


class NodeFacts(NamedTuple):
    """Node state that determines its evaluation. Amounts in milli-units, in the order of the signature's `devices`."""

    eligible: bool
    shape: str
    fits_by_other_resources: int  # pods that fit by CPU, memory and number of pods, at most MAX_SLOTS_PER_NODE
    free: tuple[int, ...]
    allocatable: tuple[int, ...]
    capacity: tuple[int, ...]
    # used by peers of the requesting pod, which share its NICs; includes rails they use without requesting them
    peer_usage: tuple[int, ...]
    zones: numa.Zones
    allocatable_zones: numa.Zones  # allocatable, as if no pod ran on the node
    admission_error: reason.Reason | None  # kubelet's admission error for such a pod
    is_never_admissible: bool  # kubelet would reject the pod even on the empty node
    used_elsewhere: tuple[
        int, ...
    ] = ()  # taken by assumed pods of other schedulers, not in `free`; () if there are none
    pairs: device_pairs.FreePairs = (
        device_pairs.UNLIMITED
    )  # of the pod's claims; UNLIMITED if other resources allow as few pods
    further: tuple[int, ...] = ()  # free devices, included in `free`, that only pods with such claims may get


class PoolAvailability(msgspec.Struct, frozen=True):
    """Availability of one device pool on a node. Amounts in milli-units."""

    need: intent.Need
    free: int
    allocatable: int
    capacity: int

    @property
    def is_sufficient(self) -> bool:
        """True if enough devices are free."""
        return self.free >= self.need.amount

    @property
    def is_possible(self) -> bool:
        """True if the node has enough allocatable devices; otherwise waiting does not help."""
        return self.allocatable >= self.need.amount > 0

    @property
    def is_healthy(self) -> bool:
        """True if all devices of the plugin are allocatable."""
        return self.allocatable >= self.capacity


class Refusal(NamedTuple):
    """The reason to filter a node."""

    cause: reason.Reason | None = None  # None if the pod fits
    is_unresolvable: bool = False  # the pod would not fit even if all other pods left the node


def find_refusal(
    signature: scheduling_signature.SchedulingSignature,
    facts: NodeFacts,
    pools: tuple[PoolAvailability, ...],
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
    signature: scheduling_signature.SchedulingSignature, pools: tuple[PoolAvailability, ...]
) -> Sequence[PoolAvailability]:
    """Return the pools without which the pod cannot run on a node.

    A rail that a claim names is one of them, whatever the policy says, because the allocator gives no other one. Where
    it is not known which rails a claim takes, the other rails of the policy are none.
    """
    if signature.fabric.claims is not None or signature.pairs.is_open:
        return [pool for pool in pools if signature.requests.get(pool.need.resource, 0) > 0]
    return pools if signature.fabric.placement.rails == "required" else ()


def _find_assumed_elsewhere(
    signature: scheduling_signature.SchedulingSignature, facts: NodeFacts
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


def _find_rails_refusal(pools: Sequence[PoolAvailability]) -> Refusal:
    busy = None
    for pool in pools:
        if not pool.is_possible:
            return Refusal(_describe_rail(Code.RAIL_UNAVAILABLE, pool), is_unresolvable=True)
        if not pool.is_sufficient and busy is None:
            busy = _describe_rail(Code.RAIL_BUSY, pool)
    return Refusal(busy)


def _describe_rail(code: Code, pool: PoolAvailability) -> reason.Reason:
    return reason.make(
        code,
        rail=pool.need.label,
        resource=intent.format_resource(pool.need.resource),
        free=max(0, pool.free // resources.UNIT),
        allocatable=pool.allocatable // resources.UNIT,
        needed=pool.need.amount // resources.UNIT,
    )


def _describe_pair(signature: scheduling_signature.SchedulingSignature, pair: device_pairs.Pair) -> reason.Reason:
    labels = {need.resource: need.label for need in signature.needs}
    devices = [
        (labels.get(kind.name, kind.name.removeprefix(objects.IMPLICIT_RESOURCE_PREFIX)), count)
        for kind, count in pair.devices
    ]
    return reason.make(Code.PAIR_BUSY, devices=reason.take_first(devices), attribute=pair.attribute)


def _find_numa_refusal(signature: scheduling_signature.SchedulingSignature, facts: NodeFacts) -> Refusal:
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
