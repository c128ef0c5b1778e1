"""The simulator: bandwidth worked out by hand and against all placements, whole simulations, the published stream."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulator import cluster, policies, simulation

from railwright.cli.demo import objects

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
    actual = cluster.Cluster(spines, ratios).assess_gang(hosts)
    assert (actual.value, actual.crossings, actual.rank_order_crossings) == pytest.approx(expected)


# --- the optimum against all possible placements --------------------------------------------------------------


@st.composite
def situations(draw):
    """Draw (cluster, pods): up to six nodes in a small tree, some of them in use."""
    spines = draw(
        st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1)
    )
    oversubscription = draw(st.sampled_from([(1.0, 1.0), (7.0, 7.0), (1.0, 3.0), (2.0, 1.0)]))
    drawn = cluster.Cluster(spines, oversubscription)
    for host in range(len(drawn.hosts)):
        drawn.free[host] -= draw(st.sampled_from([0, 0, 0, 1, 8]))
    return drawn, draw(st.integers(2, 4))


@given(situations())
def test_no_placement_has_more_bandwidth_and_none_of_as_much_has_fewer_leaves(situation):
    drawn, pods = situation
    best = cluster.find_best(drawn, pods)
    all_placements = [drawn.assess_gang(hosts) for hosts in itertools.permutations(drawn.list_fitting(8), pods)]
    if not all_placements:
        assert best is None
        return
    actual = drawn.assess_gang(best)
    assert len({*best}) == pods
    assert actual.value == max(placement.value for placement in all_placements)
    assert actual.leaves == min(placement.leaves for placement in all_placements if placement.value == actual.value)
    assert cluster.count_min_leaves(drawn, pods) == min(placement.leaves for placement in all_placements)


# --- whole simulations --------------------------------------------------------------------------------------


def job(number, pods, gpus=8, arrival=0.0, duration=100.0):
    return policies.Job(number, arrival, duration, pods, gpus)


def play(on, jobs, policy="greedy"):
    return simulation.Simulation(on, policies.POLICIES[policy]).run(jobs)


def draw_jobs(count, load, seed):
    return list(simulation.draw_jobs(512, load=load, count=count, seed=seed))


def test_a_job_that_does_not_fit_waits_and_a_later_smaller_one_passes_it():
    jobs = [job(0, 3), job(1, 2, arrival=10.0), job(2, 1, arrival=20.0)]
    starts = {placed.job.number: placed.start for placed in play(cluster.Cluster({"s": (4,)}), jobs)}
    assert starts == {0: 0.0, 2: 20.0, 1: 100.0}


def test_every_job_is_placed_and_all_of_its_gpus_are_released():
    on = cluster.Cluster(objects.UNEVEN_64.spines)
    jobs = draw_jobs(300, load=1.2, seed=2)
    assert len(play(on, jobs)) == len(jobs)
    assert set(on.free) == {cluster.GPUS}


def test_railwright_places_every_gang_of_a_small_stream_as_well_as_possible():
    jobs = draw_jobs(400, load=0.9, seed=4)
    summaries = {
        policy: simulation.summarize(play(cluster.Cluster(objects.UNEVEN_64.spines, (7.0,)), jobs, policy))
        for policy in ("none", "greedy", "railwright", "optimum")
    }
    assert summaries["optimum"].share == 1.0
    assert summaries["railwright"].share >= 0.98
    assert summaries["railwright"].avoidable_crossings == summaries["railwright"].rank_order_crossings == 0
    assert summaries["none"].share < 0.98 > summaries["greedy"].share
    assert summaries["none"].rank_order_crossings > 0


# --- the stream against the published tables ------------------------------------------------------------------


def test_jobs_offer_the_load_that_was_asked_for_in_the_published_sizes():
    jobs = [one for one in draw_jobs(60_000, load=0.5, seed=5) if one.number >= 0]
    assert sum(one.gpu_seconds for one in jobs) / (jobs[-1].arrival * 512) == pytest.approx(0.5, rel=0.1)
    shares = [100 * sum(one.pods * one.gpus <= size for one in jobs) / len(jobs) for size in simulation.SIZES[:8]]
    assert shares == pytest.approx(simulation.JOBS[:8], abs=1.0)
