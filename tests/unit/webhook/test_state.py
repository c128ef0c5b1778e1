"""What is kept of the cluster, and what it means for a decision."""

import msgspec

from fabric import views
from webhook import state


def node(name: str, **allocatable: str) -> views.Node:
    offers = {f"x.y/{key}": amount for key, amount in allocatable.items()}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": offers}}, views.Node)


def network(name: str, resource: str | None = None) -> views.NetworkAttachmentDefinition:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": resource} if resource else None
    metadata = {"name": name, "namespace": "prod", "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, views.NetworkAttachmentDefinition)


def test_nothing_is_known_before_a_source_has_told_all():
    known = state.State()
    known.networks.upsert(network("a"))
    known.nodes.upsert(node("n", a="1"))
    facts = known.facts("prod")
    assert (facts.namespace_labels, facts.networks, facts.offered) == (None, None, None)


def test_a_resource_is_offered_while_some_node_has_any_of_it():
    known = state.State()
    known.nodes.replace([node("a", r="1"), node("b", r="2", s="0")])
    assert known.facts("x").offered == {"x.y/r"}
    known.nodes.upsert(node("b", s="1"))
    assert known.facts("x").offered == {"x.y/r", "x.y/s"}
    known.nodes.remove(node("a"))
    assert known.facts("x").offered == {"x.y/s"}


def test_networks_bring_the_resource_they_draw_on():
    known = state.State()
    known.networks.replace([network("a", "x.y/vf"), network("b")])
    assert known.facts("prod").networks == {("prod", "a"): "x.y/vf", ("prod", "b"): None}
    known.networks.remove(network("a"))
    known.networks.upsert(network("b", "x.y/vf"))
    assert known.facts("prod").networks == {("prod", "b"): "x.y/vf"}


def test_labels_of_namespaces_are_followed():
    known = state.State()
    known.namespaces.replace([msgspec.convert({"metadata": {"name": "a", "labels": {"x": "1"}}}, views.Namespace)])
    assert known.facts("a").namespace_labels == {"x": "1"}
    assert known.facts("b").namespace_labels is None
    known.namespaces.upsert(msgspec.convert({"metadata": {"name": "a"}}, views.Namespace))
    assert known.facts("a").namespace_labels == {}
    known.namespaces.remove(msgspec.convert({"metadata": {"name": "a"}}, views.Namespace))
    assert known.facts("a").namespace_labels is None


def test_pods_are_kept_only_where_they_may_have_opted_in():
    known = state.State()
    mine = {"name": "m", "namespace": "a", "uid": "1", "labels": {"railwright.io/fabric": "f"}}
    other = {"name": "o", "namespace": "a", "uid": "2"}
    known.pods.replace([msgspec.convert({"metadata": each}, views.Pod) for each in (mine, other)])
    assert len(known.pods) == 1
    assert known.pods.find("a", "m", "1") is not None
    assert known.pods.find("a", "m", "") is not None
    assert known.pods.find("a", "m", "other") is None
    assert known.pods.find("a", "o", "2") is None
    assert known.pods.knows("a", "o", "2")
    assert not known.pods.knows("a", "o", "3")
    known.pods.remove(msgspec.convert({"metadata": mine}, views.Pod))
    assert not known.pods.knows("a", "m", "1")
