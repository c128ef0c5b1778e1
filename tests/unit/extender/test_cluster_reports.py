"""Reports on the cluster: nodes without a domain, devices of rails."""

import logging

import msgspec
import pytest
from placing import LEAF, RAILS, RESOURCES, SPINE, node, policy

from extender import cluster_reports
from extender import state as states
from railwright.fabric import hypernodes, node_views, views
from railwright.fabric.placement.state import fabric_report


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
    """The log of one extender."""

    def __init__(self, state: states.State, **placement: object) -> None:
        self.policy = policy(**placement)
        self.incomplete = ""
        self.gaps = cluster_reports.TopologyLabelMonitor(
            state, get_policy=lambda: self.policy, get_cache_problem=lambda: self.incomplete
        )


@pytest.fixture
def read_logs(caplog):
    caplog.set_level(logging.INFO, logger="railwright.extender")
    return lambda: [
        (row.levelname, row.getMessage(), row.fields) for row in caplog.records if row.name == "railwright.extender"
    ]


def test_nodes_without_a_domain_are_logged_once_for_each_change(read_logs):
    state = build_state(node("ok", "l0"), *(node(f"n{i}", "") for i in range(7)))
    shown = Shown(state)
    shown.gaps.update()
    shown.gaps.update()
    state.cluster.upsert_pod(msgspec.convert({"metadata": {"name": "p"}}, views.Pod))
    shown.gaps.update()
    ((level, message, fields),) = read_logs()
    assert (level, message) == ("WARNING", "nodes without a domain")
    assert (fields["domain"], fields["nodes"], fields["first"]) == (LEAF, 7, ("n0", "n1", "n2", "n3", "n4"))
    for i in range(7):
        state.cluster.upsert_node(node(f"n{i}", "l1"))
    shown.gaps.update()
    assert [row[:2] for row in read_logs()[1:]] == [("INFO", "every node has its domain")]


def test_the_domains_of_a_new_policy_are_logged(read_logs):
    shown = Shown(build_state(node("a", "")))
    shown.gaps.update()
    shown.policy = msgspec.structs.replace(policy(domains=["rack"]), digest="sha256:new")
    shown.gaps.update()
    assert [fields["domain"] for _, _, fields in read_logs()] == [LEAF, "rack"]


def test_nothing_is_reported_before_the_caches_are_complete(read_logs):
    shown = Shown(build_state(node("a", "")))
    shown.incomplete = "not read yet: nodes"
    shown.gaps.update()
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
