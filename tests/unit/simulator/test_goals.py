"""`placement.goal`: gangs and single pods keep idle nodes free, or take them for more bandwidth."""

import pytest
from simulated import site

from railwright.simulator import cluster_specs, experiments, job_stream, policies

pytestmark = pytest.mark.exhaustive


def build_nodes():
    """Return a leaf of six nodes of 8 rails, and a node that lacks four of them, so that pods request no rails."""
    for number, (size, rails) in enumerate([(6, 8), (1, 4)]):
        devices = cluster_specs.list_rail_resources(rails, mixed=True)
        yield from cluster_specs.build_nodes(
            cluster_specs.Shape({"s": (size,)}, 8, devices, "", product=f"8x{rails}"), number
        )


def place(goal, *sizes):
    """Return the outcome of jobs of (pods, GPUs of each) that come one after another."""
    spec = cluster_specs.set_placement(site({}, mixed=True, nodes=list(build_nodes())), goal=goal)

    def build_policy(cluster):
        return policies.RailwrightPolicy(cluster, has_events=True)

    jobs = [job_stream.Job(at, float(at), 1e6, pods, gpus, failed=False) for at, (pods, gpus) in enumerate(sizes)]
    return experiments.Simulation(spec, build_policy, experiments.Settings()).run(jobs)


@pytest.mark.parametrize(("goal", "nodes", "bandwidth"), [("bandwidth", 6, 1.0), ("capacity", 3, 0.63 / 2)])
def test_half_node_gangs_take_idle_nodes_or_share_nics(goal, nodes, bandwidth):
    outcome = place(goal, (3, 4), (3, 4))
    assert len({host for job in outcome.placed for host in job.hosts}) == nodes
    assert outcome.placed[1].value == pytest.approx(bandwidth)
    assert outcome.summary.modelled_busbw_of_optimum == 1.0, "the optimum follows the goal"


@pytest.mark.parametrize("goal", ["bandwidth", "capacity"])
def test_a_gang_of_whole_nodes_is_placed_alike(goal):
    small, large = place(goal, (1, 2), (3, 8)).placed
    assert set(small.hosts).isdisjoint(large.hosts)
    assert large.value == 1.0
