"""Nodes whose rails and GPUs are in ResourceSlices are placed on like those of device plugins."""

import devices
import msgspec
import pytest
from placing import GPU, RESOURCES, build_cluster, create_assumed_pods, node, pod, policy

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement import engine, scheduling_request


def bare(name):
    """Return a node that reports no devices, as where all come by slices."""
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"}}},
        node_views.Node,
    )


@pytest.fixture
def cluster():
    cluster = build_cluster([bare("n1"), bare("n2"), node("plugin", rails_each=1)])
    cluster.change_devices(lambda known: known.class_sink.replace(devices.read_classes(*devices.CLASSES)))
    slices = [tree for name in ("n1", "n2") for tree in devices.build_slices(name)]
    cluster.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(*slices)))
    return cluster


def free(cluster, name):
    amounts = cluster.get_free(name)
    return [amounts.get(resource, 0) // 1000 for resource in (GPU, *RESOURCES)]


def claims_only(name, uid="u", on=""):
    """Return a pod whose rails and GPU come by a generated claim."""
    tree = {
        "metadata": {"name": name, "namespace": "train", "uid": uid, "labels": {"railwright.io/fabric": "roce"}},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "rails", "resourceClaimTemplateName": "t"}],
        },
        "status": {"phase": "Running" if on else "Pending"},
    }
    return msgspec.convert(tree, views.Pod)


def claim(uid, on, *, extended=False):
    requests = {"gpu": "gpu.nvidia.com", "nic": "rail0"}
    allocated = [("gpu.nvidia.com", on, "gpu-0"), ("dra.net", on, "pci-0000-10-1b-0")] if on else []
    tree = devices.build_claim(f"claim-{uid}", requests, pod_uid=uid, allocated=allocated, extended=extended)
    return devices.read_claim(tree)


def choose(cluster, of, candidates=("n1", "n2", "plugin")):
    request = scheduling_request.build_request(
        of,
        policy(required=True),
        {},
        candidates,
        requests=cluster.compute_requests(of, resources.compute_requests(of.spec)),
    )
    return engine.PlacementEngine(cluster, create_assumed_pods()).filter(request)


def test_devices_of_slices_are_free_beside_those_of_plugins(cluster):
    assert free(cluster, "n1") == [8, 1, 1, 1, 1]
    assert free(cluster, "plugin") == [8, 1, 1, 1, 1]


def test_a_pod_that_requests_mapped_resources_uses_them_before_and_after_its_claim_is_seen(cluster):
    one = pod("one", gpus=1, rails=1, on="n1")
    cluster.upsert_pod(one)
    assert free(cluster, "n1") == [7, 0, 0, 0, 0]
    results = [("gpu.nvidia.com", "n1", "gpu-0")]
    results += [("dra.net", "n1", f"pci-0000-{root}-1b-0") for root in devices.ROOTS]
    requests = {"gpu": "gpu.nvidia.com"} | {f"r{rail}": f"rail{rail}" for rail in range(4)}
    tree = devices.build_claim("one", requests, pod_uid="uid-one", allocated=results, extended=True)
    cluster.upsert_claim(devices.read_claim(tree))
    assert free(cluster, "n1") == [7, 0, 0, 0, 0]
    cluster.remove_pod("uid-one")
    assert free(cluster, "n1") == [7, 0, 0, 0, 0]  # the claim still holds the devices
    cluster.remove_claim(devices.read_claim(tree))
    assert free(cluster, "n1") == [8, 1, 1, 1, 1]


def test_a_pod_with_claims_alone_uses_what_its_claim_holds(cluster):
    cluster.upsert_pod(claims_only("p", on="n1"))
    cluster.upsert_claim(claim("u", "n1"))
    assert free(cluster, "n1") == [7, 0, 1, 1, 1]
    assert cluster.pods["u"].requests[GPU] == 1000
    cluster.replace_claims([])
    assert free(cluster, "n1") == [8, 1, 1, 1, 1]
    assert GPU not in cluster.pods["u"].requests


def test_nodes_with_the_rails_in_slices_are_accepted_and_a_held_rail_is_not_free(cluster):
    other = claims_only("other", uid="o", on="n1")
    cluster.upsert_pod(other)
    cluster.upsert_claim(claim("o", "n1"))
    waiting = claims_only("p")
    cluster.upsert_pod(waiting)
    cluster.upsert_claim(claim("u", ""))
    answer = choose(cluster, waiting)
    assert list(answer.feasible) == ["n2", "plugin"]


def test_the_claim_of_a_pod_whose_binding_failed_does_not_block_it(cluster):
    waiting = claims_only("p")
    cluster.upsert_pod(waiting)
    cluster.upsert_claim(claim("u", "n1"))
    assert "n1" in choose(cluster, waiting).feasible
