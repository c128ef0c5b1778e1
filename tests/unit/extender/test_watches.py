"""Kinds that the extender watches: its role allows each, and a snapshot has every one with a gang's size."""

import asyncio
import logging
import pathlib
import textwrap
import tracemalloc
from unittest import mock

import msgspec
import pytest
import yaml

from extender import state as states
from railwright.cluster import installed_names, reflector, resources, snapshots, watch_wire
from railwright.fabric import hypernodes
from railwright.fabric.workloads import frameworks, membership

SNAPSHOT = textwrap.dedent("""
    {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: a, name: g}, spec: {minMember: 2}}
    ---
    {apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {namespace: b, name: g}, spec: {minMember: 3}}
    ---
    apiVersion: scheduling.x-k8s.io/v1alpha1
    kind: PodGroupList
    items: [{metadata: {namespace: c, name: g}, spec: {minMember: 4}}]
    ---
    apiVersion: v1
    kind: List
    items:
    - {apiVersion: batch/v1, kind: Job, metadata: {namespace: a, name: j}, spec: {parallelism: 6}}
    - {apiVersion: serving.example/v1, kind: Job, metadata: {namespace: b, name: j}, spec: {parallelism: 7}}
    - apiVersion: batch.volcano.sh/v1alpha1
      kind: Job
      metadata: {namespace: a, name: v, uid: u}
      spec: {tasks: [{replicas: 1}, {replicas: 7}]}
    - apiVersion: kubeflow.org/v2beta1
      kind: MPIJob
      metadata: {namespace: a, name: m}
      spec: {mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: {replicas: 8}}}
    - apiVersion: topology.volcano.sh/v1alpha1
      kind: HyperNode
      metadata: {name: l0}
      spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: n0}}}]}
    - {apiVersion: v1, kind: Node, metadata: {name: n0}}
""")


@pytest.fixture(scope="module")
def cluster():
    state = states.State()
    objects = snapshots.read(SNAPSHOT)
    for kind, sink in {watch.kind.snapshot_kind: watch.sink for watch in states.list_watches(state)}.items():
        sink.replace(objects[kind])
    return state.cluster


@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        ("a/g", 2),
        ("b/g", 3),
        ("c/g", 4),
        ("a/job/j", 6),
        ("b/job/j", 1),  # somebody else's Job
        ("a/v-u", 8),
        ("a/kubeflow-job/m/mpi-operator", 9),
    ],
)
def test_the_size_of_a_gang_is_read_from_the_object_of_its_own_api_group(cluster, gang, expected):
    assert cluster.get_gang_size(membership.GangKey(gang), observed=1) == expected


def test_hypernodes_of_a_snapshot_are_the_domains_of_nodes(cluster):
    assert cluster.locate_node(cluster.nodes["n0"], hypernodes.LEVELS[:1]) == ("l0",)


def test_snapshots_can_contain_every_watched_kind():
    assert {watch.kind.snapshot_kind for watch in states.list_watches(states.State())} <= snapshots.KINDS.keys()


ROLES = pathlib.Path(__file__).parents[3] / "manifests" / "base" / "extender-rbac.yaml"
BUILT_IN = frozenset({"nodes", "pods", "jobs.batch", "replicasets.apps", "statefulsets.apps"})


def kinds():
    return [watch.kind for watch in states.list_watches(states.State())]


def read_group_and_resource(path):
    """Return API group and resource of a path."""
    parts = path.strip("/").split("/")
    return ("" if parts[0] == "api" else parts[1]), parts[-1]


def test_the_role_permits_list_and_watch_of_every_watched_kind():
    [role] = [document for document in yaml.safe_load_all(ROLES.read_text()) if document["kind"] == "ClusterRole"]
    allowed = {
        (group, resource)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {read_group_and_resource(kind.path) for kind in kinds()} <= allowed


def test_the_role_for_the_dashboard_reads_the_policy_and_the_last_valid_one():
    documents = yaml.safe_load_all(ROLES.with_name("user-rbac.yaml").read_text())
    [role] = [document for document in documents if document["metadata"]["name"] == "railwright-cluster-view"]
    [rule] = [rule for rule in role["rules"] if rule["resources"] == ["configmaps"]]
    assert "get" in rule["verbs"]
    assert set(rule["resourceNames"]) == {installed_names.POLICY, installed_names.LAST_POLICY}


def test_a_kind_without_its_crd_does_not_keep_the_extender_from_being_ready():
    assert {kind.name for kind in kinds() if not kind.optional} == BUILT_IN


def test_the_first_list_of_workloads_is_not_in_memory_at_once():
    """A cluster may have ten thousand ReplicaSets, of which the extender needs a number each."""
    state = states.State()
    (spec,) = [watch for watch in states.list_watches(state) if watch.kind is resources.GANG_SIZES["replicasets.apps"]]
    env = [{"name": f"NAME_{number}", "value": str(number)} for number in range(100)]

    async def write_pages(*_):
        for page in range(20):
            rows = [{"metadata": {"name": f"r{page}-{row}"}, "spec": {"replicas": 2, "env": env}} for row in range(50)]
            yield watch_wire.List([msgspec.Raw(msgspec.json.encode(row)) for row in rows])

    source = reflector.Reflector(None, spec)
    with mock.patch.object(watch_wire, "read_pages", write_pages):
        tracemalloc.start()
        asyncio.run(source._list_objects())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert source.object_count == 1000
    assert state.cluster.get_gang_size(membership.GangKey("/ReplicaSet/r9-9/"), observed=1) == 2
    assert peak < 5_000_000


# --- objects with more values than placement reads --------------------------------------------------------------


LIMIT = resources.MAX_POD_VALUES


def test_a_pod_with_too_many_values_is_ignored_and_logged_once(caplog):
    known, skipped = states.State(), []
    (spec,) = [watch for watch in states.list_watches(known) if watch.kind is resources.PLACED_PODS]
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))

    def add(name: str, values: int) -> None:
        pod_spec = {"nodeName": "a", "containers": [{"name": "c"}], "tolerations": [{}] * values}
        tree = {"metadata": {"name": name, "namespace": "prod", "uid": name}, "spec": pod_spec}
        asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))

    with caplog.at_level(logging.WARNING, "railwright.cluster"):
        add("small", LIMIT - 50)
        for _ in range(2):
            add("large", LIMIT + 1)
    assert list(known.cluster.pods) == ["small"]
    assert skipped == [("pods", "skipped")] * 2
    (record,) = caplog.records
    assert (record.fields["kind"], record.fields["object"]) == ("pods", "prod/large")
    assert f"the limit is {LIMIT}: shorten its lists" in record.fields["error"]


def test_a_job_with_too_many_values_is_ignored():
    (spec,) = [watch for watch in states.list_watches(states.State()) if watch.kind.name == "jobs.batch.volcano.sh"]
    skipped = []
    source = reflector.Reflector(None, spec, lambda *counted: skipped.append(counted))
    tree = {"metadata": {"name": "j", "uid": "u"}, "spec": {"tasks": [{}] * (frameworks.MAX_VALUES + 1)}}
    asyncio.run(source._apply_event(msgspec.json.encode({"type": "ADDED", "object": tree})))
    assert (source.object_count, skipped) == (0, [(spec.kind.name, "skipped")])
