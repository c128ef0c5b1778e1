"""Compares where a gang was placed with what was possible: leaves and modelled bandwidth.

Uses the planner's model: the slowest pod over the rails that all pods have, and the slowest uplink crossing of a ring
in rank order. The input is the node of each pod, the node's evaluation when the pod was placed, and the best plan.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import account, bandwidth, planner, standing

COMPACT, SPREAD, DEGRADED = "compact", "spread", "degraded"
ON_A_MATE = "a rail is missing on another pod's node"  # reason for a node that has no degradation itself
_NAMED = 3
_WORSE = 0.005  # smaller differences of bandwidth would be formatted as equal


class Place(msgspec.Struct, frozen=True):
    """One placed pod of the gang."""

    pod: str  # its name
    node: str
    leaf: topology.Domain
    stands: standing.Standing | None  # evaluation of the node just before the pod was placed; None if unknown


class Promise(msgspec.Struct, frozen=True):
    """The best plan for the whole gang at the time it was planned."""

    leaves: tuple[topology.Domain, ...]
    bandwidth: planner.Value
    bound: planner.Value
    exact: bool
    members: int  # unplaced pods when the plan was made


class Landing(msgspec.Struct, frozen=True):
    """The placement of a gang."""

    members: int
    leaves: Mapping[topology.Domain, int]  # leaf -> number of pods, in rank order
    bandwidth: planner.Value  # modelled
    why: tuple[str, ...]  # reasons for less than full bandwidth
    outside: tuple[str, ...]  # pods on leaves outside the plan, as "pod on node (leaf)"


def of(
    places: Sequence[Place],
    promise: Promise,
    sizes: Mapping[topology.Domain, int],
    oversubscription: Sequence[float],
    links: float = 1.0,
) -> Landing:
    """Assess the placement of pods given in rank order. `sizes` is the number of nodes of each domain.

    `links` is the number of uplinks available to each rail that the gang uses (`bandwidth.links_each`).
    """
    member, flaws = _weakest([place for place in places if place.stands is not None])
    crossing, told = _ring([place.leaf for place in places], sizes, oversubscription, links)
    value = min(member, crossing)
    why = [*(flaws if member <= value + _WORSE else ()), *(told if crossing <= value + _WORSE else ())]
    return Landing(
        members=len(places),
        leaves=Counter(place.leaf for place in places),
        bandwidth=value,
        why=tuple(why) if value < account.FULL else (),
        outside=tuple(
            f"{place.pod} on {place.node} ({topology.name_of(place.leaf)})"
            for place in places
            if place.leaf not in promise.leaves
        ),
    )


def outcome(landing: Landing, promise: Promise) -> str:
    """Return SPREAD if more leaves are used than necessary, DEGRADED if only bandwidth is lower, else COMPACT."""
    if len(landing.leaves) > len(promise.leaves) > 0:
        return SPREAD
    return DEGRADED if landing.bandwidth < promise.bandwidth - _WORSE else COMPACT


def sentence(landing: Landing, promise: Promise) -> str:
    """Format the placement for users."""
    on = [f"{topology.name_of(leaf)} {count}" for leaf, count in landing.leaves.items()]
    parts = [
        f"{landing.members} pods run on {_leaves(len(on))} ({_listed(on)}); {len(promise.leaves)} was the minimum",
        f"modelled bandwidth {landing.bandwidth:.2f}, best possible {promise.bandwidth:.2f}",
    ]
    if not promise.exact and promise.bound > promise.bandwidth + _WORSE:
        parts[-1] += f" (upper bound {promise.bound:.2f})"
    if landing.why:
        parts[-1] += f": {_listed(landing.why)}"
    if landing.outside and outcome(landing, promise) != COMPACT:
        parts.append(f"not on the planned leaves: {_listed(landing.outside)}")
    return "; ".join(parts)


def _weakest(places: Sequence[Place]) -> tuple[planner.Value, list[str]]:
    """Return (bandwidth of the slowest pod, the degradations of the nodes of the slowest pods)."""
    grades = [place.stands.grade for place in places if place.stands]
    wide = [grade for grade in grades if grade.shares]
    common = functools.reduce(lambda one, other: one & other, (grade.rails for grade in wide), -1)
    values = [_member(grade, common) for grade in grades]
    worst = min(values, default=1.0)
    lost = [
        f"{place.node}: {', '.join(account.flaws(place.stands)) or ON_A_MATE}"
        for place, value in zip(places, values, strict=True)
        if place.stands and value <= worst + _WORSE
    ]
    return worst, lost


def _member(grade: planner.Grade, rails: int) -> planner.Value:
    return grade.share(rails) * (grade.alignments[0] if grade.alignments else 1.0)


def _ring(
    leaves: Sequence[topology.Domain],
    sizes: Mapping[topology.Domain, int],
    oversubscription: Sequence[float],
    links: float,
) -> tuple[planner.Value, list[str]]:
    """Return (bandwidth of the slowest uplink crossing, messages for its domains) of a ring in this order."""
    worst = 1.0
    told: list[str] = []
    for level, ratio in enumerate(oversubscription):
        domains = [leaf[level:] for leaf in leaves]
        if ratio <= 1 or len(set(domains)) < 2:
            continue
        leaving: Counter[topology.Domain] = Counter()
        for here, following in zip(domains, [*domains[1:], domains[0]], strict=True):
            leaving[here] += here != following
        for domain, edges in leaving.items():
            carried = bandwidth.uplink(sizes.get(domain, 1), ratio, edges, links) if domain and domain[0] else 1.0
            if carried < worst - _WORSE:
                worst, told = carried, []
            if carried < account.FULL and carried <= worst + _WORSE:
                told.append(account.uplinks(domain, sizes.get(domain, 1), ratio, carried, edges, links))
    return worst, told


def _leaves(count: int) -> str:
    return "1 leaf" if count == 1 else f"{count} leaves"


def _listed(items: Sequence[str]) -> str:
    rest = len(items) - _NAMED
    return ", ".join(items[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
