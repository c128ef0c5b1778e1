"""Reports on the cluster: nodes without a domain, expressions that are not understood, devices of rails."""

import logging

import claimed
import devices
import extending
import msgspec
import placing
import pytest
import reporting
import selecting
from placing import LEAF, RAILS, RESOURCES, SPINE, node, pod, policy
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down

from extender import cluster_reports, gang_events
from extender import state as states
from railwright.fabric import hypernodes, node_views, views
from railwright.fabric.placement.state import fabric_report
from railwright.fabric.policy import model
from railwright.serving import metrics


def build_state(*nodes: node_views.Node) -> states.State:
    state = states.State(assume_seconds=30)
    state.cluster.replace_nodes(nodes)
    return state


def find_missing(state: states.State, **placement: object) -> fabric_report.MissingLabels:
    return fabric_report.find_missing_labels(policy(**placement).document, state.cluster, {})


def plain(name: str) -> node_views.Node:
    """Return a node without accelerators and rails."""
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8"}}}, node_views.Node)


def test_pods_that_come_and_go_do_not_repeat_the_search():
    state = build_state(node("a"))
    before = state.cluster.topology_version
    state.cluster.upsert_pod(msgspec.convert({"metadata": {"name": "p", "uid": "p"}}, views.Pod))
    state.cluster.upsert_node(node("a"))
    assert state.cluster.topology_version == before
    for change in (
        lambda: state.cluster.upsert_node(node("a", "l9", "s0")),
        lambda: state.cluster.replace_hyper_nodes([hyper("l0", "a")]),
        lambda: state.cluster.remove_node("a"),
    ):
        before = state.cluster.topology_version
        change()
        assert state.cluster.topology_version > before


def test_each_domain_of_the_policy_lists_the_nodes_that_lack_it():
    state = build_state(node("a", "l0", "s0"), node("c", "", "s0"), node("b", "", ""), plain("cpu"))
    assert find_missing(state) == {LEAF: ("b", "c"), SPINE: ("b",)}


def test_unused_levels_of_a_preset_are_not_reported_and_explicit_ones_are():
    state = build_state(node("a", "l0", "s0"), node("b", "", "s0"))
    assert find_missing(state, domains=[], preset="topograph") == {LEAF: ("b",), SPINE: ()}
    assert find_missing(state, domains=["rack"]) == {"rack": ("a", "b")}
    assert find_missing(state, domains=[], preset="aws") == {"topology.k8s.aws/network-node-layer-3": ("a", "b")}


def test_a_node_lacks_a_rails_label_only_for_a_rail_it_has():
    three = dict.fromkeys(RESOURCES[:3], 1)
    labels = {f"leaf-{rail}": "x" for rail in RAILS[:3]}
    state = build_state(node("few", rails_each=three, labels=labels), node("all", labels=labels))
    assert find_missing(state, domains=["leaf-{rail}"]) == {"leaf-{rail}": ("all",)}


def hyper(name: str, *members: str) -> hypernodes.HyperNode:
    listed = [{"type": "Node", "selector": {"exactMatch": {"name": member}}} for member in members]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"tier": 1, "members": listed}}, hypernodes.HyperNode)


def test_with_hypernodes_a_node_in_none_of_them_is_reported():
    state = build_state(node("a"), node("b"))
    state.cluster.replace_hyper_nodes([hyper("l0", "a")])
    assert find_missing(state, domains=[], preset="volcano") == {hypernodes.LEVELS[0]: ("b",)}


class Shown:
    """The gauge and the log of one extender."""

    def __init__(self, state: states.State, **placement: object) -> None:
        self.policy = policy(**placement)
        self.incomplete = ""
        self.counters = metrics.Metrics("extender")
        self.gaps = cluster_reports.TopologyLabelMonitor(
            state, self.counters, get_policy=lambda: self.policy, get_cache_problem=lambda: self.incomplete
        )

    def gauge(self) -> dict[str, float]:
        (family,) = self.counters.nodes_without_domain.collect()
        return {sample.labels["domain"]: sample.value for sample in family.samples}


@pytest.fixture
def read_logs(caplog):
    caplog.set_level(logging.INFO, logger="railwright.extender")
    return lambda: [
        (row.levelname, row.getMessage(), row.fields) for row in caplog.records if row.name == "railwright.extender"
    ]


def test_the_gauge_follows_the_nodes_and_a_change_is_logged_once(read_logs):
    state = build_state(node("ok", "l0"), *(node(f"n{i}", "") for i in range(7)))
    shown = Shown(state)
    shown.gaps.update()
    shown.gaps.update()
    state.cluster.upsert_pod(msgspec.convert({"metadata": {"name": "p"}}, views.Pod))
    shown.gaps.update()
    assert shown.gauge() == {LEAF: 7, SPINE: 0}
    ((level, message, fields),) = read_logs()
    assert (level, message) == ("WARNING", "nodes without a domain")
    assert (fields["domain"], fields["nodes"], fields["first"]) == (LEAF, 7, ("n0", "n1", "n2", "n3", "n4"))
    for i in range(7):
        state.cluster.upsert_node(node(f"n{i}", "l1"))
    shown.gaps.update()
    assert shown.gauge() == {LEAF: 0, SPINE: 0}
    assert [row[:2] for row in read_logs()[1:]] == [("INFO", "every node has its domain")]


def test_domains_of_an_old_policy_are_no_longer_shown(read_logs):
    shown = Shown(build_state(node("a", "")))
    shown.gaps.update()
    shown.policy = msgspec.structs.replace(policy(domains=["rack"]), digest="sha256:new")
    shown.gaps.update()
    assert shown.gauge() == {"rack": 1}


def test_nothing_is_reported_before_the_caches_are_complete(read_logs):
    shown = Shown(build_state(node("a", "")))
    shown.incomplete = "not read yet: nodes"
    shown.gaps.update()
    assert shown.gauge() == {}
    assert read_logs() == []


def test_problems_of_hypernodes_are_logged_once(read_logs):
    state = build_state(node("a"), node("b"))
    state.cluster.replace_hyper_nodes([hyper("l0", "a", "b"), hyper("l1", "a", "gone")])
    shown = Shown(state, domains=[], preset="volcano")
    shown.gaps.update()
    state.cluster.upsert_node(node("c"))
    shown.gaps.update()
    problems = [fields for _, message, fields in read_logs() if message == "invalid HyperNodes are ignored"]
    assert len(problems) == 1
    assert problems[0]["first"] == (
        "HyperNode l1 has the member gone, but there is no such node; remove it",
        "node a is a member of the HyperNodes l0 and l1; l0 is used: remove it from l1",
    )


# --- expressions whose selected devices are unknown -----------------------------------------------------------


CIDR = 'device.driver == "dra.net" && cidr("10.0.0.0/8").containsIP("10.1.2.3")'
UNGUARDED = 'device.driver == "dra.net" && device.attributes["dra.net"].nic == "a"'


@pytest.fixture
def report():
    """Return a function that reports an expression of a class at a time, the posted Events and the gauge."""

    def build(expression, *, is_leader=True):
        state, poster, now = states.State(assume_seconds=30), extending.Poster(), [0.0]
        counters = metrics.Metrics("extender")
        known = state.cluster.claimed.inventory
        known.class_sink.replace(devices.read_classes(devices.build_class("nics", expression)))
        known.slice_sink.replace(devices.read_slices(*devices.build_slices("n1")))
        reports = cluster_reports.SelectorReports(state, counters, poster, lambda: is_leader, lambda: now[0])

        def update(seconds=0.0):
            now[0] += seconds
            known.count_devices("n1")
            reports.update()
            return {
                name: counters.registry.get_sample_value("railwright_unknown_selectors", {"state": name})
                for name in ("unknown", "fails", "pending")
            }

        return update, poster.posted, known

    return build


def test_pending_questions_are_counted_and_reported_once_in_half_an_hour(report, caplog):
    update, posted, known = report(CIDR)
    assert update()["pending"] > 0
    assert posted == []
    selecting.answer_here(known.names.evaluations)
    known.answer({})
    assert update() == {"unknown": 1, "fails": 0, "pending": 0}
    [(about, warning, reason, message)] = posted
    assert (about.kind, about.namespace, about.name) == ("DeviceClass", "", "nics")
    assert (warning, reason) == (True, "SelectorUnknown")
    assert message.startswith(f"it is unknown which devices the expression {CIDR} selects for device dra.net/n1/")
    assert "undeclared reference to 'cidr'" in message
    assert "kube-scheduler decides" in message
    update(600)
    assert len(posted) == 1
    update(1300)
    assert len(posted) == 2
    assert caplog.messages == ["selector of devices is unknown"] * 2


def test_an_expression_that_fails_names_the_attribute_and_the_fix(report):
    update, posted, _ = report(UNGUARDED)
    assert update() == {"unknown": 0, "fails": 1, "pending": 0}
    [(*_, message)] = posted
    assert message.startswith(f"the expression {UNGUARDED} fails for device dra.net/n1/")
    assert message.endswith("test the attribute with has() first")


def test_a_standby_reports_nothing(report):
    update, posted, _ = report(UNGUARDED, is_leader=False)
    assert update()["fails"] == 1
    assert posted == []


# --- devices of rails -----------------------------------------------------------------------------------------


async def test_the_gauge_follows_the_cluster_and_the_policy():
    cluster, counters = states.State(assume_seconds=30), metrics.Metrics("extender")
    current = [policy()]
    gauges = cluster_reports.RailGauges(cluster, counters, lambda: current[0])

    async def shown() -> dict[str, str]:
        await gauges.count()
        lines = [
            line
            for line in counters.format_exposition().decode().splitlines()
            if line.startswith(("railwright_rail_", "railwright_overcommitted_"))
        ]
        return dict(line.rsplit(" ", 1) for line in lines)

    cluster.cluster.replace_nodes([node(f"n{number}") for number in range(250)])
    key = 'railwright_rail_devices{{fabric="roce",rail="rail0",state="{}"}}'
    assert (await shown())[key.format("free")] == "250.0"
    cluster.cluster.upsert_pod(pod("p", on="n7"))
    after = await shown()
    assert (after[key.format("free")], after[key.format("busy")], len(after)) == ("249.0", "1.0", 4 * 6)
    document = msgspec.structs.replace(current[0].document, fabrics={})
    current[0] = model.Policy(document=document, digest="sha256:other")
    assert await shown() == {}


def build_claims_state():
    """Return two nodes with slices, the rails of `claimed`."""
    cluster = states.State(assume_seconds=30)
    cluster.cluster.replace_nodes([claimed.build_node("n1"), claimed.build_node("n2")])
    claimed.name_devices(cluster.cluster)
    offer(cluster, "n1")
    offer(cluster, "n2")
    return cluster


def offer(cluster, name, **kinds):
    claimed.add_slices(cluster.cluster, name, **kinds)


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
    claimed.add_template(cluster.cluster, "t", (1,))
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


async def test_overcommitted_devices_are_shown_and_logged_where_they_become_more(caplog):
    cluster, counters = states.State(assume_seconds=30), metrics.Metrics("extender")
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


# --- Events that tell running gangs which of their rails are reported not to work -----------------------------


class Site:
    """Two nodes with a gang of two, told by a clock of the test."""

    def __init__(self, *, pods=None, is_leader=True):
        self.clock, self.poster, self.is_leader = reporting.Clock(), extending.Poster(), is_leader
        self.clock.now = 100.0
        self.state = states.State(assume_seconds=30, clock=self.clock)
        self.nodes = {node.metadata.name: node for node in placing.leaves(a=2)}
        self.state.cluster.replace_nodes(list(self.nodes.values()))
        gang = [placing.pod(f"w-{rank}", group="g", on=f"a-0{rank}") for rank in range(2)]
        self.state.cluster.replace_pods(gang if pods is None else pods)
        self.state.apply_policy(reporting.policy())
        self.events = gang_events.RailEvents(self.state, gang_events.PodGroups(), self.poster, lambda: self.is_leader)

    def report(self, name, *conditions):
        self.state.cluster.upsert_node(reporting.with_conditions(self.nodes[name], *conditions))

    def wait(self, seconds):
        for _ in range(seconds):
            self.clock.now += 1
            self.state.expire()
            self.events.update()
        posted, self.poster.posted = self.poster.posted, []
        return posted


def test_a_gang_is_told_once_which_rail_of_which_node():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    [(about, warning, reason, message)] = site.wait(10)
    assert (about.kind, about.name, warning, reason) == ("Pod", "w-1", True, "GangRailReported")
    assert message == (
        "RailReported: a-01: InfiniBandStateCheck reports rail3 since 2026-08-12T23:00:02Z: NIC:mlx5_3 NICPort:1 Port "
        "mlx5_3 port 1: state DOWN, phys_state Disabled Recommended Action=REPLACE_VM (exclude)"
    )
    assert site.wait(100) == []


def test_a_report_that_has_ended_is_told_again_only_when_it_returns():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1
    site.report("a-01", condition(STATE))
    assert site.wait(10) == []
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1


def test_a_report_of_a_moment_is_not_told():
    site = Site()
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(3) == []
    site.report("a-01", condition(STATE))
    assert site.wait(100) == []


def test_the_event_is_one_for_all_rails_of_a_gang_and_limited():
    site = Site()
    for name in ("a-00", "a-01"):
        site.report(name, condition(STATE, *[port_down(f"mlx5_{number}") for number in range(4)]))
    [(about, _, _, message)] = site.wait(10)
    assert about.name in {"w-0", "w-1"}
    assert message.count("InfiniBandStateCheck") == 3
    assert message.endswith("; and 5 more")
    assert len(message) <= 1024


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([placing.pod("idle", on="a-01", rails=0)], id="without rails"),
        pytest.param([placing.pod("there", on="a-00")], id="on another node"),
    ],
)
def test_pods_that_do_not_use_the_rail_are_told_nothing(pods):
    site = Site(pods=pods)
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(10) == []


@pytest.mark.parametrize(("rails", "events"), [('["rail0","rail3"]', 1), ('["rail0"]', 0), ("[]", 0)])
def test_a_pod_of_rails_without_a_resource_uses_those_of_its_record(rails, events):
    record = f'{{"version":"1","policy":"sha256:p","fabric":"roce","rails":{rails}}}'
    pod = placing.pod("w-1", on="a-01", rails=0, annotations={"railwright.io/injection": record})
    site = Site(pods=[pod])
    by = reporting.policy()
    bare = [msgspec.structs.replace(rail, resource=None) for rail in by.document.fabrics["roce"].rails]
    site.state.apply_policy(placing.change_fabric(by, rails=tuple(bare)))
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == events


def test_pods_without_a_gang_are_told_one_by_one():
    site = Site(pods=[placing.pod(f"alone-{number}", on=f"a-0{number}") for number in range(2)])
    for name in site.nodes:
        site.report(name, condition(STATE, port_down("mlx5_3")))
    assert {about.name for about, *_ in site.wait(10)} == {"alone-0", "alone-1"}


def test_an_ignored_report_is_not_told():
    site = Site()
    site.state.apply_policy(reporting.policy(health={"reports": {CHAR_DEVICE: "ignore"}}))
    site.report("a-01", condition(CHAR_DEVICE, issm_missing("mlx5_3")))
    assert site.wait(10) == []


def test_a_standby_tells_nothing_and_repeats_nothing_when_it_leads():
    site = Site(is_leader=False)
    site.report("a-01", condition(STATE, port_down("mlx5_3")))
    assert site.wait(10) == []
    site.is_leader = True
    assert site.wait(10) == []
    site.report("a-00", condition(STATE, port_down("mlx5_3")))
    assert len(site.wait(10)) == 1
