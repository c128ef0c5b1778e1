"""Free devices by NUMA node (interface.md 7.4): kubelet's report if it includes the last binding, else bound pods."""

import msgspec
import pytest
from placing import GPU, RAILS, RESOURCES, TWO_SIDED, build_cluster, build_report, node, pod

from extender import state as states
from railwright.cluster import snapshots
from railwright.fabric import node_views, views
from railwright.fabric.placement.nodes import facts_builder
from railwright.fabric.policy import model

RAIL = [model.Rail(name=name, resource=resource) for name, resource in zip(RAILS, RESOURCES, strict=True)]


def report(*gpus, written="", rails=(), name="n1"):
    return build_report(*gpus, written=written, rails=[rails] * len(gpus), name=name)


def bound(name, gpus, at="", *, rails=0, on="n1"):
    new_pod = pod(name, gpus=gpus, rails=rails, on=on)
    conditions = [views.PodCondition(type="PodScheduled", status="True", last_transition_time=at)] if at else []
    return msgspec.structs.replace(new_pod, status=views.PodStatus(phase="Running", conditions=conditions))


def list_free(cluster, shape=TWO_SIDED, others=(), resource=GPU):
    zones = facts_builder.ZoneReader(cluster, RAIL, [GPU]).compute_free(cluster.nodes["n1"], shape, others)
    return [dict(zone.free).get(resource, -1000) // 1000 for zone in zones]


def build_reported_cluster(*pods, topology_report=None):
    cluster = build_cluster([node("n1")], pods)
    if topology_report:
        cluster.upsert_topology(topology_report)
    return cluster


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-21T10:00:01Z", [4, 2]),  # newer: as reported
        ("2026-11-21T10:00:00Z", [2, 4]),  # the same second: the exporter may have looked just before
        ("2026-11-21T09:59:59Z", [2, 4]),
    ],
)
def test_a_report_counts_if_its_zones_were_written_after_the_second_of_the_last_binding(written, expected):
    held = bound("a", 2, "2026-11-21T10:00:00Z")
    assert list_free(build_reported_cluster(held, topology_report=report(4, 2, written=written))) == expected


def test_the_last_of_several_bindings_counts_and_only_of_pods_that_hold_such_devices():
    old, new = bound("a", 1, "2026-11-21T09:00:00Z"), bound("b", 1, "2026-11-21T11:00:00Z")
    cpu_only = bound("c", 0, "2026-11-21T11:00:00Z")
    topology_report = report(3, 3, written="2026-11-21T10:00:00Z")
    assert list_free(build_reported_cluster(old, cpu_only, topology_report=topology_report)) == [3, 3]
    assert list_free(build_reported_cluster(old, new, topology_report=topology_report)) == [2, 4]


def test_a_report_with_less_in_use_than_is_bound_is_outdated():
    held = bound("a", 2, "2026-11-21T10:00:00Z")
    assert list_free(build_reported_cluster(held, topology_report=report(4, 3, written="2026-11-21T12:00:00Z"))) == [
        2,
        4,
    ]


def test_without_times_the_used_devices_of_the_report_decide():
    assert list_free(build_reported_cluster(bound("a", 2), topology_report=report(4, 2))) == [4, 2]
    assert list_free(build_reported_cluster(bound("a", 2), topology_report=report(4, 4))) == [2, 4]
    assert list_free(build_reported_cluster(bound("a", 2, "2026-11-21T10:00:00Z"), topology_report=report(4, 2))) == [
        4,
        2,
    ]


def test_null_times_of_the_api_server_are_missing_times():
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": None}]}
    assert msgspec.json.decode(msgspec.json.encode(status), type=views.PodStatus).bound_at == ""
    fields = {"metadata": {"managedFields": [{"time": None, "fieldsV1": {"f:zones": {}}}]}, "zones": None}
    assert msgspec.json.decode(msgspec.json.encode(fields), type=node_views.NodeResourceTopology).written_at == ""


def test_the_first_lists_may_come_in_any_order():
    held = bound("a", 2, "2026-11-21T10:00:00Z")
    topology_report = report(4, 2, written="2026-11-21T10:00:01Z")
    pods_first, report_first = build_reported_cluster(held), build_reported_cluster(topology_report=topology_report)
    pods_first.replace_topologies([topology_report])
    report_first.replace_pods([held])
    assert list_free(pods_first) == list_free(report_first) == [4, 2]


def test_with_an_old_report_and_no_shape_bound_pods_are_subtracted_from_its_allocatable():
    held = bound("a", 2, "2026-11-21T10:00:00Z")
    cluster = build_reported_cluster(held, topology_report=report(4, 4, written="2026-11-21T09:00:00Z"))
    assert list_free(cluster, shape=None) == [2, 4]
    assert (
        facts_builder.ZoneReader(build_reported_cluster(held), RAIL, [GPU]).compute_free(cluster.nodes["n1"], None)
        == ()
    )


def test_announced_allocations_are_charged_in_any_case():
    announced = [{GPU: 1000}]
    held = bound("a", 2, "2026-11-21T10:00:00Z")
    new, old = report(4, 2, written="2026-11-21T10:00:01Z"), report(4, 4, written="2026-11-21T09:00:00Z")
    assert list_free(build_reported_cluster(held, topology_report=new), others=announced) == [3, 2]
    assert list_free(build_reported_cluster(held, topology_report=old), others=announced) == [1, 4]
    assert list_free(build_reported_cluster(held), others=iter(announced)) == [1, 4]


def test_rails_that_the_report_leaves_out_are_known_by_the_shape():
    cluster = build_reported_cluster(topology_report=report(1, 4, written="2026-11-21T10:00:01Z"))
    assert list_free(cluster) == [1, 4]
    assert list_free(cluster, resource=RESOURCES[0]) == [1, -1]
    assert list_free(cluster, resource=RESOURCES[2]) == [-1, 1]


def test_a_removed_report_is_forgotten_and_every_change_is_recorded():
    cluster = build_reported_cluster(topology_report=report(1, 1))
    before, position = cluster.version, cluster.change_log.position
    cluster.replace_topologies([report(2, 2), report(3, 3, name="n2")])
    assert set(cluster.change_log.read_since(position) or ()) == {"n1", "n2"}
    assert list_free(cluster) == [2, 2]
    cluster.replace_topologies([report(3, 3, name="n2")])
    assert list_free(cluster) == [4, 4]
    cluster.remove_topology("n2")
    cluster.remove_topology("n2")
    assert cluster.get_topology_report("n2") is None
    assert cluster.version > before


SNAPSHOT = """\
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: n1
  managedFields: [{time: 2026-11-21T10:00:01Z, fieldsType: FieldsV1, fieldsV1: {"f:zones": {}}}]
topologyPolicies: []
attributes: [{name: topologyManagerPolicy, value: restricted}]
zones:
- name: node-0
  type: Node
  costs: [{name: node-0, value: 10}]
  resources:
  - {name: nvidia.com/gpu, capacity: "4", allocatable: 4, available: "1"}
- {name: node-1, type: Node, resources: null}
---
apiVersion: nodeinfo.volcano.sh/v1alpha1
kind: Numatopology
metadata: {name: n1}
spec:
  policies: {CPUManagerPolicy: static, TopologyManagerPolicy: best-effort}
  numares: {cpu: {allocatable: 0-63, capacity: 64}}
  cpuDetail: {"0": {core: 0, numa: 0, socket: 0}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {nvidia.com/gpu: 4}}
"""


def test_a_snapshot_has_reports_and_numatopologies_are_ignored():
    topology_report = snapshots.read(SNAPSHOT)
    state = states.State(assume_seconds=30)
    sinks = {watch.kind.snapshot_kind: watch.sink for watch in states.list_watches(state)}
    sinks["Node"].replace(topology_report["Node"])
    sink = sinks["NodeResourceTopology"]
    sink.replace(topology_report["NodeResourceTopology"])
    [reported] = topology_report["NodeResourceTopology"]
    assert reported.written_at == "2026-11-21T10:00:01Z"
    assert reported.attributes == {"topologyManagerPolicy": "restricted"}
    assert list_free(state.cluster) == [1, -1]
    sink.remove(reported)
    assert list_free(state.cluster) == [2, 2]
    sink.upsert(reported)
    assert list_free(state.cluster) == [1, -1]
