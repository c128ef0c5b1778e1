"""Models small clusters and the bandwidth of gangs on them, independently of the code under `railwright/fabric`.

A gang uses the rails that all its nodes have. A NIC that k pods share, of one gang or not, gives each pod 1/k. Each
ring edge out of a domain has nodes x links / (ratio x edges) of a pod's bandwidth on an empty node, and at most all of
it; links is the number of the fabric's rails over that of the gang's. The bandwidth of a gang is that of its slowest
pod or edge, relative to the bandwidth of its rails on an empty node.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

GPUS, RAILS = 8, 4  # of a node, and of the fabric


class Host(NamedTuple):
    """A node."""

    name: str
    chain: tuple[str, ...]  # its domains by their names, closest first; a domain's name is used once
    product: str = ""
    rails: tuple[int, ...] = tuple(range(RAILS))  # those it has
    devices: int = 1  # of each rail: pods that may share its NIC


class Job(NamedTuple):
    """A gang of equal pods."""

    pods: int
    gpus: int = GPUS
    rails: int = RAILS  # the first so many
    requests_devices: bool = True  # False: its pods use their rails without asking for devices of them


class Cluster(NamedTuple):
    """Hosts in a tree, their used devices, and the oversubscription of their uplinks."""

    hosts: tuple[Host, ...]
    ratios: tuple[float, ...]  # by level
    taken: tuple[tuple[int, Mapping[int, int]], ...]  # of each host: GPUs, and rail -> pods on its NIC


def count_room(cluster: Cluster, host: int, job: Job) -> int:
    """Return the number of a job's pods that a host holds."""
    at = cluster.hosts[host]
    gpus, pods = cluster.taken[host]
    by_rail = [at.devices - pods.get(rail, 0) if rail in at.rails else 0 for rail in range(job.rails)]
    return max(0, min([(GPUS - gpus) // job.gpus, *(by_rail if job.requests_devices else ())]))


def take_hosts(cluster: Cluster, job: Job, hosts: Sequence[int]) -> Cluster:
    """Return the cluster with the job's pods on these hosts."""
    taken = [(gpus, dict(pods)) for gpus, pods in cluster.taken]
    for host in hosts:
        gpus, pods = taken[host]
        for rail in range(job.rails) if job.requests_devices else ():
            pods[rail] = pods.get(rail, 0) + 1
        taken[host] = gpus + job.gpus, pods
    return cluster._replace(taken=tuple(taken))


def compute_bandwidth(cluster: Cluster, job: Job, hosts: Sequence[int]) -> float:
    """Return the bandwidth of a gang with the pod of rank i on `hosts[i]`; `cluster` is the state before."""
    together = Counter(hosts)
    common = set(range(job.rails)).intersection(*(cluster.hosts[host].rails for host in hosts))
    return min(
        *(compute_member_bandwidth(cluster, job, host, pods, common) for host, pods in together.items()),
        compute_crossing(cluster, job, hosts),
    )


def compute_member_bandwidth(cluster: Cluster, job: Job, host: int, pods: int, rails: set[int]) -> float:
    """Return the bandwidth of each of `pods` pods on a host over some rails."""
    others = cluster.taken[host][1]
    return sum(1 / (pods + others.get(rail, 0)) for rail in rails) / job.rails


def compute_crossing(cluster: Cluster, job: Job, hosts: Sequence[int]) -> float:
    """Return the bandwidth of the slowest ring edge between domains."""
    worst = 1.0
    for level, ratio in enumerate(cluster.ratios):
        for domain, edges in count_leaving_edges(cluster, hosts, level).items():
            worst = min(worst, compute_edge_bandwidth(cluster, job, domain, level, ratio, edges))
    return worst


def count_leaving_edges(cluster: Cluster, hosts: Sequence[int], level: int) -> Counter[str]:
    """Count the ring edges that leave each domain of a level."""
    domains = [cluster.hosts[host].chain[level] for host in hosts]
    edges: Counter[str] = Counter()
    for here, following in zip(domains, [*domains[1:], domains[0]], strict=True):
        edges[here] += here != following
    return edges


def compute_edge_bandwidth(cluster: Cluster, job: Job, domain: str, level: int, ratio: float, edges: int) -> float:
    """Return the bandwidth of each of several ring edges out of a domain."""
    if not edges:
        return 1.0
    nodes = sum(host.chain[level] == domain for host in cluster.hosts)
    links = RAILS / job.rails
    return min(1.0, nodes * links / (max(1.0, ratio) * edges))


def find_best_bandwidth(cluster: Cluster, job: Job) -> float | None:
    """Return the highest bandwidth of a gang over all hosts and orders of ranks; None if it does not fit.

    In a tree the gang stays below one domain, or the whole cluster, and every domain strictly inside that it uses has
    one edge out, which no order undercuts. So for each set of rails and each value a member or an edge can have, the
    pods that can go below a domain at no less are counted.
    """
    rooms = [count_room(cluster, host, job) for host in range(len(cluster.hosts))]
    if sum(rooms) < job.pods:
        return None
    highest = 0.0
    for rails in _list_rail_sets(job):
        values = [
            [compute_member_bandwidth(cluster, job, host, pods, rails) for pods in range(1, held + 1)]
            if rails <= set(cluster.hosts[host].rails)
            else []
            for host, held in enumerate(rooms)
        ]
        exits = _compute_exits(cluster, job)
        for least in sorted({*itertools.chain(*values), *exits.values()}, reverse=True):
            if least <= highest:
                break
            counts = [sum(value >= least for value in row) for row in values]
            if _fits(cluster, counts, exits, least, job.pods):
                highest = least
                break
    return highest


def _list_rail_sets(job: Job) -> Iterator[set[int]]:
    for count in range(job.rails, 0, -1):
        yield from map(set, itertools.combinations(range(job.rails), count))


def _compute_exits(cluster: Cluster, job: Job) -> Mapping[tuple[int, str], float]:
    """Return the bandwidth of an edge out of a domain by (level, domain)."""
    return {
        (level, domain): compute_edge_bandwidth(cluster, job, domain, level, ratio, 1)
        for level, ratio in enumerate(cluster.ratios)
        for domain in {host.chain[level] for host in cluster.hosts}
    }


def _fits(
    cluster: Cluster, counts: Sequence[int], exits: Mapping[tuple[int, str], float], least: float, pods: int
) -> bool:
    """Return True if the gang fits into one domain, or into the whole cluster."""
    held: Counter[tuple[int, str]] = Counter()
    for host, count in zip(cluster.hosts, counts, strict=True):
        for level, domain in enumerate((*host.chain, "")):
            held[level, domain] += count
            if domain and exits[level, domain] < least:
                break  # pods there have no way out
    return any(room_ >= pods for room_ in held.values())


def place_greedily(cluster: Cluster, job: Job) -> list[int]:
    """Return the hosts by rank: each pod is as close as possible to earlier peers, then on the fullest host."""
    hosts: list[int] = []
    now = cluster
    for _ in range(job.pods):
        free = [host for host in range(len(cluster.hosts)) if count_room(now, host, job)]
        peers = {(level, name) for host in hosts for level, name in enumerate(cluster.hosts[host].chain)}

        def rate(host: int, peers: set[tuple[int, str]] = peers, now: Cluster = now) -> tuple[int, int, int]:
            near = sum(place in peers for place in enumerate(cluster.hosts[host].chain))
            return near, now.taken[host][0], -host

        hosts.append(max(free, key=rate))
        now = take_hosts(now, job, hosts[-1:])
    return hosts


# --- random clusters and gangs ----------------------------------------------------------------------------------


class Case(NamedTuple):
    """A cluster with other jobs' pods on it."""

    cluster: Cluster
    others: Sequence[tuple[int, Job]]  # (host, job of one pod)
    requests_devices: bool  # False: some nodes lack rails, and gangs use what there is without asking for devices
    chance: random.Random


def draw_case(seed: int, *, large: bool = False) -> Case:
    """Return a tree of one to three levels with uneven, partly used leaves of one or two node types. Equal seeds
    repeat.

    A large one has more nodes than a scheduler offers at once.
    """
    chance = random.Random(seed)  # noqa: S311 - a test has to repeat, not to be secret
    levels, widest = chance.randint(1, 3), chance.choice([2, 3, 5, 8])
    types = chance.choice(["A", "A", "AB"])
    asking = len(types) == 1 or chance.random() < 0.6
    devices = chance.choice([1, 1, 100]) if asking else 100
    hosts: list[Host] = []

    def grow(level: int, chain: tuple[str, ...]) -> None:
        if level:
            for index in range(chance.randint(1, 4 if level == 1 else 3)):
                grow(level - 1, (f"{chain[0] if chain else 'd'}-{index}", *chain))
            return
        alike = chance.random() < 0.5  # leaves of one type, or of any
        product = chance.choice(types)
        for _ in range(chance.randint(1, widest)):
            product = product if alike else chance.choice(types)
            rails = range(RAILS if asking or product == "A" else RAILS // 2)
            hosts.append(Host(f"n{chance.randrange(1000):03}-{len(hosts)}", chain, product, tuple(rails), devices))

    grow(levels, ())
    if large:
        hosts += [Host(f"z{index:03}", ("z",) * levels, "A", devices=devices) for index in range(100)]
    ratios = tuple(chance.choice([1.0, 1.0, 2.0, 4.0, 7.0]) for _ in range(levels))
    cluster = Cluster(tuple(hosts), ratios, ((0, {}),) * len(hosts))
    share, others = chance.choice([0.0, 0.3, 0.6]), []
    for index, host in enumerate(hosts):
        job = Job(1, *chance.choice([(8, 4), (8, 4), (4, 4), (4, 2)]))
        job = Job(1) if host.name.startswith("z") else job
        if (host.name.startswith("z") or chance.random() < share) and count_room(cluster, index, job):
            others.append((index, job))
            cluster = take_hosts(cluster, job, [index])
    return Case(cluster, others, asking, chance)


def draw_job(of: Case, cluster: Cluster, most: int = 16) -> Job | None:
    """Return a gang that fits into the cluster; None if no gang of two does."""
    kinds = [(8, 4), (8, 4), (4, 4), (4, 2)] if of.requests_devices else [(8, 4), (8, 2)]
    made = Job(2, *of.chance.choice(kinds), requests_devices=of.requests_devices)
    slots = sum(count_room(cluster, host, made) for host in range(len(cluster.hosts)))
    return made._replace(pods=of.chance.randint(2, min(slots, most))) if slots >= 2 else None
