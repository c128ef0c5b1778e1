"""Placement on rails that come as claims: what is free, by rail and NUMA node, and why a node is refused."""

import devices
import pytest
from claimed import GPU, RAIL, build_claim, build_node, build_pod, build_template, name_devices, policy
from placing import build_cluster, create_assumed_pods, explain, node, score_once

from railwright.fabric import resources
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import Code

NAMES = (GPU, *RAIL)


def add_slices(cluster, *nodes, **kinds):
    for name in nodes:
        for offered in devices.read_slices(*devices.build_slices(name, **kinds)):
            cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))


def add_template(cluster, name, rails):
    cluster.change_templates(lambda known: known.template_sink.upsert(build_template(name, rails)))


@pytest.fixture
def cluster():
    cluster = build_cluster([build_node("n1", "a"), build_node("n2", "a"), node("plugin", "a", rails_each=1)])
    name_devices(cluster)
    add_slices(cluster, "n1", "n2")
    add_template(cluster, "t", (0, 1))
    return cluster


def count_free(cluster, name="n1"):
    return [cluster.get_free(name).get(resource, 0) // 1000 for resource in NAMES]


def list_requests(cluster, uid="uid-p"):
    return [cluster.pods[uid].requests.get(name, 0) // 1000 for name in NAMES]


def request(cluster, pod, **placement):
    return scheduling_request.build_request(
        pod,
        policy(**placement),
        {},
        ["n1", "n2", "plugin"],
        requests=cluster.compute_requests(pod, resources.compute_requests(pod.spec)),
    )


def choose(cluster, pod, **placement):
    return engine.PlacementEngine(cluster, create_assumed_pods()).filter(request(cluster, pod, **placement))


def hold(cluster, name, rails, on="n1", **kinds):
    tree = build_claim(f"claim-{name}", rails, gpus=len(rails), pod_uid=f"uid-{name}", on=on, **kinds)
    cluster.upsert_claim(devices.read_claim(tree))
    return devices.read_claim(tree)


def test_a_pod_that_came_before_its_template_requests_its_rails_when_it_appears():
    cluster = build_cluster([build_node("n1")], [build_pod("p", templates=("late",))])
    name_devices(cluster)
    assert list_requests(cluster) == [0] * 5
    add_template(cluster, "late", (2,))
    assert list_requests(cluster) == [1, 0, 0, 1, 0]


def test_a_pod_that_names_a_claim_requests_its_rails_before_the_claim_is_reserved(cluster):
    cluster.upsert_pod(build_pod("p", templates=(), claims=("own",)))
    assert list_requests(cluster) == [0] * 5
    claim = devices.read_claim(build_claim("own", (3,), gpus=1))
    cluster.upsert_claim(claim)
    assert list_requests(cluster) == [1, 0, 0, 0, 1]
    cluster.remove_claim(claim)
    assert list_requests(cluster) == [0] * 5


def test_a_pod_requests_its_rails_also_if_the_policy_and_the_slices_come_later():
    cluster = build_cluster([build_node("n1")], [build_pod("p")])
    add_template(cluster, "t", (0, 1))
    add_slices(cluster, "n1")
    name_devices(cluster)
    assert list_requests(cluster) == [2, 1, 1, 0, 0]
    assert count_free(cluster) == [8, 1, 1, 1, 1]


def test_a_node_without_a_free_rail_of_the_claim_is_refused_whatever_the_policy_prefers(cluster):
    hold(cluster, "other", (1,))
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    answer = choose(cluster, pod, rails="preferred")
    assert list(answer.feasible) == ["n2"]
    [refusal] = [rejection.reason for name, rejection in answer.rejections.items() if not rejection.is_unresolvable]
    assert refusal.code == Code.RAIL_BUSY
    assert rendering.render(refusal) == "rail1 is busy: 0 of 1 NIC free, 1 needed"
    rows = {row.node: row for row in answer.rows}
    assert [holder.key for holder in rows["n1"].holders] == ["claim train/claim-other"]


def test_the_holder_of_a_rail_is_its_pod_also_before_it_is_bound(cluster):
    cluster.upsert_pod(build_pod("other"))
    hold(cluster, "other", (1,))
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    rows = {row.node: row for row in choose(cluster, pod).rows}
    assert [holder.key for holder in rows["n1"].holders] == ["train/other"]


def test_a_node_whose_devices_come_by_a_device_plugin_has_no_rail_of_a_claim(cluster):
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    answer = choose(cluster, pod)
    assert list(answer.feasible) == ["n1", "n2"]
    assert [rejection.is_unresolvable for rejection in answer.rejections.values()] == [True]


def test_claims_that_name_no_rail_are_left_to_the_allocator(cluster):
    hold(cluster, "other", (0, 1, 2))
    pod = build_pod("p", templates=(), claims=("own",))
    cluster.upsert_pod(pod)
    any_nic = {"nic": (devices.NIC_CLASS, 'device.attributes["dra.net"].rdma == true')}
    cluster.upsert_claim(devices.read_claim(build_claim("own", (), gpus=1, requests=any_nic)))
    assert "n1" in choose(cluster, pod, rails="required").feasible


@pytest.mark.parametrize("missing", [{"taints": {"pci-0000-20-1b-0": "NoSchedule"}}, {"without": ["pci-0000-20-1b-0"]}])
def test_a_tainted_or_missing_device_takes_its_rail_out_and_puts_it_back(cluster, missing):
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    add_slices(cluster, "n1", generation=2, **missing)
    answer = choose(cluster, pod)
    assert list(answer.feasible) == ["n2"]
    assert {rejection.reason.code for rejection in answer.rejections.values()} == {Code.RAIL_UNAVAILABLE}
    add_slices(cluster, "n1", generation=3)
    assert list(choose(cluster, pod).feasible) == ["n1", "n2"]


def test_a_pod_goes_where_its_gpus_and_rails_are_on_one_numa_node(cluster):
    tree = build_claim("near", (), gpus=4, pod_uid="uid-near", on="n1")  # all GPUs beside rail0 and rail1
    cluster.upsert_claim(devices.read_claim(tree))
    tree = build_claim("far", (), gpus=4, pod_uid="uid-far", on="n2", first_gpu=4)
    cluster.upsert_claim(devices.read_claim(tree))
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    decision = score_once(request(cluster, pod), cluster)
    aligned = {name: explain(decision)[name].terms["numa"].value for name in ("n1", "n2")}
    assert aligned["n2"] > aligned["n1"]
    answer = choose(cluster, pod, numa="required")
    assert list(answer.feasible) == ["n2"]


def test_a_pods_own_devices_count_as_free_on_its_numa_node(cluster):
    pod = build_pod("p")
    cluster.upsert_pod(pod)
    hold(cluster, "p", (0, 1), entry="railwright")
    assert "n1" in choose(cluster, pod, numa="required").feasible


def test_a_peer_whose_claims_are_allocated_counts_as_placed_before_its_binding(cluster):
    for name in ("a", "b"):
        cluster.upsert_pod(build_pod(name, group="g"))
    hold(cluster, "a", (0, 1), entry="railwright")
    decision = score_once(request(cluster, build_pod("b", group="g")), cluster)
    assert sum(decision.gang.peers_by_leaf.values()) == 1
    assert decision.gang.remaining == 1


def test_a_gang_is_kept_in_one_domain_that_only_slices_name(cluster):
    key = "attribute/azure.dra.net/placementGroupId"
    cluster.change_devices(lambda known: known.name_domains((key.partition("/")[2],)))
    version = cluster.topology_version
    for name, group in {"n1": "pg-1", "n2": "pg-2"}.items():
        for tree in devices.build_slices(name):
            for device in tree["spec"]["devices"]:
                device["attributes"]["azure.dra.net/placementGroupId"] = {"string": group}
            (offered,) = devices.read_slices(tree)
            cluster.change_devices(lambda known, offered=offered: known.slice_sink.upsert(offered))
    places = {name: cluster.locate(info, (key, "leaf")) for name, info in cluster.nodes.items()}
    assert [places[name][0] for name in ("n1", "n2", "plugin")] == ["pg-1", "pg-2", ""]
    assert cluster.topology_version > version
