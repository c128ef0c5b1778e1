"""How a kind of node stands towards a kind of pod: worked out once for all nodes and pods alike.

Owns the step from what is free on a node (`Facts`, hashable) to what it is worth (`Standing`): the refusal, the
modelled bandwidth of each member it could hold, and the terms of the score but locality.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement import bandwidth, numa, planner, profile, rails

MOST_MEMBERS = 64  # of one gang on one node; a node of more slots is counted as one of so many


class Facts(NamedTuple):
    """Everything of a node that matters to a profile. Amounts in milli-units, by `Profile.devices`."""

    eligible: bool
    shape: str
    others: int  # members that fit by what is not a device (CPU, memory, pods), at most MOST_MEMBERS
    free: tuple[int, ...]
    allocatable: tuple[int, ...]
    capacity: tuple[int, ...]
    own: tuple[
        int, ...
    ]  # used by peers of the asking pod, which share its NICs; rails that they use count even if not requested
    zones: numa.Zones
    whole: numa.Zones  # the same node with nothing on it
    kubelet: str  # the sentence why its kubelet would reject such a pod; "" where it would not
    hopeless: bool  # kubelet would also on the empty node
    elsewhere: tuple[int, ...] = ()  # taken by announced pods of other schedulers, not in `free`; () where nothing is


class RailStanding(msgspec.Struct, frozen=True):
    """One pool the pod needs, on a node. Amounts in milli-units."""

    need: rails.Need
    free: int
    allocatable: int
    capacity: int

    @property
    def sufficient(self) -> bool:
        """True when the devices are free now."""
        return self.free >= self.need.amount

    @property
    def possible(self) -> bool:
        """True when the node could ever give them: otherwise waiting does not help."""
        return self.allocatable >= self.need.amount > 0

    @property
    def healthy(self) -> bool:
        """True when the device plugin offers all it has."""
        return self.allocatable >= self.capacity


class Standing(msgspec.Struct, frozen=True):
    """One kind of node, for one profile."""

    facts: Facts
    want: numa.Want
    rails: tuple[RailStanding, ...]
    spots: tuple[numa.Spot, ...]  # of successive members, where the NUMA layout is known
    grade: planner.Grade
    refusal: str  # "" where it fits: the sentence shown to the user
    unresolvable: bool  # True: no pod leaving this node would help
    aligned: bool | None  # whether its GPUs and rails can be had beside each other; None where nothing is known
    packed: Mapping[str, tuple[int, int, int]]  # accelerator or pool -> (free, allocatable, taken by this pod)

    @property
    def rails_there(self) -> int:
        """Bit mask of the wanted rails that the node has, free or not; all where the pod wants none."""
        if not self.rails:
            return planner.ALL_RAILS
        there = [pool.allocatable > 0 for pool in self.rails for _ in pool.need.rails]
        return sum(1 << bit for bit, is_there in enumerate(there) if is_there)


def of(kind: profile.Profile, facts: Facts) -> Standing:
    """How nodes with these facts stand."""
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
    """Members that fit by each device they request; what is only wanted, by record or policy, limits nobody."""
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
    """How many members take no more NUMA nodes than on an empty node; of a job of one pod its GPUs alone count."""
    want = numa.Want(accelerators=kind.want.accelerators, pools=()) if kind.alone else kind.want
    if kind.alone:
        spots = numa.members(facts.zones, want, len(spots))
    ideal = numa.spot(facts.whole, want)
    fewest = len(ideal.zones) if ideal else len(facts.zones)
    return sum(1 for spot in spots if len(spot.zones) <= fewest)


def _alignment(kind: profile.Profile, spot: numa.Spot) -> float:
    """The share of its rails' bandwidth a member keeps where some of them are on another NUMA node."""
    wanted = sum(amount for _, amount in kind.want.pools) // resources.UNIT
    if spot.aligned or not wanted:
        return 1.0
    return (spot.local + bandwidth.MISALIGNED * (wanted - spot.local)) / wanted


def _shares(kind: profile.Profile, facts: Facts, pools: tuple[RailStanding, ...], more: int = 1) -> tuple[float, ...]:
    """What each wanted rail gives of all that is wanted, by the pods on its NIC and by its health.

    It is that of each of so many more members; they share NICs with each other, with mates and with other jobs.
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
    """Pods on each NIC of a pool with so many more members, if devices are handed out evenly over the NICs."""
    nics = sum(1 for rail in kind.fabric.rails if rail.resource == pool.need.resource) or 1
    whole = nics * max(1, kind.fabric.devices_per_rail) * resources.UNIT  # one pod on every NIC
    counted = kind.requests.get(pool.need.resource, 0) > 0
    others = max(0, pool.allocatable - pool.free - (own if counted else 0))
    gang = own + more * pool.need.amount
    if pool.need.amount > whole:  # several devices of one NIC: a pod shares nothing with itself
        gang = gang * whole // pool.need.amount
    return max(1, -(-(others + gang) // whole))


def _refusal(kind: profile.Profile, facts: Facts, pools: tuple[RailStanding, ...]) -> tuple[str, bool]:
    """The sentence that refuses a node, and whether waiting cannot help (ruling 21)."""
    placement = kind.fabric.placement
    found = _rails_refusal(pools) if placement.rails == "required" else ("", False)
    if not found[0] and facts.elsewhere:
        found = _promised_refusal(kind, facts), False
    if not found[0] and placement.numa == "required":
        found = _numa_refusal(kind, facts)
    return found if found[0] else (facts.kubelet, facts.hopeless)


def _promised_refusal(kind: profile.Profile, facts: Facts) -> str:
    """The sentence where a requested device would be free, had another scheduler not announced a pod that takes it.

    Holds whatever the policy prefers: the asking scheduler cannot know of that pod, and kubelet would reject the later.
    """
    for name, free, elsewhere in zip(kind.devices, facts.free, facts.elsewhere, strict=True):
        amount = kind.requests.get(name, 0)
        if free < amount <= free + elsewhere:
            label = next((need.label for need in kind.needs if need.resource == name), name)
            return promised_elsewhere(label, name, free, amount)
    return ""


def promised_elsewhere(label: str, resource: str, free: int, needed: int, node: str = "") -> str:
    """The sentence that a device of a node is to go to a pod of another scheduler; amounts in milli-units."""
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
