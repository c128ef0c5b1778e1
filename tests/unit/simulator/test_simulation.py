"""Complete simulations: published shapes, the scheduling loop, placement policies and results."""

import claimed
import msgspec
import pytest
from simulated import site, town

from railwright.simulator import cluster, cluster_specs, experiments, job_stream, policies

pytestmark = pytest.mark.exhaustive

SETTINGS = experiments.Settings()


def job(number, pods, gpus=8, arrival=0.0, duration=100.0):
    return job_stream.Job(number, arrival, duration, pods, gpus, failed=False)


def play(on, jobs, policy="greedy", settings=SETTINGS):
    made = {
        **policies.BASELINES,
        "railwright": lambda of: policies.RailwrightPolicy(of, has_events=settings.kind == "volcano"),
    }
    return experiments.Simulation(on, made[policy], settings).run(jobs)


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
    on = cluster.Cluster(cluster_specs.build_from_catalogue(name))
    assert len(on.hosts) == nodes
    assert sum(domain.level == 0 for domain in on.domains) == leaves
    assert on.gpus == 8 * nodes


def test_lingjun_has_the_published_groups():
    on = cluster.Cluster(cluster_specs.build_from_catalogue("lingjun"))
    assert sorted(domain.size for domain in on.domains if domain.level == 1) == [179, 306, 362]
    sizes = [domain.size for domain in on.domains if domain.level == 0]
    assert {size: sizes.count(size) for size in set(sizes)} == {8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}


def test_one_oversubscription_counts_for_every_level():
    assert cluster.Cluster(cluster_specs.build_from_catalogue("coreweave", (7.0,))).oversubscription == (7.0, 7.0)
    assert cluster.Cluster(cluster_specs.build_from_catalogue("coreweave", (1.0, 7.0))).oversubscription == (1.0, 7.0)


def test_a_job_that_does_not_fit_waits_and_a_later_smaller_one_passes_it():
    jobs = [job(0, 3), job(1, 2, arrival=10.0), job(2, 1, arrival=20.0)]
    starts = {placed.job: placed.start for placed in play(site({"s": (4,)}), jobs).placed}
    assert starts == {0: 0.0, 2: 20.0, 1: 100.0}


def test_a_job_that_an_empty_cluster_cannot_hold_is_refused():
    outcome = play(site({"s": (2,)}), [job(0, 3), job(1, 2)])
    assert (outcome.rejected, [placed.job for placed in outcome.placed]) == (1, [1])


def test_no_device_is_allocated_twice_and_all_are_released():
    run = experiments.Simulation(
        cluster_specs.build_from_catalogue("coreweave"), policies.BASELINES["greedy"], SETTINGS
    )
    of = job_stream.build("seren", largest=256)
    run.run(job_stream.draw_arrivals(of, seed=2, rate=job_stream.compute_rate(of, 1.2, 512), count=300))
    assert run.cluster.states == [host.hardware.empty for host in run.cluster.hosts]


class Moody(policies.PlacementPolicy):
    """Policy that rejects every node for the third rank in the first attempt."""

    def __init__(self, on):
        super().__init__(on)
        self.seen, self.undone_ranks = 0, []

    def score(self, _, offered):
        self.seen += 1
        return [None] * len(offered) if self.seen == 3 else [1.0] * len(offered)

    def on_forget(self, task):
        self.undone_ranks.append(task.rank)


def test_an_incomplete_gang_is_released_in_reverse_order_and_tried_again():
    run = experiments.Simulation(site({"s": (8,)}), Moody, experiments.Settings("kube"))
    outcome = run.run([job(0, 1, duration=5.0), job(1, 4, arrival=1.0)])
    assert run.policy.undone_ranks == [0]
    assert {placed.job: placed.start for placed in outcome.placed} == {0: 0.0, 1: 5.0}
    assert run.cluster.states == [host.hardware.empty for host in run.cluster.hosts]


def test_by_default_a_sample_of_nodes_is_offered_from_where_the_last_search_ended():
    assert [experiments.count_nodes_to_find(nodes) for nodes in (64, 100, 847, 1000, 2500, 5000)] == [
        64,
        100,
        372,
        420,
        750,
        500,
    ]
    on = town({"s": (200,)})
    scheduler = experiments.Scheduler(on, experiments.Settings(sample_all=False))
    capacity = on.get_capacity(on.build_demand(8))
    assert scheduler.offer_hosts(capacity) == list(range(100))
    assert scheduler.offer_hosts(capacity) == list(range(100, 200))


@pytest.mark.parametrize("kind", ["volcano", "kube"])
def test_railwright_places_every_gang_of_a_small_stream_as_well_as_possible(kind):
    on = cluster_specs.build_from_catalogue("coreweave", (7.0,))
    of = job_stream.build("seren", largest=256)
    rate = job_stream.compute_rate(of, 0.9, 512)
    jobs = [
        *job_stream.draw_running(of, seed=4, rate=rate),
        *job_stream.draw_arrivals(of, seed=4, rate=rate, count=400),
    ]
    settings = experiments.Settings(kind)
    summaries = {
        policy: play(on, jobs, policy, settings).summary for policy in ("none", "greedy", "railwright", "optimum")
    }
    assert summaries["optimum"].modelled_busbw_of_optimum == 1.0
    assert summaries["railwright"].modelled_busbw_of_optimum >= 0.98
    assert summaries["railwright"].avoidable_crossings == summaries["railwright"].rank_order_crossings == 0
    assert summaries["none"].modelled_busbw_of_optimum < 0.98 > summaries["greedy"].modelled_busbw_of_optimum
    assert summaries["none"].rank_order_crossings > 0


def test_railwright_forgets_a_job_that_has_ended():
    made = []

    def make(on):
        made.append(policies.RailwrightPolicy(on, has_events=True))
        return made[0]

    experiments.Simulation(site({"s": (4,)}), make, SETTINGS).run(
        [job(0, 2), job(1, 4, arrival=50.0), job(2, 1, 4, arrival=60.0)]
    )
    (chooser,) = made
    assert len(chooser.state.pods) == len(chooser.assumed) == 0
    assert chooser.state.get_gang_size("train/job-1", observed=0) == 1


def test_the_jobs_of_a_study_are_the_same_for_all_policies():
    experiment = experiments.Experiment(spec=cluster_specs.build_from_catalogue("superpod-2"), jobs=60)
    jobs = experiments.draw_jobs(experiment)
    results = [experiments.run(experiment, policy, jobs) for policy in experiments.POLICIES]
    assert {result.summary.jobs for result in results} == {60}
    assert results[3].decisions > 0


def test_a_real_clusters_nodes_are_simulated_under_their_own_policy():
    shape = cluster_specs.UNEVEN_64  # shared rails, 100 devices each, and no node shape
    trees = list(cluster_specs.build_nodes(shape))
    policy = msgspec.structs.replace(
        cluster_specs.build_from_catalogue("mixed").policy,
        fabrics={
            "roce": msgspec.structs.replace(cluster_specs.build_from_catalogue("mixed").fabric, rails=rails_of(shape))
        },
        default_fabric="roce",
    )
    from railwright.fabric import node_views

    cluster_spec = cluster_specs.build_from_nodes(msgspec.convert(trees, list[node_views.Node]), policy, "a test")
    on = cluster.Cluster(cluster_spec)
    assert (on.counted, on.named, len(on.hosts)) == (True, True, 64)
    assert on.hosts[0].hardware.devices == (100,) * 4
    assert play(cluster_spec, [job(0, 8)], "railwright").placed[0].value == 1.0
    with pytest.raises(cluster_specs.ClusterSpecError, match=r"no node has allocatable nvidia\.com/gpu"):
        cluster_specs.build_from_nodes([], policy, "a test")


def test_rails_and_gpus_that_come_as_claims_are_simulated_as_resources():
    from railwright.fabric import node_views

    policy = claimed.policy(domains=["leaf"]).document
    trees = [{"metadata": {"name": f"n{number}", "labels": {"leaf": "a"}}} for number in range(2)]
    trees.append({"metadata": {"name": "cpu-only"}})
    spec = cluster_specs.build_from_nodes(msgspec.convert(trees, list[node_views.Node]), policy, "a test")
    assert spec.source == "a test; rails by claims of DeviceClass dranet are simulated as resources"
    on = cluster.Cluster(spec)
    assert [host.name for host in on.hosts] == ["n0", "n1"]
    assert (on.counted, on.hosts[0].hardware.devices, on.hosts[0].hardware.gpus) == (True, (1,) * 4, (8,))
    assert play(spec, [job(0, 2)], "railwright").placed[0].value == 1.0


def rails_of(shape):
    from railwright.fabric.policy import model

    return tuple(model.Rail(name=f"rail{i}", resource=name) for i, name in enumerate(shape.rails))
