"""Reports about rails: which rails they mean, what follows, and for how long."""

import msgspec
import placing
import pytest
import reporting
from reporting import CHAR_DEVICE, STATE, condition, issm_missing, port_down

from railwright.fabric import node_views
from railwright.fabric.placement.state import rail_reports
from railwright.fabric.policy import model

NAMES = [f"mlx5_{number}" for number in range(8)]


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
    cut = condition(STATE, port_down("mlx5_0"), "NIC:mlx5_1", end=";...")
    assert named(cut) == [(STATE, "mlx5_0")]
    assert named(condition(STATE, port_down("mlx5_0"), "NIC:mlx5_1 NICP", end=";...")) == [
        (STATE, "mlx5_0"),
        (STATE, "mlx5_1"),
    ]


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
    fabric = policy.document.fabrics["roce"]
    first = msgspec.structs.replace(
        fabric.rails[0], nics=("mlx5_8", "ens8f0np0"), claim=model.RailClaim(pci_address="0000:5a:00.1")
    )
    fabrics = {"roce": msgspec.structs.replace(fabric, rails=(first, *fabric.rails[1:]))}
    document = msgspec.structs.replace(policy.document, fabrics=fabrics)
    for name in ("mlx5_8", "ens8f0np0", "0000:5a:00.1", "0000:5a:00", "rail0"):
        known = reporting.ReportedCluster(placing.leaves(a=1), model.Policy(document, digest="sha256:n"))
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
    document = reporting.policy().document
    fabric = document.fabrics["roce"]
    shared = tuple(msgspec.structs.replace(rail, resource="rdma/shared") for rail in fabric.rails)
    fabrics = {"roce": msgspec.structs.replace(fabric, rails=shared)}
    policy = model.Policy(msgspec.structs.replace(document, fabrics=fabrics), digest="sha256:shared")
    known = reporting.ReportedCluster([placing.node("n", "a", rails_each={"rdma/shared": 4})], policy)
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
