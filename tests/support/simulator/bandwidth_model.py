"""Models the bus bandwidth of a placed gang, as a share of an ideal placement's (0..1), and finds the best placement.

A gang is as fast as its slowest member, and as its slowest crossing between domains. The constants are those of
`railwright.fabric.placement.bandwidth`. The bandwidth is modelled, never measured: latency, congestion by other jobs
and NCCL's own choices are left out.

The best placement of one gang on free resources has the most modelled bandwidth, then the fewest leaves. The result is
exact. It is the reference that the planner (`railwright.fabric.placement.gangs.planner`) is compared with, so it is
written independently and shares only the constants: a defect of the planner must not be one of the reference too. The
search tries every possible bandwidth, highest first. A bandwidth determines which nodes and which uplinks of domains
can provide it; because domains form a tree, it is enough to count whether the gang fits below one domain with such
uplinks. All pods of a gang are equal. Ranks are assigned domain by domain, so that only one ring edge leaves each
domain, the minimum.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric.placement import bandwidth
from simulator import cluster


class GangBandwidth(msgspec.Struct, frozen=True):
    """The modelled bandwidth of a placement and its parts, 0..1."""

    total: float
    member: float  # of the slowest member
    fabric: float  # of the slowest crossing
    leaves: int  # leaves used
    crossings: int  # ring edges between different leaves
    rank_order_crossings: int  # ring edges over all levels that another order of ranks on the same nodes would avoid


def assess_gang(
    sim_cluster: cluster.Cluster, demand: cluster.Demand, ranks: Sequence[tuple[int, cluster.Grant]]
) -> GangBandwidth:
    """Return the bandwidth of a gang; `ranks[i]` is the host and the grant of rank i."""
    hosts = [host for host, _ in ranks]
    fabric, crossings, rank_order_crossings = assess_ring(sim_cluster, demand, hosts)
    member = min((grant.value for _, grant in ranks), default=1.0)
    leaves = len({sim_cluster.hosts[host].chain[:1] for host in hosts})
    return GangBandwidth(min(member, fabric), member, fabric, leaves, crossings, rank_order_crossings)


def grant_ranks(free: cluster.FreeCapacity, hosts: Iterable[int]) -> list[tuple[int, cluster.Grant]]:
    """Return host and grant of each rank. The n-th pod of a host gets the host's n-th grant."""
    used: dict[int, int] = defaultdict(int)
    ranks = []
    for host in hosts:
        ranks.append((host, free.grants[host][used[host]]))
        used[host] += 1
    return ranks


def assess_ring(sim_cluster: cluster.Cluster, demand: cluster.Demand, hosts: Sequence[int]) -> tuple[float, int, int]:
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
    sim_cluster: cluster.Cluster, demand: cluster.Demand, domain: int, crossings: int = 1
) -> float:
    """Return what each of `crossings` ring edges that leave a domain can carry, relative to the gang's rails."""
    crossed = sim_cluster.domains[domain]
    links = sim_cluster.rails / demand.rails  # the rails of a node share uplinks
    return bandwidth.compute_uplink_bandwidth(
        crossed.size, sim_cluster.oversubscription[crossed.level], crossings, links
    )


# --- the optimum --------------------------------------------------------------------------------------------


Leaf = tuple[int, ...]
"""The full chain of domains of a leaf, closest first."""


class Optimum(msgspec.Struct, frozen=True):
    """The best placement of a gang."""

    value: float  # modelled bandwidth, 0..1
    hosts: tuple[int, ...]  # of each rank
    leaves: int


class Slots(msgspec.Struct, frozen=True):
    """The pods that each host fits at a minimum bandwidth, and their sum for each leaf."""

    hosts: Mapping[int, int]
    leaves: Mapping[Leaf, int]


def find_best(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, pods: int) -> Optimum | None:
    """Return the optimum for a gang; None if it does not fit. Among equals, prefer one without NUMA splits."""
    best = _find_best(sim_cluster, free, pods)
    if best is None or not any(grant.split for _, grant in grant_ranks(free, best.hosts)):
        return best
    unsplit = _find_best(sim_cluster, _remove_splits(free), pods)
    return unsplit if unsplit and unsplit.value >= best.value and unsplit.leaves <= best.leaves else best


def _find_best(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, pods: int) -> Optimum | None:
    if free.total < pods:
        return None
    for minimum in _list_thresholds(sim_cluster, free):
        slots = count_slots(sim_cluster, free, minimum)
        leaves = _select_in_best_domain(sim_cluster, free.demand, slots, pods, minimum)
        if leaves is not None:
            return _lay_out(sim_cluster, free, slots, leaves, pods)
    return None


def count_slots(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, minimum: float) -> Slots:
    """Return the slots for pods with at least this bandwidth."""
    hosts: dict[int, int] = {}
    leaves: dict[Leaf, int] = defaultdict(int)
    for index, grants in enumerate(free.grants):
        slots = sum(1 for _ in itertools.takewhile(lambda grant: grant.value >= minimum, grants))
        if slots:
            hosts[index] = slots
            leaves[sim_cluster.hosts[index].chain] += slots
    return Slots(hosts, leaves)


def count_min_leaves(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, pods: int) -> int:
    """Return the fewest leaves with enough slots for a gang, at any bandwidth."""
    return count_leaves(sorted(count_slots(sim_cluster, free, 0.0).leaves.values(), reverse=True), pods)


def fits_one_leaf(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, pods: int, minimum: float) -> bool:
    """Return whether one leaf has enough slots for the gang at no less than this bandwidth."""
    return any(slots >= pods for slots in count_slots(sim_cluster, free, minimum).leaves.values())


def fits_unsplit(
    sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, pods: int, value: float, leaves: int
) -> bool:
    """Return whether the gang fits without avoidable NUMA splits, at no less bandwidth and on no more leaves."""
    best = _find_best(sim_cluster, _remove_splits(free), pods)
    return best is not None and best.value >= value and best.leaves <= leaves


def _remove_splits(free: cluster.FreeCapacity) -> cluster.FreeCapacity:
    """Remove, on each host, the grants from the first split one on."""
    remaining = [tuple(itertools.takewhile(lambda grant: not grant.split, grants)) for grants in free.grants]
    return cluster.FreeCapacity(free.demand, remaining, sum(map(len, remaining)))


def _list_thresholds(sim_cluster: cluster.Cluster, free: cluster.FreeCapacity) -> Sequence[float]:
    """Return all bandwidths that can limit a gang, those of pods and of domains' uplinks; highest first."""
    values = {grant.value for grants in set(free.grants) for grant in grants}
    domains = range(len(sim_cluster.domains))
    values |= {compute_uplink_bandwidth(sim_cluster, free.demand, number) for number in domains}
    return sorted(values, reverse=True)


def _select_in_best_domain(
    sim_cluster: cluster.Cluster, demand: cluster.Demand, slots: Slots, pods: int, minimum: float
) -> Sequence[Leaf] | None:
    """Return the fewest leaves below one domain whose uplinks all carry `minimum`; None if there are none."""
    options = []
    for level, leaves in _list_enclosing_domains(sim_cluster, demand, slots, minimum):
        if sum(slots.leaves[leaf] for leaf in leaves) >= pods:
            selected = _select_leaves(slots, leaves, pods)
            options.append((len(selected), sum(slots.leaves[leaf] for leaf in selected), level, leaves, selected))
    return min(options)[-1] if options else None


def _list_enclosing_domains(
    sim_cluster: cluster.Cluster, demand: cluster.Demand, slots: Slots, minimum: float
) -> Iterator[tuple[int, Sequence[Leaf]]]:
    """Yield (levels above the leaf, leaves) for every domain the gang may stay in, and for the whole fabric."""
    for leaf in slots.leaves:
        yield 0, [leaf]
    for level in range(1, len(sim_cluster.levels) + 1):
        groups: dict[tuple[int, ...], list[Leaf]] = defaultdict(list)
        for leaf in slots.leaves:
            uplinks = (compute_uplink_bandwidth(sim_cluster, demand, domain) for domain in leaf[:level])
            if all(uplink >= minimum for uplink in uplinks):
                groups[leaf[level:]].append(leaf)
        for leaves in groups.values():
            yield level, leaves


def count_leaves(sizes: Sequence[int], pods: int) -> int:
    """Return how many leaves, largest first, have enough slots; 0 if all together have too few."""
    for count, size in enumerate(sizes, 1):
        pods -= size
        if pods <= 0:
            return count
    return 0


def _select_leaves(slots: Slots, leaves: Sequence[Leaf], pods: int) -> Sequence[Leaf]:
    """Return the fewest leaves with enough slots; the last is the smallest one that suffices."""
    order = sorted(leaves, key=lambda leaf: (-slots.leaves[leaf], leaf))
    count = count_leaves([slots.leaves[leaf] for leaf in order], pods)
    missing = pods - sum(slots.leaves[leaf] for leaf in order[: count - 1])
    sufficient = (leaf for leaf in order[count - 1 :] if slots.leaves[leaf] >= missing)
    return [*order[: count - 1], min(sufficient, key=lambda leaf: slots.leaves[leaf])]


def _lay_out(
    sim_cluster: cluster.Cluster, free: cluster.FreeCapacity, slots: Slots, leaves: Sequence[Leaf], pods: int
) -> Optimum:
    """Assign ranks to hosts, domain by domain; within a leaf the fullest hosts come first."""
    chosen = set(leaves)
    hosts_by_leaf: dict[Leaf, list[int]] = defaultdict(list)
    for host in slots.hosts:
        leaf = sim_cluster.hosts[host].chain
        if leaf in chosen:
            hosts_by_leaf[leaf].append(host)
    hosts: list[int] = []
    partly_used = min(leaves, key=lambda leaf: slots.leaves[leaf])  # all other leaves are filled
    spare = sum(slots.leaves[leaf] for leaf in leaves) - pods
    for leaf in sorted(leaves, key=lambda leaf: tuple(reversed(leaf))):
        count = slots.leaves[leaf] - (spare if leaf == partly_used else 0)
        order = sorted(hosts_by_leaf[leaf], key=lambda host: (sum(sim_cluster.states[host][0]), host))
        hosts.extend([host for host in order for _ in range(slots.hosts[host])][:count])
    value = assess_gang(sim_cluster, free.demand, grant_ranks(free, hosts))
    return Optimum(value.total, tuple(hosts), value.leaves)
