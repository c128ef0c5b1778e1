"""What became of a gang once all of it was placed: the leaves it is on and the bandwidth it can be expected to have.

Owns the same model as the planner, turned around: the worst member over the rails that all have, and the worst crossing
of a ring in order of rank. It is told where the members are and how their nodes stood when each was placed, and what
had been possible; it knows no scheduler and gives no advice.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import account, bandwidth, planner, standing

COMPACT, SPREAD, DEGRADED = "compact", "spread", "degraded"
ON_A_MATE = "some rail is missing on a mate"  # what is wrong with a node that has nothing wrong itself
_NAMED = 3
_WORSE = 0.005  # of the bandwidth: less would be shown as no difference


class Place(msgspec.Struct, frozen=True):
    """One member."""

    pod: str  # its name
    node: str
    leaf: topology.Domain
    stands: standing.Standing | None  # of the node, just before this member came; None where nobody remembers


class Promise(msgspec.Struct, frozen=True):
    """What was possible for the whole gang when it was planned."""

    leaves: tuple[topology.Domain, ...]
    bandwidth: planner.Value
    bound: planner.Value
    exact: bool
    members: int  # those to be placed when the plan was made


class Landing(msgspec.Struct, frozen=True):
    """Where a gang is."""

    members: int
    leaves: Mapping[topology.Domain, int]  # leaf -> members, in order of rank
    bandwidth: planner.Value  # modelled
    why: tuple[str, ...]  # it is not the full bandwidth
    outside: tuple[str, ...]  # members on leaves that the promise does not name, as "pod on node (leaf)"


def of(
    places: Sequence[Place],
    promise: Promise,
    sizes: Mapping[topology.Domain, int],
    oversubscription: Sequence[float],
    links: float = 1.0,
) -> Landing:
    """The landing of members given in order of rank; `sizes` are the nodes of every domain.

    `links` is how many of a node's links upwards there are for each that the gang uses (`bandwidth.links_each`).
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
    """One word: SPREAD over more leaves than had been possible, DEGRADED on as few, else COMPACT."""
    if len(landing.leaves) > len(promise.leaves) > 0:
        return SPREAD
    return DEGRADED if landing.bandwidth < promise.bandwidth - _WORSE else COMPACT


def sentence(landing: Landing, promise: Promise) -> str:
    """All of it, for people."""
    on = [f"{topology.name_of(leaf)} {count}" for leaf, count in landing.leaves.items()]
    parts = [
        f"{landing.members} pods are on {_leaves(len(on))} ({_listed(on)}); {len(promise.leaves)} had been possible",
        f"modelled bandwidth {landing.bandwidth:.2f} of {promise.bandwidth:.2f} possible",
    ]
    if not promise.exact and promise.bound > promise.bandwidth + _WORSE:
        parts[-1] += f" (at most {promise.bound:.2f})"
    if landing.why:
        parts[-1] += f": {_listed(landing.why)}"
    if landing.outside and outcome(landing, promise) != COMPACT:
        parts.append(f"not on the planned leaves: {_listed(landing.outside)}")
    return "; ".join(parts)


def _weakest(places: Sequence[Place]) -> tuple[planner.Value, list[str]]:
    """(the worst member's share, what is wrong on the nodes of the worst)."""
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
    """(the worst crossing's share of a link, the domains whose uplinks it is) of a ring in this order."""
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
