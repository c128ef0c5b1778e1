"""The stored state of the cluster, and its effect on a decision."""

import msgspec
import pytest

from railwright.cluster import snapshots
from railwright.fabric import names, node_views, views
from webhook import __main__ as webhook
from webhook import state


def node(name: str, **allocatable: str) -> node_views.Node:
    offers = {f"x.y/{key}": amount for key, amount in allocatable.items()}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": offers}}, node_views.Node)


def test_resources_of_nodes_with_a_kubelet_before_1_35_are_listed():
    def build_node(name: str, version: str, **allocatable: str) -> node_views.Node:
        return msgspec.structs.replace(
            node(name, **allocatable),
            status=msgspec.structs.replace(
                node(name, **allocatable).status, node_info=node_views.NodeInfo(kubelet_version=version)
            ),
        )

    known = state.State()
    known.nodes.replace(
        [build_node("a", "v1.35.0", r="1"), build_node("b", "v1.34.9-eks-1", r="1", s="0"), build_node("c", "", t="1")]
    )
    assert known.build_facts("x").offered_by_old == {"x.y/r", "x.y/s", "x.y/t"}
    assert set(known.build_facts("x").offered) == {"x.y/r", "x.y/t"}
    version = known.build_facts("x").version
    known.nodes.upsert(build_node("b", "v1.36.1+k3s1", r="1", s="1"))
    assert known.build_facts("x").offered_by_old == {"x.y/t"}
    assert known.build_facts("x").version > version


def network(name: str, resource: str | None = None) -> views.NetworkAttachmentDefinition:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": resource} if resource else None
    metadata = {"name": name, "namespace": "prod", "annotations": annotations}
    return msgspec.convert({"metadata": metadata}, views.NetworkAttachmentDefinition)


def test_namespace_networks_and_resources_are_unknown_before_the_first_full_list():
    known = state.State()
    known.networks.upsert(network("a"))
    known.nodes.upsert(node("n", a="1"))
    facts = known.build_facts("prod")
    assert (facts.namespace_labels, facts.networks, facts.offered) == (None, None, None)


def test_a_resource_is_offered_while_a_node_has_an_allocatable_device_of_it():
    known = state.State()
    known.nodes.replace([node("a", r="1"), node("b", r="2", s="0")])
    assert set(known.build_facts("x").offered) == {"x.y/r"}
    known.nodes.upsert(node("b", s="1"))
    assert set(known.build_facts("x").offered) == {"x.y/r", "x.y/s"}
    known.nodes.remove(node("a"))
    assert set(known.build_facts("x").offered) == {"x.y/s"}


def test_unhealthy_devices_count_among_the_devices_of_a_node():
    def of(name: str, capacity: int, healthy: int) -> node_views.Node:
        status = {"capacity": {"x.y/r": capacity, "cpu": 8}, "allocatable": {"x.y/r": healthy, "cpu": 7}}
        return msgspec.convert({"metadata": {"name": name}, "status": status}, node_views.Node)

    known = state.State()
    assert known.build_facts("x").node_devices is None
    known.nodes.replace([of("a", 8, 8), of("b", 8, 7), of("c", 4, 0)])
    facts = known.build_facts("x")
    assert sorted(devices["x.y/r"] for devices in facts.node_devices) == [4, 8]
    assert all(devices.keys() == {"x.y/r"} for devices in facts.node_devices)
    known.nodes.upsert(state.excerpt_node(of("a", 8, 3)))
    assert known.build_facts("x") == facts


def test_the_deletion_of_a_waiting_pod_needs_only_its_metadata():
    claim = {"name": "railwright", "resourceClaimTemplateName": "railwright-f-4x4-0123456789"}
    metadata = {"namespace": "prod", "name": "p"}
    waiting = msgspec.convert({"metadata": metadata, "spec": {"resourceClaims": [claim]}}, views.Pod)
    known = state.State().claiming_pods
    known.upsert(waiting)
    assert [*known.by_key[("prod", "p")].values()] == [waiting]
    known.remove(msgspec.convert({"metadata": metadata}, views.Pod))
    assert not known.by_key


def test_a_snapshot_can_have_every_watched_kind():
    watched = {watch.kind.snapshot_kind for watch in webhook._list_watches(state.State())}
    assert watched <= snapshots.KINDS.keys()


@pytest.mark.parametrize(("variable", "image"), [("", names.IMAGE), ("r/a:1", "r/a:1")])
def test_the_init_container_has_the_image_from_the_environment_variable(monkeypatch, variable, image):
    monkeypatch.setenv("RAILWRIGHT_IMAGE", variable)
    assert state.State().build_facts("x").image == image
