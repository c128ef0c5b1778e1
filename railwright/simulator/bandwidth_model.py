"""Models the bus bandwidth of a placed gang, as a share of an ideal placement's (0..1).

A gang is as fast as its slowest member, over the rails that all members have, and as its slowest crossing between
domains. The constants are those of `railwright.fabric.placement.bandwidth`. The bandwidth is modelled, never measured:
latency, congestion by other jobs and NCCL's own choices are left out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import msgspec

from railwright.fabric.placement import bandwidth
from railwright.simulator import cluster, kubelet


class GangBandwidth(msgspec.Struct, frozen=True):
    """The modelled bandwidth of a placement and its parts, 0..1."""

    total: float
    member: float  # of the slowest member
    fabric: float  # of the slowest crossing
    leaves: int  # leaves used
    crossings: int  # ring edges between different leaves
    rank_order_crossings: int  # ring edges over all levels that another order of ranks on the same nodes would avoid


def assess_gang(
    sim_cluster: cluster.Cluster, demand: kubelet.Demand, ranks: Sequence[tuple[int, kubelet.Grant]]
) -> GangBandwidth:
    """Return the bandwidth of a gang; `ranks[i]` is the host and the grant of rank i."""
    hosts = [host for host, _ in ranks]
    fabric, crossings, rank_order_crossings = assess_ring(sim_cluster, demand, hosts)
    member = find_slowest_member(ranks, demand)
    leaves = len({sim_cluster.hosts[host].chain[:1] for host in hosts})
    return GangBandwidth(min(member, fabric), member, fabric, leaves, crossings, rank_order_crossings)


def grant_ranks(free: cluster.FreeCapacity, hosts: Iterable[int]) -> list[tuple[int, kubelet.Grant]]:
    """Return host and grant of each rank. The n-th pod of a host gets the host's n-th grant."""
    used: dict[int, int] = defaultdict(int)
    ranks = []
    for host in hosts:
        ranks.append((host, free.grants[host][used[host]]))
        used[host] += 1
    return ranks


def find_slowest_member(ranks: Sequence[tuple[int, kubelet.Grant]], demand: kubelet.Demand) -> float:
    """Return the bandwidth of the slowest member, over the rails that all members have.

    Rails of one pool are interchangeable, so there all of a member's rails count.
    """
    grants = [grant for _, grant in ranks]
    if not demand.named or not demand.rails:
        return min((grant.value for grant in grants), default=1.0)
    common = frozenset.intersection(*(frozenset(rail for rail, _ in grant.uses) for grant in grants))
    by_host: dict[int, list[kubelet.Grant]] = defaultdict(list)
    for host, grant in ranks:
        by_host[host].append(grant)
    return min(compute_slowest_on_host(peers, common, demand) for peers in by_host.values())


def compute_slowest_on_host(
    peers: Sequence[kubelet.Grant], rails: Collection[int] | None, demand: kubelet.Demand
) -> float:
    """Return the bandwidth of the slowest of a gang's members on one host, over `rails` (None: all rails).

    NCCL treats pods with different host names as different hosts, so members on one NIC share its bandwidth.
    """
    if not demand.named:
        return min(grant.value for grant in peers)
    pods: dict[int, int] = defaultdict(int)
    for grant in peers:
        for rail, _ in grant.uses:
            pods[rail] = 1 if grant.is_alone else pods[rail] + 1
    return min(
        sum(
            value * (1 + others) / (pods[rail] + others)
            for (rail, value), others in zip(grant.uses, grant.other_pods, strict=True)
            if rails is None or rail in rails
        )
        / demand.rails
        for grant in peers
    )


def assess_ring(sim_cluster: cluster.Cluster, demand: kubelet.Demand, hosts: Sequence[int]) -> tuple[float, int, int]:
    """Return (bandwidth of the slowest crossing, edges between leaves, avoidable edges) of a ring in rank order."""
    slowest, crossings, avoidable = 1.0, 0, 0
    for level in range(len(sim_cluster.levels)):
        domains = [sim_cluster.hosts[host].chain[level] for host in hosts]
        leaving = dict.fromkeys(domains, 0)
        if len(leaving) < 2:
            continue
        for domain, next_domain in zip(domains, [*domains[1:], domains[0]], strict=True):
            leaving[domain] += domain != next_domain
        slowest = min(
            slowest,
            *(compute_uplink_bandwidth(sim_cluster, demand, domain, edges) for domain, edges in leaving.items()),
        )
        edges = sum(leaving.values())
        crossings += edges if level == 0 else 0
        avoidable += edges - len(leaving)
    return slowest, crossings, avoidable


def compute_uplink_bandwidth(
    sim_cluster: cluster.Cluster, demand: kubelet.Demand, domain: int, crossings: int = 1
) -> float:
    """Return what each of `crossings` ring edges that leave a domain can carry, relative to the gang's rails."""
    crossed = sim_cluster.domains[domain]
    links = sim_cluster.rails / demand.rails if sim_cluster.is_bundled and demand.rails else 1.0
    return bandwidth.compute_uplink_bandwidth(
        crossed.size, sim_cluster.oversubscription[crossed.level], crossings, links
    )
