"""Gangs on random clusters, placed pod by pod, against the exact bound of `small_clusters` and against greedy.

`make test-slow PARTS=examples` tries many more clusters. A failure names its seed:
RAILWRIGHT_CLUSTERS=SEED:SEED+1 repeats it.
"""

import itertools
import os
from collections.abc import Sequence

import exploration
import placing
import pytest
import small_clusters as small
from scheduling_loop import Loop, build_loop, build_pod, place_gang

pytestmark = pytest.mark.examples
CLOSE = 1e-6
FIRST, _, LAST = os.environ.get("RAILWRIGHT_CLUSTERS", "").partition(":")
SEEDS = range(int(FIRST or 0), int(LAST or exploration.choose(30, 1000)))
CHUNKS = [SEEDS[start : start + 10] for start in range(0, len(SEEDS), 10)]


def let_wait(loop: Loop, job: small.Job, group: str) -> None:
    """Request scores for a gang, which then waits."""
    pods = [build_pod(job, f"{group}-{rank}", group=group) for rank in range(job.pods)]
    loop.submit(pods, group=group)
    loop.decide(pods[0])


def list_problems(cluster: small.Cluster, job: small.Job, hosts: Sequence[int]) -> list[str]:
    """Return the faults of a gang's placement; `cluster` is the state before."""
    value, bound = small.compute_bandwidth(cluster, job, hosts), small.find_best_bandwidth(cluster, job) or 0.0
    greedy = small.compute_bandwidth(cluster, job, small.place_greedily(cluster, job))
    problems = []
    if value > bound + CLOSE:
        problems.append(f"the bound {bound} is none: {value}")
    if value < greedy - CLOSE:
        problems.append(f"greedy has {greedy}, this {value}")
    elif value < bound - CLOSE:
        problems.append(f"{value} of {bound}")
    for level in range(len(cluster.ratios)):
        edges = small.count_leaving_edges(cluster, hosts, level)
        if len(edges) > 1 and set(edges.values()) != {1}:
            problems.append(f"out of rank order at level {level}")
    if len({cluster.hosts[host].product for host in hosts}) > 1 and fits_one_type(cluster, job, bound):
        problems.append("on two node types without need")
    return problems


def fits_one_type(cluster: small.Cluster, job: small.Job, value: float) -> bool:
    """Return True if nodes of only one type give a gang the same bandwidth."""
    for product in {host.product for host in cluster.hosts}:
        others = [index for index, host in enumerate(cluster.hosts) if host.product != product]
        full = small.take_hosts(cluster, small.Job(1), others)
        if (small.find_best_bandwidth(full, job) or 0.0) >= value - CLOSE:
            return True
    return False


def place_in_sequence(seed: int, *, large: bool) -> list[str]:
    """Place several gangs one after the other, without removing any."""
    case = small.draw_case(seed, large=large)
    cluster, loop = case.cluster, build_loop(case.cluster, case.others, announces=seed % 2 == 0)
    problems = []
    for number in range(3):
        job = small.draw_job(case, cluster)
        if job is None:
            break
        hosts = place_gang(loop, cluster, job, f"g{number}")
        problems += [f"seed {seed}, gang {number}, {job}: {fault}" for fault in list_problems(cluster, job, hosts)]
        cluster = small.take_hosts(cluster, job, hosts)
    return problems


def place_beside_waiting(seed: int) -> list[str]:
    """Place a gang while others wait."""
    case = small.draw_case(seed)
    loop = build_loop(case.cluster, case.others)
    for number in range(2):
        if job := small.draw_job(case, case.cluster, most=6):
            let_wait(loop, job, f"w{number}")
    job = small.draw_job(case, case.cluster)
    if job is None:
        return []
    hosts = place_gang(loop, case.cluster, job, "g")
    return [f"seed {seed}, {job}: {fault}" for fault in list_problems(case.cluster, job, hosts)]


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_each_of_several_gangs_in_sequence_gets_the_best_possible_bandwidth(seeds):
    assert [fault for seed in seeds for fault in place_in_sequence(seed, large=seed % 5 == 0)] == []


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_waiting_gangs_do_not_reduce_the_bandwidth_of_others(seeds):
    assert [fault for seed in seeds for fault in place_beside_waiting(seed)] == []


def place_beside_peers(seed: int) -> list[str]:
    """Place the rest of a gang whose first pods another scheduler has placed on any nodes, at most six."""
    case = small.draw_case(seed)
    few = sorted(case.chance.sample(range(len(case.cluster.hosts)), min(6, len(case.cluster.hosts))))
    cluster = case.cluster._replace(
        hosts=tuple(case.cluster.hosts[index] for index in few),
        taken=tuple(case.cluster.taken[index] for index in few),
    )
    others = [(few.index(at), job) for at, job in case.others if at in few]
    job = small.draw_job(case, cluster, most=5)
    if job is None:
        return []
    loop, rest = build_loop(cluster, others), case.chance.randint(1, min(3, job.pods - 1))
    hosts: list[int] = []
    pods = [build_pod(job, f"g-{rank}", group="g") for rank in range(job.pods)]
    loop.submit(pods, group="g")
    now = cluster
    for pod in pods[:-rest]:
        hosts.append(case.chance.choice([host for host in range(len(few)) if small.count_room(now, host, job)]))
        now = small.take_hosts(now, job, hosts[-1:])
        loop.assumed.assume(placing.build_assumed_pod(pod, cluster.hosts[hosts[-1]].name))
    names = {host.name: index for index, host in enumerate(cluster.hosts)}
    ours = [*hosts, *(names[name] for name in loop.place(pods[-rest:]))]
    rooms = [small.count_room(now, host, job) for host in range(len(few))]
    bound = max(
        small.compute_bandwidth(cluster, job, [*hosts, *more])
        for more in itertools.product(range(len(few)), repeat=rest)
        if all(more.count(host) <= rooms[host] for host in set(more))
    )
    value = small.compute_bandwidth(cluster, job, ours)
    return [f"seed {seed}, {job}: {value} of {bound}"] if value < bound - CLOSE else []


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_the_unplaced_pods_of_a_gang_get_the_highest_bandwidth_that_its_placed_pods_allow(seeds):
    assert [fault for seed in seeds for fault in place_beside_peers(seed)] == []
