"""The devices of every rail, by what they are doing."""

import msgspec
from placing import RESOURCES, build_cluster, node, pod, policy

from extender import rail_gauges, state
from railwright.fabric.placement.nodes import rail_devices
from railwright.fabric.policy import model
from railwright.serving import metrics

FREE, BUSY, DEAD, OUT = rail_devices.State
RAIL0 = RESOURCES[0]


def count(nodes, pods=()):
    cluster = build_cluster(nodes, pods)
    counts = rail_devices.count(cluster.nodes.values(), cluster, [RAIL0])
    return {state: counts[RAIL0, state] for state in rail_devices.State}


def test_devices_requested_by_bound_pods_are_busy_and_the_others_free():
    assert count([node("a"), node("b")], [pod("p", on="a"), pod("waiting")]) == {FREE: 1, BUSY: 1, DEAD: 0, OUT: 0}


def test_devices_in_capacity_but_not_allocatable_are_dead():
    ill = node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "1"))
    assert count([ill, node("b")]) == {FREE: 1, BUSY: 0, DEAD: 1, OUT: 0}


def test_a_device_that_died_under_a_pod_is_that_pods_until_it_ends():
    ill = node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "1"))
    assert count([ill], [pod("p", on="a")]) == {FREE: 0, BUSY: 1, DEAD: 0, OUT: 0}


def test_the_free_devices_of_a_cordoned_node_are_unschedulable_and_the_busy_ones_busy():
    nodes = [node("a", rails_each=2, unschedulable=True)]
    assert count(nodes, [pod("p", on="a")]) == {FREE: 0, BUSY: 1, DEAD: 0, OUT: 1}


def test_devices_requested_beyond_allocatable_are_overcommitted():
    nodes = [node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "2")), node("b", rails_each=2), node("c")]
    cluster = build_cluster(nodes, [pod("p", on="a", rails=2), pod("q", on="b"), pod("r", on="c"), pod("s", on="c")])
    assert rail_devices.count_overcommitted(cluster.nodes.values(), cluster, [RAIL0, "x/unknown"]) == {RAIL0: 3}


def test_rails_that_share_a_pool_are_one_line():
    rails = tuple(model.Rail(name=f"rail{number}", resource="x/y") for number in range(3))
    other = model.Rail(name="alone", resource="x/z")
    counted_by_nobody = model.Rail(name="none")
    fabric = msgspec.structs.replace(policy().document.fabrics["roce"], rails=(*rails, other, counted_by_nobody))
    assert rail_devices.name_pools(fabric) == {"x/y": "rail0..rail2", "x/z": "alone"}


async def test_the_gauge_follows_the_cluster_and_the_policy():
    cluster, counters = state.State(assume_seconds=30), metrics.Metrics("extender")
    current = [policy()]
    gauges = rail_gauges.RailGauges(cluster, counters, lambda: current[0])

    async def shown() -> dict[str, str]:
        await gauges.count()
        lines = [
            line for line in counters.format_exposition().decode().splitlines() if line.startswith("railwright_rail_")
        ]
        return dict(line.rsplit(" ", 1) for line in lines)

    cluster.cluster.replace_nodes([node(f"n{number}") for number in range(250)])
    key = 'railwright_rail_devices{{fabric="roce",rail="rail0",state="{}"}}'
    assert (await shown())[key.format("free")] == "250.0"
    cluster.cluster.upsert_pod(pod("p", on="n7"))
    after = await shown()
    assert (after[key.format("free")], after[key.format("busy")], len(after)) == ("249.0", "1.0", 4 * 4)
    document = msgspec.structs.replace(current[0].document, fabrics={})
    current[0] = model.Policy(document=document, digest="sha256:other")
    assert await shown() == {}


async def test_overcommitted_devices_are_shown_and_logged_where_they_become_more(caplog):
    cluster, counters = state.State(assume_seconds=30), metrics.Metrics("extender")
    gauges = rail_gauges.RailGauges(cluster, counters, policy)

    async def shown() -> float | None:
        await gauges.count()
        return counters.registry.get_sample_value(
            "railwright_overcommitted_devices", {"fabric": "roce", "rail": "rail0"}
        )

    cluster.cluster.replace_nodes([node("a")])
    cluster.cluster.upsert_pod(pod("p", on="a"))
    assert await shown() == 0
    cluster.cluster.upsert_pod(pod("q", on="a"))
    assert await shown() == 1
    assert len(caplog.records) == 4, "one for each rail"
    cluster.cluster.upsert_pod(pod("elsewhere", on="b"))
    cluster.cluster.remove_pod("uid-q")
    assert await shown() == 0
    assert len(caplog.records) == 4
