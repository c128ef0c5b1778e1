"""The version of the topology: what is found by labels is searched again only if nodes or HyperNodes have changed."""

import msgspec
from placing import node

from extender import state as states
from railwright.fabric import hypernodes, views


def hyper(name: str, *members: str) -> hypernodes.HyperNode:
    listed = [{"type": "Node", "selector": {"exactMatch": {"name": member}}} for member in members]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"tier": 1, "members": listed}}, hypernodes.HyperNode)


def test_pods_that_come_and_go_do_not_repeat_the_search():
    state = states.State()
    state.cluster.upsert_node(node("a"))
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
