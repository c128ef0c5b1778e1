"""Evaluates a class of nodes for one scheduling signature, once for all equal nodes and equal pods.

The input is the state of a node (`Facts`, hashable). The output (`Standing`) has the reason to filter the node, the
modelled bandwidth per slot, and the inputs of all score terms except locality.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement import bandwidth, numa, planner, profile, rails

MOST_MEMBERS = 64  # upper limit for the slots of one node; a larger number counts as this


class Facts(NamedTuple):
    """Node state that determines its evaluation. Amounts in milli-units, in the order of the signature's `devices`."""

    eligible: bool
    shape: str
    others: int  # pods that fit by CPU, memory and number of pods, at most MOST_MEMBERS
    free: tuple[int, ...]
    allocatable: tuple[int, ...]
    capacity: tuple[int, ...]
    # used by peers of the requesting pod, which share its NICs; includes rails they use without requesting them
    own: tuple[int, ...]
    zones: numa.Zones
    whole: numa.Zones  # allocatable, as if no pod ran on the node
    kubelet: str  # kubelet's admission error for such a pod; "" if there is none
    hopeless: bool  # kubelet would reject the pod even on the empty node
    elsewhere: tuple[int, ...] = ()  # taken by assumed pods of other schedulers, not in `free`; () if there are none


class RailStanding(msgspec.Struct, frozen=True):
    """Availability of one device pool on a node. Amounts in milli-units."""

    need: rails.Need
    free: int
    allocatable: int
    capacity: int

    @property
    def sufficient(self) -> bool:
        """True if enough devices are free."""
        return self.free >= self.need.amount

    @property
    def possible(self) -> bool:
        """True if the node has enough allocatable devices; otherwise waiting does not help."""
        return self.allocatable >= self.need.amount > 0

    @property
    def healthy(self) -> bool:
        """True if all devices of the plugin are allocatable."""
        return self.allocatable >= self.capacity


class Standing(msgspec.Struct, frozen=True):
    """The evaluation of one node class for one scheduling signature."""

    facts: Facts
    want: numa.Want
    rails: tuple[RailStanding, ...]
    spots: tuple[numa.Spot, ...]  # NUMA assignments of one pod after another; () if the layout is unknown
    grade: planner.Grade
    refusal: str  # message for the user if the node is filtered; "" if the pod fits
    unresolvable: bool  # the pod would not fit even if all other pods left the node
    aligned: bool | None  # GPUs and rails can be on the same NUMA nodes; None if the layout is unknown
    packed: Mapping[str, tuple[int, int, int]]  # accelerator or pool -> (free, allocatable, requested by this pod)

    @property
    def rails_there(self) -> int:
        """Return the bit mask of the needed rails that the node has, free or not; all bits if the pod needs no rail."""
        if not self.rails:
            return planner.ALL_RAILS
        there = [pool.allocatable > 0 for pool in self.rails for _ in pool.need.rails]
        return sum(1 << bit for bit, is_there in enumerate(there) if is_there)


def of(kind: profile.Profile, facts: Facts) -> Standing:
    """Evaluate nodes with these facts."""
    pools = _pools(kind, facts)
    refusal, unresolvable = _refusal(kind, facts, pools)
    slots = min(facts.others, *(_slots(kind, facts)), MOST_MEMBERS)
    spots = numa.members(facts.zones, kind.want, slots) if facts.zones and slots else ()
    return Standing(
        facts=facts,
        want=kind.want,
        rails=pools,
        spots=spots,
        grade=_grade(kind, facts, pools, spots, 0 if refusal or not facts.eligible else slots),
        refusal=refusal,
        unresolvable=unresolvable,
        aligned=_alignment(kind, spots[0]) >= 1.0 if spots else None,
        packed={
            name: (free, allocatable, kind.requests.get(name, 0))
            for name, free, allocatable in zip(kind.devices, facts.free, facts.allocatable, strict=True)
            if kind.requests.get(name, 0) > 0
        },
    )


def _pools(kind: profile.Profile, facts: Facts) -> tuple[RailStanding, ...]:
    offset = len(kind.devices) - len(kind.needs)
    return tuple(
        RailStanding(
            need=need,
            free=facts.free[offset + index],
            allocatable=facts.allocatable[offset + index],
            capacity=facts.capacity[offset + index],
        )
        for index, need in enumerate(kind.needs)
    )


def _slots(kind: profile.Profile, facts: Facts) -> list[int]:
    """Return the slots by each requested device. Rails needed only by record, annotation or policy are no limit."""
    return [
        max(0, free // kind.requests[name])
        for name, free in zip(kind.devices, facts.free, strict=True)
        if kind.requests.get(name, 0) > 0
    ]


def _grade(
    kind: profile.Profile, facts: Facts, pools: tuple[RailStanding, ...], spots: tuple[numa.Spot, ...], slots: int
) -> planner.Grade:
    shares = _shares(kind, facts, pools)
    crowded = () if kind.alone else tuple(_shares(kind, facts, pools, more) for more in range(2, slots + 1))
    untouched = all(free >= total for free, total in zip(facts.free, facts.allocatable, strict=True))
    if kind.fabric.placement.numa == "ignore" or not spots:
        alignments, compact = (1.0,) * slots, slots
    else:
        alignments = tuple(sorted((_alignment(kind, spot) for spot in spots[:slots]), reverse=True))
        compact = _compact(kind, facts, spots[:slots])
    return planner.Grade(
        shape=facts.shape,
        rails=sum(1 << bit for bit, share in enumerate(shares) if share > 0),
        shares=shares,
        alignments=alignments,
        untouched=untouched,
        compact=compact,
        crowded=crowded if any(each != shares for each in crowded) else (),
    )


def _compact(kind: profile.Profile, facts: Facts, spots: tuple[numa.Spot, ...]) -> int:
    """Return the slots that use no more NUMA nodes than on an empty node. For a single-pod job only its GPUs count."""
    want = numa.Want(accelerators=kind.want.accelerators, pools=()) if kind.alone else kind.want
    if kind.alone:
        spots = numa.members(facts.zones, want, len(spots))
    ideal = numa.spot(facts.whole, want)
    fewest = len(ideal.zones) if ideal else len(facts.zones)
    return sum(1 for spot in spots if len(spot.zones) <= fewest)


def _alignment(kind: profile.Profile, spot: numa.Spot) -> float:
    """Return the NUMA factor, 0..1, of a pod's rail bandwidth: less than 1 if rails are on another NUMA node."""
    wanted = sum(amount for _, amount in kind.want.pools) // resources.UNIT
    if spot.aligned or not wanted:
        return 1.0
    return (spot.local + bandwidth.MISALIGNED * (wanted - spot.local)) / wanted


def _shares(kind: profile.Profile, facts: Facts, pools: tuple[RailStanding, ...], more: int = 1) -> tuple[float, ...]:
    """Return the bandwidth of each needed rail as a share of all needed rails, for each of `more` further pods.

    Pods share NICs with each other, with peers and with other jobs. Degraded rails count less.
    """
    wanted = sum(len(pool.need.rails) for pool in pools)
    offset = len(kind.devices) - len(kind.needs)
    shares: list[float] = []
    for index, pool in enumerate(pools):
        count = len(pool.need.rails)
        others = _pods_on_a_nic(pool, facts.own[offset + index], kind, more) - 1
        each = bandwidth.rail(bandwidth.RailUse(aligned=True, others=others, healthy=pool.healthy))
        enough = min(1.0, max(0, pool.free) / pool.need.amount)
        shares.extend([each * enough / wanted] * count)
    return tuple(shares)


def _pods_on_a_nic(pool: RailStanding, own: int, kind: profile.Profile, more: int) -> int:
    """Return the pods per NIC of a pool with `more` further pods, assuming an even distribution over the NICs."""
    nics = sum(1 for rail in kind.fabric.rails if rail.resource == pool.need.resource) or 1
    whole = nics * max(1, kind.fabric.devices_per_rail) * resources.UNIT  # one pod on every NIC
    counted = kind.requests.get(pool.need.resource, 0) > 0
    others = max(0, pool.allocatable - pool.free - (own if counted else 0))
    gang = own + more * pool.need.amount
    if pool.need.amount > whole:  # several devices of one NIC: a pod does not share a NIC with itself
        gang = gang * whole // pool.need.amount
    return max(1, -(-(others + gang) // whole))


def _refusal(kind: profile.Profile, facts: Facts, pools: tuple[RailStanding, ...]) -> tuple[str, bool]:
    """Return (message, True if waiting cannot help) by docs/interface.md 7.3; message "" if the pod fits."""
    placement = kind.fabric.placement
    found = _rails_refusal(pools) if placement.rails == "required" else ("", False)
    if not found[0] and facts.elsewhere:
        found = _promised_refusal(kind, facts), False
    if not found[0] and placement.numa == "required":
        found = _numa_refusal(kind, facts)
    return found if found[0] else (facts.kubelet, facts.hopeless)


def _promised_refusal(kind: profile.Profile, facts: Facts) -> str:
    """Return a message if a requested device is free except for an assumed pod of another scheduler, else "".

    Applies with any policy: the requesting scheduler does not know that pod, and kubelet would reject the later one.
    """
    for name, free, elsewhere in zip(kind.devices, facts.free, facts.elsewhere, strict=True):
        amount = kind.requests.get(name, 0)
        if free < amount <= free + elsewhere:
            label = next((need.label for need in kind.needs if need.resource == name), name)
            return promised_elsewhere(label, name, free, amount)
    return ""


def promised_elsewhere(label: str, resource: str, free: int, needed: int, node: str = "") -> str:
    """Format the message that a device is allocated to an unbound pod of another scheduler; amounts in milli-units."""
    at = f" of {node}" if node else ""
    amounts = f"{max(0, free) // resources.UNIT} {resource} left, {needed // resources.UNIT} needed"
    return f"railwright: {label}{at} is promised to a pod of another scheduler that is not bound yet: {amounts}"


def _rails_refusal(pools: tuple[RailStanding, ...]) -> tuple[str, bool]:
    busy = ""
    for pool in pools:
        wanted = pool.need.amount // resources.UNIT
        if not pool.possible:
            has = pool.allocatable // resources.UNIT
            resource = pool.need.resource
            never = f"railwright: the node cannot give {pool.need.label}: {wanted} {resource} needed, {has} allocatable"
            return never, True
        if not pool.sufficient and not busy:
            left = max(0, pool.free // resources.UNIT)
            busy = (
                f"railwright: {pool.need.label} is busy: {left} of {pool.allocatable // resources.UNIT} "
                f"{pool.need.resource} free, {wanted} needed"
            )
    return busy, False


def _numa_refusal(kind: profile.Profile, facts: Facts) -> tuple[str, bool]:
    want = kind.want
    if not facts.zones or not want.accelerators or not want.pools:
        return "", False
    best = numa.spot(facts.zones, want)
    if best is None or not best.aligned:
        ideal = numa.spot(facts.whole, want)
        never = ideal is None or not ideal.aligned
        when = "on this kind of node" if never else "free now"
        told = f"railwright: no NUMA nodes have the requested GPUs beside the requested rails {when}"
        return f"{told} (placement.numa: required)", never
    return "", False
