"""The modelled bus bandwidth of a placed gang, as a share of what the best placement anywhere could give (0..1).

Owns how members and ring edges make a gang's value: its worst member over the rails that all members have, and its
worst crossing of a domain (scheduling notes 3.4). The constants are `railwright.fabric.placement.bandwidth`'s.
Modelled, never measured: latency, congestion by other jobs and NCCL's own choices are left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import msgspec

from railwright.fabric.placement import bandwidth
from railwright.simulator import kubelet, world


class Value(msgspec.Struct, frozen=True):
    """What a placement is worth, and why."""

    total: float  # 0..1
    member: float  # the worst member's
    fabric: float  # the worst crossing's
    leaves: int  # leaf groups used
    crossings: int  # ring edges between different leaves
    disordered: int  # ring edges over all levels that another order of ranks on the same nodes would not have


def of_gang(on: world.World, demand: kubelet.Demand, ranks: Sequence[tuple[int, kubelet.Grant]]) -> Value:
    """The value of a gang whose pod of rank i is on host `ranks[i][0]` with that grant."""
    hosts = [host for host, _ in ranks]
    fabric, crossings, disordered = ring(on, demand, hosts)
    member = weakest(ranks, demand)
    leaves = len({on.hosts[host].chain[:1] for host in hosts})
    return Value(min(member, fabric), member, fabric, leaves, crossings, disordered)


def from_free(free: world.Free, hosts: Iterable[int]) -> list[tuple[int, kubelet.Grant]]:
    """Each rank's host and grant: a host's pods one after the other, by what it had free for the whole gang."""
    used: dict[int, int] = defaultdict(int)
    ranks = []
    for host in hosts:
        ranks.append((host, free.grants[host][used[host]]))
        used[host] += 1
    return ranks


def weakest(ranks: Sequence[tuple[int, kubelet.Grant]], demand: kubelet.Demand) -> float:
    """The worst member's value over the rails that every member has; those of one pool are equal to each other."""
    grants = [grant for _, grant in ranks]
    if not demand.named or not demand.rails:
        return min((grant.value for grant in grants), default=1.0)
    common = frozenset.intersection(*(frozenset(rail for rail, _ in grant.uses) for grant in grants))
    together: dict[int, list[kubelet.Grant]] = defaultdict(list)
    for host, grant in ranks:
        together[host].append(grant)
    return min(over(mates, common, demand) for mates in together.values())


def over(mates: Sequence[kubelet.Grant], rails: Collection[int] | None, demand: kubelet.Demand) -> float:
    """What the worst of a gang's members on one host gives over some of its rails, of all it wants; None: over all.

    NCCL takes pods with host names of their own for different hosts, so that mates on one NIC share it.
    """
    if not demand.named:
        return min(grant.value for grant in mates)
    pods: dict[int, int] = defaultdict(int)
    for grant in mates:
        for rail, _ in grant.uses:
            pods[rail] += 1
    return min(
        sum(
            value * (1 + others) / (pods[rail] + others)
            for (rail, value), others in zip(grant.uses, grant.strangers, strict=True)
            if rails is None or rail in rails
        )
        / demand.rails
        for grant in mates
    )


def ring(on: world.World, demand: kubelet.Demand, hosts: Sequence[int]) -> tuple[float, int, int]:
    """(worst crossing's share of a link, edges between leaves, edges that only the order costs) of a ring by rank."""
    worst, crossings, disordered = 1.0, 0, 0
    for level in range(len(on.levels)):
        domains = [on.hosts[host].chain[level] for host in hosts]
        leaving = dict.fromkeys(domains, 0)
        if len(leaving) < 2:
            continue
        for here, following in zip(domains, [*domains[1:], domains[0]], strict=True):
            leaving[here] += here != following
        worst = min(worst, *(exit_of(on, demand, domain, edges) for domain, edges in leaving.items()))
        edges = sum(leaving.values())
        crossings += edges if level == 0 else 0
        disordered += edges - len(leaving)
    return worst, crossings, disordered


def exit_of(on: world.World, demand: kubelet.Demand, domain: int, crossings: int = 1) -> float:
    """What each of so many ring edges leaving a domain can carry, of what the gang's rails give."""
    it = on.domains[domain]
    links = on.rails / demand.rails if on.bundled and demand.rails else 1.0
    return bandwidth.uplink(it.size, on.oversubscription[it.level], crossings, links)
