"""Reports about rails: which rails they mean, what follows, and for how long."""

import copy

import claimed
import devices
import msgspec
import placing
import pytest
import reporting
from hypothesis import given
from hypothesis import strategies as st
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down
from wording import text

from extender import state as states
from railwright.cluster import policies
from railwright.fabric import node_views
from railwright.fabric.placement import engine
from railwright.fabric.placement.state import rail_reports
from railwright.fabric.policy import claimed_rails, model
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import volcano


def named(*conditions):
    """Return (source, names) of the reports in conditions."""
    node = reporting.with_conditions(placing.node("n"), *conditions)
    return [(report.source, *report.names) for report in rail_reports.read_conditions(node)]


def cluster(*, nodes=None, **policy):
    return reporting.ReportedCluster(nodes or placing.leaves(a=2), reporting.policy(**policy))


# --- texts ----------------------------------------------------------------------------------------------------


def test_entries_of_nvsentinel_name_their_nic_and_not_the_words_of_their_text():
    message = condition(CHAR_DEVICE, issm_missing("mlx5_3"), issm_missing("mlx5_2"))
    assert named(message) == [(CHAR_DEVICE, "mlx5_3"), (CHAR_DEVICE, "mlx5_2")]


def test_an_entry_without_an_entity_names_all_words_with_a_digit():
    message = condition("GpudInfiniBand", "device(s) down too long: mlx5_0, mlx5_7", end="")
    assert named(message) == [("GpudInfiniBand", "mlx5_0", "mlx5_7")]


def test_the_name_at_the_end_of_a_message_that_was_cut_does_not_count():
    for last, names in (("NIC:mlx5_1", ["mlx5_0"]), ("NIC:mlx5_1 NICP", ["mlx5_0", "mlx5_1"])):
        cut = condition(STATE, port_down("mlx5_0"), last, end=";...")
        assert named(cut) == [(STATE, name) for name in names]


@pytest.mark.parametrize(
    "quiet",
    [
        condition(STATE),
        {"type": "Ready", "status": "True", "message": "kubelet is posting ready status mlx5_3"},
        {"type": STATE, "status": "Unknown", "message": "NIC:mlx5_3 "},
        {"type": STATE, "status": "True", "message": ""},
        {"type": STATE, "status": "True", "message": ";;; ; NIC: ;NIC:x;"},
    ],
)
def test_a_condition_without_fault_or_name_reports_nothing(quiet):
    assert named(quiet) == []


def test_lengths_and_counts_are_limited_whatever_a_monitor_writes():
    long = [condition(f"Monitor{kind}", *[f"NIC:{'x' * 99}1 NIC:m{n}" for n in range(500)]) for kind in range(99)]
    reports = named(*long)
    assert len({source for source, *_ in reports}) == 16
    assert len(reports) <= 16 * 64
    assert all(len(name) < 64 for _, *names in reports for name in names)
    one = named(condition(STATE, " ".join(f"word{number}" for number in range(900)), end=""))
    assert [len(names) for _, *names in one] == [64]


# --- rails ----------------------------------------------------------------------------------------------------


def test_one_event_takes_the_rail_out_of_its_node_and_another_brings_it_back_after_the_hold():
    known = cluster()
    before = known.state.change_log.position
    known.report("a-00", condition(STATE, port_down("mlx5_3")))
    assert known.list_rails("a-00") == ["rail3 excluded"]
    assert known.list_rails("a-01") == []
    assert list(known.state.change_log.read_since(before)) == ["a-00"]
    [state] = known.state.health.list_states("a-00", "roce")
    assert (state.source, state.since, state.is_held) == (STATE, reporting.SINCE, False)
    assert state.detail.startswith("NIC:mlx5_3 NICPort:1 Port mlx5_3 port 1: state DOWN")
    known.report("a-00", condition(STATE))
    assert known.list_rails("a-00") == ["rail3 excluded"]
    known.wait(59)
    assert known.list_rails("a-00") == ["rail3 excluded"]
    before = known.state.change_log.position
    known.wait(1)
    assert known.list_rails("a-00") == []
    assert list(known.state.change_log.read_since(before)) == ["a-00"]
    known.wait(1800)
    assert not known.state.health.nodes


def test_heartbeats_with_the_same_report_change_nothing():
    known = cluster()
    known.report("a-00", condition(STATE, port_down("mlx5_3")))
    before = known.state.change_log.position
    known.report("a-00", condition(STATE, port_down("mlx5_3")) | {"lastHeartbeatTime": "2026-08-13T00:00:00Z"})
    known.wait(3600)
    assert known.state.change_log.position == before


def test_a_flapping_port_stays_out():
    known = cluster()
    for _ in range(6):
        known.report("a-00", condition(STATE, port_down("mlx5_3")))
        known.wait(1)
        known.report("a-00", condition(STATE))
        known.wait(61)
    assert known.list_rails("a-00") == ["rail3 excluded"]  # for 1,800 s: 60 x 2^5, limited
    known.wait(1738)
    assert known.list_rails("a-00") == ["rail3 excluded"]
    known.wait(1)
    assert known.list_rails("a-00") == []


def test_the_policy_says_what_a_report_does():
    known = cluster()
    known.report("a-00", condition(CHAR_DEVICE, issm_missing("mlx5_1")), condition("LinkFlaps", "mlx5_2 flaps", end=""))
    assert known.list_rails("a-00") == ["rail1 avoided"]
    known.apply(reporting.policy(health={"reports": {CHAR_DEVICE: "ignore", "LinkFlaps": "exclude"}}))
    assert known.list_rails("a-00") == ["rail2 excluded"]
    assert [state.belief for state in known.state.health.list_states("a-00", "roce")] == ["ignore", "exclude"]
    assert known.state.health.count() == {("roce", CHAR_DEVICE, "ignore"): 1, ("roce", "LinkFlaps", "exclude"): 1}


def test_of_several_reports_about_a_rail_the_strongest_counts():
    known = cluster()
    known.report("a-00", condition(CHAR_DEVICE, issm_missing("mlx5_1")), condition(STATE, port_down("mlx5_1")))
    assert known.list_rails("a-00") == ["rail1 excluded"]


def test_a_device_of_the_shape_is_no_other_rails_nic():
    shape = model.NodeShape(name="swapped", match={"type": "swapped"}, devices={"rail0": "mlx5_1", "rail1": "mlx5_0"})
    policy = reporting.policy()
    document = msgspec.structs.replace(policy.document, node_shapes=(shape,))
    nodes = [placing.node("plain", "a"), placing.node("swapped", "a", labels={"type": "swapped"})]
    known = reporting.ReportedCluster(nodes, model.Policy(document, digest="sha256:s"))
    for name in ("plain", "swapped"):
        known.report(name, condition(STATE, port_down("mlx5_1")))
    assert known.list_rails("plain") == ["rail1 excluded"]
    assert known.list_rails("swapped") == ["rail0 excluded"]


def test_a_nic_without_a_device_in_the_policy_is_named_by_its_other_names():
    policy = reporting.policy(devices=False)
    first, *others = policy.document.fabrics["roce"].rails
    claim = model.RailClaim(pci_address="0000:5a:00.1")
    first = msgspec.structs.replace(first, nics=("mlx5_8", "ens8f0np0"), claim=claim)
    for name in ("mlx5_8", "ens8f0np0", "0000:5a:00.1", "0000:5a:00", "rail0"):
        known = reporting.ReportedCluster(placing.leaves(a=1), placing.change_fabric(policy, rails=(first, *others)))
        known.report("a-00", condition(STATE, f"NIC:{name} x Recommended Action=REPLACE_VM"))
        assert known.list_rails("a-00") == ["rail0 excluded"], name


def test_a_nic_that_is_no_rail_changes_nothing():
    known = cluster()
    known.report("a-00", condition(STATE, port_down("mlx5_9")))
    assert known.list_rails("a-00") == []


# --- device counts --------------------------------------------------------------------------------------------


def without(node: node_views.Node, resource: str, *, in_capacity: bool) -> node_views.Node:
    """Return a node without allocatable devices of a resource."""
    capacity = dict(node.status.capacity) if in_capacity else {**node.status.capacity, resource: "0"}
    status = node_views.NodeStatus({**capacity}, {**node.status.allocatable, resource: "0"})
    return msgspec.structs.replace(node, status=status)


@pytest.mark.parametrize(("in_capacity", "source"), [(True, "DeviceUnhealthy"), (False, "DeviceMissing")])
def test_a_rail_whose_devices_fail_is_avoided_for_a_while_after_they_are_back(in_capacity, source):
    known = cluster()
    known.state.upsert_node(without(known.nodes["a-00"], placing.RESOURCES[2], in_capacity=in_capacity))
    assert [state.source for state in known.state.health.list_states("a-00", "roce")] == [source]
    known.report("a-00")
    assert known.list_rails("a-00") == ["rail2 avoided"]
    known.wait(60)
    assert known.list_rails("a-00") == []


@pytest.mark.parametrize(("left", "rails"), [(0, 4), (1, 0)])
def test_the_rails_of_a_shared_resource_fail_together_when_no_device_is_left(left, rails):
    by = reporting.policy()
    shared = [msgspec.structs.replace(rail, resource="rdma/shared") for rail in by.document.fabrics["roce"].rails]
    nodes = [placing.node("n", "a", rails_each={"rdma/shared": 4})]
    known = reporting.ReportedCluster(nodes, placing.change_fabric(by, rails=tuple(shared)))
    allocatable = {**known.nodes["n"].status.allocatable, "rdma/shared": str(left)}
    status = node_views.NodeStatus(known.nodes["n"].status.capacity, allocatable)
    known.state.upsert_node(msgspec.structs.replace(known.nodes["n"], status=status))
    assert known.list_rails("n") == [f"rail{number} avoided" for number in range(rails)]


def test_a_rail_that_a_node_never_had_is_not_missing():
    bare = placing.node("bare", "a", rails_each={placing.RESOURCES[0]: 1})
    known = cluster(nodes=[bare])
    assert not known.state.health.nodes


def test_a_deleted_node_leaves_nothing():
    known = cluster()
    known.report("a-00", condition(STATE, port_down("mlx5_3")))
    known.report("a-00", condition(STATE))
    known.state.remove_node("a-00")
    known.wait(3600)
    assert not known.state.health.nodes


# --- how long a report counts ---------------------------------------------------------------------------------


LIMITS = rail_reports.Limits(hold=60, max_hold=1800)
changes = st.lists(st.tuples(st.floats(0, 5000), st.booleans()), max_size=40)
limits = st.tuples(st.floats(1, 1000), st.floats(1, 3000)).map(
    lambda pair: rail_reports.Limits(min(pair), max(pair)),
)


def play(steps, given_limits=LIMITS):
    """Return (time, made, what is known) after each step: a wait in seconds, and whether the report is made then."""
    known, now, rows = None, 0.0, []
    for seconds, is_made in steps:
        now += seconds
        known = rail_reports.update(known, is_made=is_made, now=now, limits=given_limits)
        rows.append((now, is_made, known))
    return rows


def list_outages(times, until, down=1.0):
    """Return how long the report counts, in whole seconds from each of these times, if it lasts `down` seconds."""
    known, counted = None, []
    for second in range(until):
        is_made = any(at <= second < at + down for at in times)
        known = rail_reports.update(known, is_made=is_made, now=float(second), limits=LIMITS)
        counted.append(known is not None and known.counts(float(second)))
    return counted


def test_one_report_counts_at_once_and_for_a_minute_after_it_has_ended():
    counted = list_outages([10], 200, down=5)
    assert [second for second, counts in enumerate(counted) if counts] == list(range(10, 75))


def test_the_hold_doubles_with_each_return_up_to_the_limit():
    rows = play([(0, True), *[(300, index % 2 == 1) for index in range(16)]])
    assert [known.hold for _, made, known in rows if made] == [60, 120, 240, 480, 960, 1800, 1800, 1800, 1800]


def test_a_link_that_flaps_every_fifty_seconds_is_out_without_a_break():
    counted = list_outages(range(0, 3000, 50), 3000)
    assert all(counted)


def test_after_the_longest_hold_without_a_report_the_next_is_the_first():
    rows = play([(0, True), (1, False), (100, True), (1, False), (1800, True)])
    assert [known.hold for _, made, known in rows if made] == [60, 120, 60]


@given(changes, limits)
def test_a_report_counts_while_it_is_made_and_for_no_longer_than_the_limit_after_it(steps, given_limits):
    for now, is_made, known in play(steps, given_limits):
        if is_made:
            assert known.counts(now + 1e6)
            assert given_limits.hold <= known.hold <= given_limits.max_hold
        elif known is not None:
            assert not known.counts(known.changed_at + given_limits.max_hold + 0.001)
            assert known.counts(known.changed_at) or not known.hold


@given(changes, limits)
def test_nothing_is_remembered_for_longer_than_the_limit(steps, given_limits):
    *_, (_, _, known) = play([*steps, (0, False), (given_limits.max_hold + 1, False)], given_limits)
    assert known is None


@given(changes, limits)
def test_seeing_the_same_again_changes_nothing(steps, given_limits):
    doubled = [step for seconds, is_made in steps for step in ((seconds, is_made), (0.0, is_made))]
    assert [known for *_, known in play(doubled, given_limits)[1::2]] == [
        known for *_, known in play(steps, given_limits)
    ]


# --- what pods get of nodes whose rails are reported not to work ----------------------------------------------


def decide(known, by, *, size=1, name="job-worker-0"):
    known.state.upsert_size(volcano.POD_GROUPS, placing.build_pod_group("train", "gang", size))
    request = placing.build_request(placing.pod(name, group="gang"), list(known.state.nodes), by)
    return placing.score_once(request, known.state)


def reported(kind, entry, *, required=False, on=("a-00",), leaves=None):
    by = reporting.policy(required=required)
    known = reporting.ReportedCluster(placing.leaves(**(leaves or {"a": 2})), by)
    for name in on:
        known.report(name, condition(kind, entry))
    return known, by


@pytest.mark.parametrize(("kind", "entry"), [(STATE, port_down("mlx5_3")), (CHAR_DEVICE, issm_missing("mlx5_3"))])
def test_a_gang_avoids_the_node_where_others_are_there_and_takes_it_where_none_is(kind, entry):
    known, by = reported(kind, entry, leaves={"a": 4, "b": 3}, on=("a-01",))
    decision = decide(known, by, size=3)
    assert decision.plan.bandwidth == 1.0
    nodes = placing.explain(decision)
    assert nodes["a-01"].refusal is None
    best = max(node.score for node in nodes.values())
    assert nodes["a-01"].score < best
    whole = decide(known, by, size=7)
    assert whole.plan.is_complete
    assert whole.plan.bandwidth < 1.0


def without_resources(policy, *, count=4):
    """Return the policy with this number of rails that no device counts, such as those of a host network."""
    rails = policy.document.fabrics["roce"].rails
    changed = [msgspec.structs.replace(rail, resource=None) for rail in rails[:count]]
    return placing.change_fabric(policy, rails=(*changed, *rails[count:]))


@pytest.mark.parametrize("count", [1, 4], ids=["beside counted rails", "all rails"])
@pytest.mark.parametrize(("kind", "entry"), [(STATE, port_down("mlx5_0")), (CHAR_DEVICE, issm_missing("mlx5_0"))])
def test_a_gang_avoids_a_reported_rail_without_a_resource(count, kind, entry):
    by = without_resources(reporting.policy(), count=count)
    known = reporting.ReportedCluster(placing.leaves(a=4, b=3), by)
    assert [leaf for leaf, *_ in decide(known, by, size=3).plan.leaves] == ["b"]
    known.report("b-01", condition(kind, entry))
    decision = decide(known, by, size=3)
    assert [leaf for leaf, *_ in decision.plan.leaves] == ["a"]
    assert decision.plan.bandwidth == 1.0
    assert decide(known, by, size=7).plan.bandwidth == pytest.approx(0.75 if kind == STATE else 0.875)


TWO_RAILS = placing.build_pod_with("p", {placing.GPU: "4", **dict.fromkeys(placing.RESOURCES[:2], "1")})
ONE_RAIL = placing.pod("p", annotations={"railwright.io/rails": "rail0"}, rails=0)


@pytest.mark.parametrize(
    ("by", "other"),
    [
        (reporting.policy(required=True), TWO_RAILS),
        (without_resources(reporting.policy(required=True)), ONE_RAIL),
    ],
    ids=["counted by a resource", "without a resource"],
)
def test_a_node_with_an_excluded_rail_is_refused_to_pods_that_require_it_only(by, other):
    known = reporting.ReportedCluster(placing.leaves(a=2), by)
    known.report("a-00", condition(STATE, port_down("mlx5_3")))
    nodes = placing.explain(decide(known, by))
    assert text(nodes["a-00"].refusal) == "InfiniBandStateCheck reports that rail3 does not work"
    assert nodes["a-00"].is_unresolvable
    assert nodes["a-01"].refusal is None
    request = placing.build_request(other, list(known.state.nodes), by)
    nodes = placing.explain(placing.score_once(request, known.state))
    assert {node.refusal for node in nodes.values()} == {None}
    assert nodes["a-00"].score == nodes["a-01"].score


def test_a_false_report_on_every_node_costs_no_pod_its_place():
    known, by = reported(CHAR_DEVICE, issm_missing("mlx5_3"), on=("a-00", "a-01"), required=True)
    decision = decide(known, by, size=2)
    assert decision.plan.is_complete
    assert {node.refusal for node in placing.explain(decision).values()} == {None}


def test_the_reason_names_the_source_and_the_explanation_since_when():
    known, by = reported(STATE, port_down("mlx5_3"))
    decision = decide(known, by)
    row = next(row for row in decision.rows if row.node == "a-00")
    entry = decision.explainer.describe(row)
    assert "degradations" not in entry
    [message] = entry["reports"]
    assert message.message == (
        "InfiniBandStateCheck reports rail3 since 2026-08-12T23:00:02Z: NIC:mlx5_3 NICPort:1 Port mlx5_3 port 1: "
        "state DOWN, phys_state Disabled Recommended Action=REPLACE_VM (exclude)"
    )
    assert message.parameters["held"] is False
    rails = placing.explain(decision)["a-00"].terms["rails"]
    assert rendering.render(rails.reason).startswith("3 of 4")


def test_nodes_with_the_same_report_are_of_one_class_whenever_it_was_made():
    known, by = reported(STATE, port_down("mlx5_3"), leaves={"a": 8}, on=[f"a-0{number}" for number in range(8)])
    request = placing.build_request(placing.pod("p"), list(known.state.nodes), by)
    index = engine.PlacementEngine(known.state, placing.create_assumed_pods()).get_index(request)
    known.report("a-00", condition(STATE, port_down("mlx5_3")) | {"lastTransitionTime": "2026-08-13T00:00:00Z"})
    index.refresh()
    assert len(set(index.class_of_node.values())) == 1


def test_a_plan_is_made_again_after_the_event():
    known, by = reported(STATE, port_down("mlx5_3"), leaves={"a": 3, "b": 3}, on=())
    known.state.upsert_size(volcano.POD_GROUPS, placing.build_pod_group("train", "gang", 3))
    engine_of_gang = placing.RememberingEngine(known.state, placing.create_assumed_pods())
    request = placing.build_request(placing.pod("job-worker-0", group="gang"), list(known.state.nodes), by)
    [leaf] = engine_of_gang.score(request).plan.leaves
    name = next(iter(engine_of_gang.get_index(request).nodes_by_leaf[leaf]))
    known.report(name, condition(STATE, port_down("mlx5_3")))
    [other] = engine_of_gang.score(request).plan.leaves
    assert other != leaf


# --- devices in ResourceSlices: taints, links, and NICs named as slices name them -----------------------------


POLICY = """\
apiVersion: railwright.io/v1alpha1
fabrics:
  f:
    transport: {transport}
    claims: {{deviceClass: dranet, railAttribute: resource.kubernetes.io/pcieRoot}}
    rails: [{{name: rail0, claim: {{value: "pci0000:10"}}}}, {{name: rail1, claim: {{value: "pci0000:20"}}}}]
"""
SECOND = "pci-0000-20-1b-0"


class Cluster(reporting.ReportedCluster):
    """A node whose rails are in slices."""

    def __init__(self, transport="roce"):
        policy = policies.read(POLICY.format(transport=transport))
        assert isinstance(policy, model.Policy), policy
        super().__init__([placing.node("n", rails_each=0)], policy)
        classes = devices.read_classes(devices.build_class("dranet", 'device.driver == "dra.net"'))
        named = claimed_rails.list_claim_resources(policy.document)
        self.state.change_devices(
            lambda known: known.class_sink.replace(classes) | known.replace_claim_resources(named)
        )
        self.offer()

    def offer(self, attributes=None, **more):
        """Publish the slices of the node, with further attributes of the second NIC."""
        (nics, _) = devices.build_slices("n", **more)
        for device in nics["spec"]["devices"]:
            if device["name"] == SECOND:
                device["attributes"] |= attributes or {}
        self.state.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(nics)))

    def list_states(self):
        return [(row.rail, row.source, row.is_held) for row in self.state.health.list_states("n", "f")]


def test_a_nic_is_known_by_the_attributes_of_its_device():
    known = Cluster()
    known.offer({"dra.net/ifName": {"string": "ens2"}, "dra.net/pciAddress": {"string": "0000:20:1b.0"}})
    for name in (devices.RDMA_DEVICES[1], "ens2", "0000:20:1b.0", "0000:20:1b", SECOND):
        known.report("n", condition(STATE, f"NIC:{name} x Recommended Action=NONE"))
        assert known.list_rails("n", "f") == ["rail1 excluded"], name
        known.report("n")
        known.wait(9999)
    known.report("n", condition(STATE, port_down("mlx5_1")))
    assert known.list_rails("n", "f") == []


def test_a_tainted_rail_is_avoided_until_the_hold_after_its_taint_has_ended():
    known = Cluster()
    known.offer(taints={SECOND: "NoSchedule"})
    assert known.list_states() == [("rail1", "DeviceTainted", False)]
    assert known.state.health.list_states("n", "f")[0].detail == (
        "device pci-0000-20-1b-0 has the taint example.com/broken:NoSchedule"
    )
    known.offer()
    assert known.list_states() == [("rail1", "DeviceTainted", True)]
    known.wait(60)
    assert known.list_states() == []


def test_a_device_that_left_its_slice_is_missing():
    known = Cluster()
    known.offer(without=[SECOND])
    assert known.list_states() == [("rail1", "DeviceMissing", False)]


def test_no_device_is_missing_while_its_driver_writes_the_slices_of_a_pool():
    known = Cluster()
    (nics, _) = devices.build_slices("n", generation=2)
    first, second = copy.deepcopy(nics), copy.deepcopy(nics)
    second["metadata"]["name"] += "-2"
    for half, names in ((first, slice(3)), (second, slice(3, None))):
        half["spec"]["devices"] = nics["spec"]["devices"][names]
        half["spec"]["pool"]["resourceSliceCount"] = 2
        known.state.change_devices(
            lambda inventory, half=half: inventory.slice_sink.upsert(devices.read_slices(half)[0])
        )
        assert known.list_states() == []
    without = copy.deepcopy(first)
    without["spec"] |= {"pool": nics["spec"]["pool"] | {"generation": 3, "resourceSliceCount": 2}}
    without["spec"]["devices"] = []
    known.state.change_devices(lambda inventory: inventory.slice_sink.upsert(devices.read_slices(without)[0]))
    assert known.list_states() == []
    without["spec"]["pool"]["resourceSliceCount"] = 1
    known.state.change_devices(lambda inventory: inventory.slice_sink.upsert(devices.read_slices(without)[0]))
    assert known.list_states() == [("rail0", "DeviceMissing", False), ("rail1", "DeviceMissing", False)]


@pytest.mark.parametrize(
    ("transport", "attributes", "expected"),
    [
        ("roce", {"dra.net/state": {"string": "down"}}, [("rail1", "LinkDown", False)]),
        ("roce", {"dra.net/state": {"string": "up"}}, []),
        ("roce", {}, []),
        ("infiniband", {"dra.net/state": {"string": "down"}}, []),
        ("roce", {"dra.net/state": {"string": "down"}, "dra.net/encapsulation": {"string": "infiniband"}}, []),
    ],
    ids=["down", "up", "in a pod", "IPoIB of an InfiniBand fabric", "IPoIB"],
)
def test_a_link_that_is_down_by_its_slice_is_reported_where_rdma_needs_it(transport, attributes, expected):
    known = Cluster(transport)
    known.offer(attributes)
    assert known.list_states() == expected


def test_no_device_is_missing_after_rails_change_between_claims_and_device_plugins():
    known, of_claims, of_plugins = states.State(assume_seconds=30), claimed.policy(), placing.policy()
    cluster = known.cluster
    cluster.upsert_node(placing.node("n"))
    classes, slices = devices.read_classes(devices.NIC_CLASS), devices.read_slices(*devices.build_slices("n"))
    cluster.change_devices(
        lambda inventory: inventory.class_sink.replace(classes) | inventory.slice_sink.replace(slices)
    )
    for policy in (of_claims, of_plugins, of_claims):
        known.apply_policy(policy)
        assert not cluster.health.list_states("n", "roce")
