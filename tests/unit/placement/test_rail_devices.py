"""The devices of every rail by their state."""

import claimed
import devices
import msgspec
from placing import RESOURCES, build_cluster, node, pod, policy

from extender import cluster_reports, state
from railwright.fabric.placement.state import fabric_report
from railwright.fabric.policy import model
from railwright.serving import metrics

FREE, BUSY, DEAD, MISSING, OUT = fabric_report.State
RAIL0 = RESOURCES[0]


def count(nodes, pods=()):
    cluster = build_cluster(nodes, pods)
    counts = fabric_report.count_devices(cluster.nodes.values(), cluster, [RAIL0])
    return {state: counts[RAIL0, state] for state in (FREE, BUSY, DEAD, OUT)}


def test_devices_requested_by_bound_pods_are_busy_and_the_others_free():
    assert count([node("a"), node("b")], [pod("p", on="a"), pod("waiting")]) == {FREE: 1, BUSY: 1, DEAD: 0, OUT: 0}


def test_devices_in_capacity_but_not_allocatable_are_dead():
    ill = node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "1"))
    assert count([ill, node("b")]) == {FREE: 1, BUSY: 0, DEAD: 1, OUT: 0}


def test_a_device_that_failed_under_a_pod_is_busy_until_the_pod_ends():
    ill = node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "1"))
    assert count([ill], [pod("p", on="a")]) == {FREE: 0, BUSY: 1, DEAD: 0, OUT: 0}


def test_the_free_devices_of_a_cordoned_node_are_unschedulable_and_the_busy_ones_busy():
    nodes = [node("a", rails_each=2, unschedulable=True)]
    assert count(nodes, [pod("p", on="a")]) == {FREE: 0, BUSY: 1, DEAD: 0, OUT: 1}


def test_devices_requested_beyond_allocatable_are_overcommitted():
    nodes = [node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "2")), node("b", rails_each=2), node("c")]
    cluster = build_cluster(nodes, [pod("p", on="a", rails=2), pod("q", on="b"), pod("r", on="c"), pod("s", on="c")])
    assert fabric_report.count_overcommitted(cluster.nodes.values(), cluster, [RAIL0, "x/unknown"]) == {RAIL0: 3}


def test_rails_that_share_a_pool_have_one_label():
    rails = tuple(model.Rail(name=f"rail{number}", resource="x/y") for number in range(3))
    other = model.Rail(name="alone", resource="x/z")
    counted_by_nobody = model.Rail(name="none")
    fabric = msgspec.structs.replace(policy().document.fabrics["roce"], rails=(*rails, other, counted_by_nobody))
    assert fabric_report.name_pools(fabric) == {"x/y": "rail0..rail2", "x/z": "alone"}


async def test_the_gauge_follows_the_cluster_and_the_policy():
    cluster, counters = state.State(assume_seconds=30), metrics.Metrics("extender")
    current = [policy()]
    gauges = cluster_reports.RailGauges(cluster, counters, lambda: current[0])

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
    assert (after[key.format("free")], after[key.format("busy")], len(after)) == ("249.0", "1.0", 4 * 5)
    document = msgspec.structs.replace(current[0].document, fabrics={})
    current[0] = model.Policy(document=document, digest="sha256:other")
    assert await shown() == {}


def build_claims_state():
    """Return two nodes with slices, the rails of `claimed`."""
    cluster = state.State(assume_seconds=30)
    cluster.cluster.replace_nodes([claimed.build_node("n1"), claimed.build_node("n2")])
    claimed.name_devices(cluster.cluster)
    offer(cluster, "n1")
    offer(cluster, "n2")
    return cluster


def offer(cluster, name, **kinds):
    for offered in devices.read_slices(*devices.build_slices(name, **kinds)):
        cluster.cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))


async def show_rails(cluster, rails=claimed.RAILS[:2]):
    """Return free, busy, dead, missing and unschedulable devices, and the overcommitted ones, of each rail."""
    counters = metrics.Metrics("extender")
    await cluster_reports.RailGauges(cluster, counters, claimed.policy).count()

    def read(name, **labels):
        return int(counters.registry.get_sample_value(f"railwright_{name}", {"fabric": claimed.FABRIC, **labels}))

    return [
        (
            *(read("rail_devices", rail=rail, state=kind.value) for kind in fabric_report.State),
            read("overcommitted_devices", rail=rail),
        )
        for rail in rails
    ]


async def test_devices_of_claims_count_in_the_gauges_as_those_of_device_plugins():
    cluster = build_claims_state()
    assert await show_rails(cluster) == [(2, 0, 0, 0, 0, 0)] * 2
    tree = claimed.build_claim("c", (0,), gpus=1, pod_uid="uid-p", on="n1", entry="railwright")
    cluster.cluster.upsert_claim(devices.read_claim(tree))
    assert await show_rails(cluster) == [(1, 1, 0, 0, 0, 0), (2, 0, 0, 0, 0, 0)]
    template = claimed.build_template("t", (1,))
    cluster.cluster.change_templates(lambda known: known.template_sink.upsert(template))
    cluster.cluster.upsert_pod(claimed.build_pod("waiting-for-its-claim", on="n2"))
    assert await show_rails(cluster) == [(1, 1, 0, 0, 0, 0), (1, 1, 0, 0, 0, 0)]


async def test_a_tainted_device_of_a_claim_is_dead_and_one_that_is_gone_is_missing():
    cluster = build_claims_state()
    offer(cluster, "n1", taints={"pci-0000-10-1b-0": "NoSchedule"}, generation=2)
    offer(cluster, "n2", without=["pci-0000-20-1b-0"], generation=2)
    assert await show_rails(cluster) == [(1, 0, 1, 0, 0, 0), (1, 0, 0, 1, 0, 0)]
    offer(cluster, "n1", generation=3)
    offer(cluster, "n2", generation=3)
    assert await show_rails(cluster) == [(2, 0, 0, 0, 0, 0)] * 2


async def test_a_device_of_a_claim_whose_taint_came_while_it_was_held_is_busy_and_overcommitted():
    cluster = build_claims_state()
    tree = claimed.build_claim("c", (0,), gpus=1, pod_uid="uid-p", on="n1", entry="railwright")
    cluster.cluster.upsert_claim(devices.read_claim(tree))
    offer(cluster, "n1", taints={"pci-0000-10-1b-0": "NoSchedule"}, generation=2)
    assert await show_rails(cluster) == [(1, 1, 0, 0, 0, 1), (2, 0, 0, 0, 0, 0)]
    cluster.cluster.remove_claim(devices.read_claim(tree))
    assert await show_rails(cluster) == [(1, 0, 1, 0, 0, 0), (2, 0, 0, 0, 0, 0)]


def test_a_node_without_any_rail_of_a_fabric_misses_none():
    other = node("other", rails_each=0, capacity={})
    cluster = build_cluster([node("a"), other])
    assert not fabric_report.count_missing(cluster.nodes.values(), RESOURCES)
    assert fabric_report.count_missing(cluster.nodes.values(), [*RESOURCES, "x/fifth"]) == {"x/fifth": 1}


async def test_overcommitted_devices_are_shown_and_logged_where_they_become_more(caplog):
    cluster, counters = state.State(assume_seconds=30), metrics.Metrics("extender")
    gauges = cluster_reports.RailGauges(cluster, counters, policy)

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
