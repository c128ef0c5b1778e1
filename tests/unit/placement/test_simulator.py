"""The simulator: bandwidth worked out by hand and against all placements, kubelet's choice, whole simulations."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator import bandwidth_model, cluster_specs, experiments, job_stream
from simulator import cluster as clusters


def site(spines, over=(1.0,)) -> cluster_specs.ClusterSpec:
    """Return nodes of 8 GPUs in leaves of these sizes below each spine."""
    return cluster_specs.build("town", cluster_specs.build_shape(spines), over)


def town(spines, over=(1.0,)) -> clusters.Cluster:
    return clusters.Cluster(site(spines, over))


def fill(on: clusters.Cluster, host: int, *sizes: int) -> None:
    """Let pods of other jobs use this number of GPUs of a host."""
    for gpus in sizes:
        on.start_pod(host, on.build_demand(gpus))


NODE = clusters.Hardware(gpus=(4, 4), numa_of_rail=(0, 0, 0, 0, 1, 1, 1, 1), devices=(1,) * 8)


def assess_placed(on: clusters.Cluster, hosts, gpus=8) -> bandwidth_model.GangBandwidth:
    capacity = on.get_capacity(on.build_demand(gpus))
    return bandwidth_model.assess_gang(on, capacity.demand, bandwidth_model.grant_ranks(capacity.snapshot(), hosts))


SPINES = {"a": (8,), "b": (8,)}
PLACEMENTS = {  # leaves of each spine, oversubscription, hosts by rank: bandwidth, crossings, those out of rank order
    "in one leaf": ({"s": (4,)}, (7.0,), [0, 1, 2, 3], (1.0, 0, 0)),
    "over two leaves at 1:1": ({"s": (2, 2)}, (1.0,), [0, 1, 2, 3], (1.0, 2, 0)),
    "over two leaves at 7:1, by the smaller one's uplinks": ({"s": (5, 2)}, (7.0, 1.0), [0, 1, 5], (2 / 7, 2, 0)),
    "from leaves with uplinks enough": ({"s": (8, 7)}, (7.0, 1.0), [0, 8], (1.0, 2, 0)),
    "in rank order": ({"s": (4, 4)}, (7.0, 1.0), [0, 1, 4, 5], (4 / 7, 2, 0)),
    "out of rank order": ({"s": (4, 4)}, (7.0, 1.0), [0, 4, 1, 5], (4 / 14, 4, 2)),
    "over two spines, at their own oversubscription": (SPINES, (1.0, 16.0), [0, 8], (8 / 16, 2, 0)),
    "closed from the second leaf of a spine to its first": ({"a": (1, 1), "b": (1,)}, (1.0,), [0, 2, 1], (1.0, 3, 0)),
    "back to a spine": ({"a": (1, 1), "b": (1, 1)}, (1.0,), [0, 2, 1, 3], (1.0, 4, 2)),
}


@pytest.mark.parametrize(("spines", "ratios", "hosts", "expected"), PLACEMENTS.values(), ids=PLACEMENTS)
def test_each_crossing_shares_the_uplinks_of_the_domains_that_it_leaves(spines, ratios, hosts, expected):
    value = assess_placed(town(spines, ratios), hosts)
    assert (value.total, value.crossings, value.rank_order_crossings) == pytest.approx(expected)


def test_kubelet_takes_the_devices_of_one_numa_node_where_they_fit():
    first, second = clusters.list_grants(NODE, NODE.empty, clusters.Demand(gpus=4, rails=4))
    assert (first.gpus, second.gpus) == ((4, 0), (0, 4))
    assert not first.split
    assert first.value == second.value == 1.0


def test_a_pod_on_the_free_devices_of_two_numa_nodes_is_split():
    left = ((2, 2), (1, 1, 0, 0, 1, 1, 0, 0))
    (only,) = clusters.list_grants(NODE, left, clusters.Demand(gpus=4, rails=4))
    assert only.split
    assert only.value == 1.0  # in matching pairs: each GPU still has a rail beside it


def test_half_of_the_rails_have_all_uplinks_of_the_bundle():
    on = town({"s": (4, 4)}, (7.0, 1.0))
    assert assess_placed(on, [0, 4]).total == pytest.approx(4 / 7)
    assert assess_placed(on, [0, 4], gpus=4).total == 1.0


# --- the optimum against all possible placements --------------------------------------------------------------


@st.composite
def situations(draw):
    """Draw (cluster, pods, GPUs per pod): up to six nodes in a small tree, some of them partly used."""
    spines = draw(
        st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1)
    )
    oversubscription = draw(st.sampled_from([(1.0, 1.0), (7.0, 7.0), (1.0, 3.0), (2.0, 1.0)]))
    cluster = town(spines, oversubscription)
    for host in range(len(cluster.hosts)):
        for gpus in draw(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=2)):
            if cluster.get_capacity(cluster.build_demand(gpus)).slots[host]:
                fill(cluster, host, gpus)
    return cluster, draw(st.integers(2, 4)), draw(st.sampled_from([4, 8]))


def every_placement(cluster, capacity, free, pods):
    for hosts in itertools.product([host for host, slots in enumerate(capacity.slots) if slots], repeat=pods):
        if all(hosts.count(host) <= capacity.slots[host] for host in set(hosts)):
            yield bandwidth_model.assess_gang(cluster, free.demand, bandwidth_model.grant_ranks(free, hosts))


@given(situations())
def test_no_placement_has_more_bandwidth_and_none_of_as_much_has_fewer_leaves(situation):
    cluster, pods, gpus = situation
    capacity = cluster.get_capacity(cluster.build_demand(gpus))
    free = capacity.snapshot()
    best = bandwidth_model.find_best(cluster, free, pods)
    tried = list(every_placement(cluster, capacity, free, pods))
    if not tried:
        assert best is None
        return
    most = max(value.total for value in tried)
    assert best.value == most
    assert best.leaves == min(value.leaves for value in tried if value.total == most)
    assert (
        bandwidth_model.assess_gang(cluster, free.demand, bandwidth_model.grant_ranks(free, best.hosts)).total
        == best.value
    )
    assert bandwidth_model.count_min_leaves(cluster, free, pods) == min(value.leaves for value in tried)
    fits_alone = any(value.leaves == 1 and value.total >= most for value in tried)
    assert bandwidth_model.fits_one_leaf(cluster, free, pods, most) == fits_alone


# --- whole simulations --------------------------------------------------------------------------------------


def job(number, pods, gpus=8, arrival=0.0, duration=100.0):
    return job_stream.Job(number, arrival, duration, pods, gpus)


def play(on, jobs, policy="greedy"):
    return experiments.Simulation(on, experiments.POLICIES[policy]).run(jobs)


@pytest.mark.parametrize(
    ("name", "nodes", "leaves"),
    [
        ("superpod-2", 64, 2),
        ("superpod-4", 128, 4),
        ("superpod-8", 256, 8),
        ("coreweave", 64, 15),
        ("lingjun", 847, 119),
    ],
)
def test_the_published_shapes_have_their_published_sizes(name, nodes, leaves):
    on = clusters.Cluster(cluster_specs.build_from_catalogue(name))
    assert len(on.hosts) == nodes
    assert sum(domain.level == 0 for domain in on.domains) == leaves
    assert on.gpus == 8 * nodes


def test_a_job_that_does_not_fit_waits_and_a_later_smaller_one_passes_it():
    jobs = [job(0, 3), job(1, 2, arrival=10.0), job(2, 1, arrival=20.0)]
    starts = {placed.job.number: placed.start for placed in play(site({"s": (4,)}), jobs)}
    assert starts == {0: 0.0, 2: 20.0, 1: 100.0}


def test_no_device_is_allocated_twice_and_all_are_released():
    run = experiments.Simulation(cluster_specs.build_from_catalogue("coreweave"), experiments.POLICIES["greedy"])
    of = job_stream.build("seren", largest=256)
    run.run(job_stream.draw_arrivals(of, seed=2, rate=job_stream.compute_rate(of, 1.2, 512), count=300))
    assert run.cluster.states == [host.hardware.empty for host in run.cluster.hosts]


def test_railwright_places_every_gang_of_a_small_stream_as_well_as_possible():
    on = cluster_specs.build_from_catalogue("coreweave", (7.0,))
    of = job_stream.build("seren", largest=256)
    rate = job_stream.compute_rate(of, 0.9, 512)
    jobs = [
        *job_stream.draw_running(of, seed=4, rate=rate),
        *job_stream.draw_arrivals(of, seed=4, rate=rate, count=400),
    ]
    summaries = {
        policy: experiments.summarize(play(on, jobs, policy)) for policy in ("none", "greedy", "railwright", "optimum")
    }
    assert summaries["optimum"].modelled_busbw_of_optimum == 1.0
    assert summaries["railwright"].modelled_busbw_of_optimum >= 0.98
    assert summaries["railwright"].avoidable_crossings == summaries["railwright"].rank_order_crossings == 0
    assert summaries["none"].modelled_busbw_of_optimum < 0.98 > summaries["greedy"].modelled_busbw_of_optimum
    assert summaries["none"].rank_order_crossings > 0


# --- generated streams against the published tables -----------------------------------------------------------


MANY = 60_000


@pytest.fixture(scope="module", params=sorted(job_stream.TRACES))
def drawn(request):
    of = job_stream.build(request.param, largest=4096)
    return job_stream.TRACES[request.param], of, list(job_stream.draw_arrivals(of, seed=3, rate=1.0, count=MANY))


def cumulate(jobs, weight, limits, measure):
    total = sum(map(weight, jobs))
    return [100 * sum(weight(job) for job in jobs if measure(job) <= limit) / total for limit in limits]


def test_the_share_of_jobs_of_each_size_is_the_published_one(drawn):
    trace, _, jobs = drawn
    shares = cumulate(jobs, lambda _: 1, job_stream.SIZES, lambda job: job.size)
    assert shares == pytest.approx(trace.jobs, abs=3.0)  # Kalos: a step of jobs without GPU time is left out


def test_arrivals_offer_the_load_that_was_asked_for(drawn):
    _, of, _ = drawn
    jobs = list(job_stream.draw_arrivals(of, seed=5, rate=job_stream.compute_rate(of, 0.5, 800), count=MANY))
    assert sum(job.gpu_seconds for job in jobs) / (jobs[-1].arrival * 800) == pytest.approx(0.5, rel=0.3)
