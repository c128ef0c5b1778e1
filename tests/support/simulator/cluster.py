"""The simulated cluster: free GPUs of equal nodes, the modelled bandwidth of a placed gang, and the best placement.

A gang takes whole nodes. It is as fast as its slowest crossing between domains, which the uplinks of the domain limit.
Bandwidths are shares of an ideal placement's (0..1), and modelled, never measured: latency, congestion by other jobs
and NCCL's own choices are left out. The uplinks are modelled by `railwright.fabric.placement.bandwidth`.

The best placement of one gang on free nodes has the most modelled bandwidth, then the fewest leaves. The result is
exact. It is the reference that the planner (`railwright.fabric.placement.gangs.planner`) is compared with, so it is
written independently: a defect of the planner must not be one of the reference too. The search tries every possible
bandwidth, highest first. A bandwidth determines which uplinks of domains can provide it; because domains form a tree,
it is enough to count whether the gang fits below one domain with such uplinks. Ranks are assigned domain by domain, so
that only one ring edge leaves each domain, the minimum.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.cli.demo import objects
from railwright.fabric import node_views
from railwright.fabric.placement import bandwidth

GPU, POOL = "nvidia.com/gpu", "rdma/rail"  # one pool of equal rails
GPUS = RAILS = 8  # of a node
LEVELS = (objects.LEAF_LABEL, objects.SPINE_LABEL)
Chain = tuple[int, ...]
"""The numbers of a leaf and of its spine."""


class Host(msgspec.Struct, frozen=True):
    """The constant properties of a node."""

    name: str
    chain: Chain


class Domain(msgspec.Struct, frozen=True):
    """A leaf or a spine."""

    level: int
    name: str
    size: int  # nodes


class GangBandwidth(msgspec.Struct, frozen=True):
    """The modelled bandwidth of a placement, and the edges of its ring."""

    value: float  # of the slowest crossing, 0..1
    leaves: int  # leaves used
    crossings: int  # ring edges between different leaves
    rank_order_crossings: int  # ring edges over all levels that another order of ranks on the same nodes would avoid


class Cluster:
    """Nodes in leaves of these sizes below each spine, and their free GPUs.

    `oversubscription` has the ratio of a leaf's uplinks, and that of a spine's; one ratio applies to both.
    """

    def __init__(self, spines: Mapping[str, Sequence[int]], oversubscription: Sequence[float] = (1.0,)) -> None:
        shape = objects.Shape(spines, GPUS, {POOL: RAILS})
        self.nodes = tuple(msgspec.convert(list(objects.build_nodes(shape)), list[node_views.Node]))
        self.oversubscription = (oversubscription[0], oversubscription[-1])
        places = [tuple(enumerate(node.metadata.labels[label] for label in LEVELS)) for node in self.nodes]
        keys = list(dict.fromkeys(key for place in places for key in place))
        sizes = [sum(key in place for place in places) for key in keys]
        self.domains = [Domain(level, name, size) for (level, name), size in zip(keys, sizes, strict=True)]
        self.hosts = [
            Host(node.metadata.name, tuple(keys.index(key) for key in place))
            for node, place in zip(self.nodes, places, strict=True)
        ]
        self.free = [GPUS for _ in self.hosts]  # GPUs of each host

    def list_fitting(self, gpus: int) -> list[int]:
        """Return the hosts with this number of free GPUs."""
        return [host for host, free in enumerate(self.free) if free >= gpus]

    def compute_uplink_bandwidth(self, domain: int, crossings: int = 1) -> float:
        """Return the bandwidth of each of `crossings` ring edges that leave a domain."""
        left = self.domains[domain]
        return bandwidth.compute_uplink_bandwidth(left.size, self.oversubscription[left.level], crossings)

    def assess_gang(self, hosts: Sequence[int]) -> GangBandwidth:
        """Return the bandwidth of a gang on the hosts of its ranks."""
        slowest, edges, fewest = 1.0, [0, 0], [0, 0]  # of each level
        for level in range(len(LEVELS)):
            domains = [self.hosts[host].chain[level] for host in hosts]
            leaving = dict.fromkeys(domains, 0)
            if len(leaving) < 2:
                continue
            for domain, next_domain in zip(domains, [*domains[1:], domains[0]], strict=True):
                leaving[domain] += domain != next_domain
            slowest = min(slowest, *(self.compute_uplink_bandwidth(*item) for item in leaving.items()))
            edges[level], fewest[level] = sum(leaving.values()), len(leaving)
        leaves = len({self.hosts[host].chain for host in hosts})
        return GangBandwidth(slowest, leaves, edges[0], sum(edges) - sum(fewest))


# --- the optimum --------------------------------------------------------------------------------------------


def group_idle(cluster: Cluster) -> dict[Chain, list[int]]:
    """Return the idle hosts of each leaf that has some."""
    idle: dict[Chain, list[int]] = defaultdict(list)
    for host in cluster.list_fitting(GPUS):
        idle[cluster.hosts[host].chain].append(host)
    return idle


def find_best(cluster: Cluster, pods: int) -> list[int] | None:
    """Return the host of each rank in the best placement of a gang on idle hosts; None if it does not fit."""
    idle = group_idle(cluster)
    uplinks = {cluster.compute_uplink_bandwidth(domain) for domain in range(len(cluster.domains))}
    for minimum in sorted({1.0, *uplinks}, reverse=True):  # all bandwidths that can limit a gang
        options = []
        for level, leaves in _list_enclosing_domains(cluster, idle, minimum):
            if sum(len(idle[leaf]) for leaf in leaves) >= pods:
                selected = _select_leaves(idle, leaves, pods)
                options.append((len(selected), sum(len(idle[leaf]) for leaf in selected), level, selected))
        if options:
            return _lay_out(idle, min(options)[-1], pods)
    return None


def count_min_leaves(cluster: Cluster, pods: int) -> int:
    """Return the fewest leaves with enough idle hosts for a gang, at any bandwidth."""
    return _count_leaves(sorted(map(len, group_idle(cluster).values()), reverse=True), pods)


def _list_enclosing_domains(
    cluster: Cluster, idle: Mapping[Chain, Sequence[int]], minimum: float
) -> Iterator[tuple[int, list[Chain]]]:
    """Yield (levels above the leaf, leaves) for every domain the gang may stay in, and for the whole fabric."""
    for leaf in idle:
        yield 0, [leaf]
    for level in range(1, len(LEVELS) + 1):
        groups: dict[Chain, list[Chain]] = defaultdict(list)
        for leaf in idle:
            if all(cluster.compute_uplink_bandwidth(domain) >= minimum for domain in leaf[:level]):
                groups[leaf[level:]].append(leaf)
        for leaves in groups.values():
            yield level, leaves


def _count_leaves(sizes: Sequence[int], pods: int) -> int:
    """Return the number of leaves, largest first, with enough hosts; 0 if all have too few."""
    for count, size in enumerate(sizes, 1):
        pods -= size
        if pods <= 0:
            return count
    return 0


def _select_leaves(idle: Mapping[Chain, Sequence[int]], leaves: Sequence[Chain], pods: int) -> list[Chain]:
    """Return the fewest leaves with enough hosts; the last is the smallest one that suffices."""
    order = sorted(leaves, key=lambda leaf: (-len(idle[leaf]), leaf))
    count = _count_leaves([len(idle[leaf]) for leaf in order], pods)
    missing = pods - sum(len(idle[leaf]) for leaf in order[: count - 1])
    sufficient = (leaf for leaf in order[count - 1 :] if len(idle[leaf]) >= missing)
    return [*order[: count - 1], min(sufficient, key=lambda leaf: len(idle[leaf]))]


def _lay_out(idle: Mapping[Chain, Sequence[int]], leaves: Sequence[Chain], pods: int) -> list[int]:
    """Assign ranks to hosts, domain by domain. Only the smallest leaf is not filled."""
    spare = sum(len(idle[leaf]) for leaf in leaves) - pods
    partly_used = min(leaves, key=lambda leaf: len(idle[leaf]))
    hosts: list[int] = []
    for leaf in sorted(leaves, key=lambda leaf: tuple(reversed(leaf))):
        hosts.extend(idle[leaf][: len(idle[leaf]) - (spare if leaf == partly_used else 0)])
    return hosts
