"""Attacks by a tenant through the fields of a pod (threats T1, T6, T7)."""

import json
import re

import admitting
import conf_reading
import msgspec
from admitting import fabric, pod
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import names
from railwright.fabric.injection import drafts, plan
from railwright.fabric.workloads import jobset, kubeflow, ray, volcano

PLAIN = fabric("    mounts: {sharedMemory: 1Gi}\n")
# What the namespace of the tenant may not use
PRIVILEGED = """
  g:
    transport: infiniband
    namespaces: {team: other}
    rails: [{name: rail0, network: other/secret, resource: x.y/secret, device: mlx5_7}]
    security: {privileged: true, capabilities: [SYS_ADMIN]}
    mounts: {devInfiniband: true}
"""
BESIDE_PRIVILEGED = fabric("    mounts: {sharedMemory: 1Gi}\n" + PRIVILEGED)
KEYS = (names.RAILS, names.CONTAINERS, names.SKIP, names.DELIVERY, names.NETWORKS, names.INJECTION, names.NCCL_CONF)
WORDS = ("all", "2", "c", "env", "file", "none", "prod/lan2", "default/hidden@net9", '[{"name":"x","namespace":"y"}]')
LABELS = (
    kubeflow.ROLE,
    ray.NODE_TYPE,
    volcano.TASK,
    jobset.REPLICATED_JOB,
    names.POD_SECURITY_ENFORCE,
)
texts = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=20), st.sampled_from(['"}],"x', "a\nNCCL_X=1", "\0", "é'\"$("])
)
tenants = st.tuples(
    st.dictionaries(st.sampled_from(KEYS), texts, max_size=4),
    st.dictionaries(st.sampled_from(LABELS), st.sampled_from(["launcher", "worker", "head", "privileged"]), max_size=3),
)
WAYS = re.compile(
    r"/metadata/annotations(/[^/]+)?"
    r"|/spec/(volumes|initContainers)(/[-0])?"
    r"|/spec/containers/\d+/(resources|env|volumeMounts|securityContext)(/.*)?"
)
ANNOTATIONS = {names.NETWORKS, names.INJECTION, names.NCCL_CONF}
VOLUMES = {"emptyDir", "downwardAPI"}  # kinds of volume a policy without host paths can lead to


def operations(tenant, by, **more: str) -> list[dict]:
    annotations, labels = tenant
    tree = pod(labels=labels | more, annotations=annotations)
    outcome = admitting.plan_pod(tree, by, admitting.build_facts(namespace_labels={"team": "ai"}))
    if not isinstance(outcome, plan.Injection):
        return []
    made = drafts.list_operations(outcome.changes)
    return json.loads(msgspec.json.encode(made))


@given(tenants, st.sampled_from(["f", "f", "g", "default"]))
def test_t01_a_pod_gets_nothing_that_the_policy_does_not_grant(tenant, chosen):
    for operation in operations(tenant, BESIDE_PRIVILEGED, **{names.FABRIC: chosen}):
        assert WAYS.fullmatch(operation["path"]), operation
        assert "securityContext" not in operation["path"], "the tenant's fabric has no capability and no privilege"
        assert "secret" not in json.dumps(operation)
        if operation["path"].startswith("/spec/volumes"):
            value = operation.get("value") or []
            for volume in value if isinstance(value, list) else [value]:
                assert volume["name"].startswith(names.VOLUME_PREFIX)
                assert volume.keys() - {"name"} <= VOLUMES


@given(tenants)
def test_t06_t07_text_of_a_tenant_adds_no_line_or_key_to_written_annotations(tenant):
    for operation in operations(tenant, PLAIN):
        if not operation["path"].startswith("/metadata/annotations/"):
            continue
        key = operation["path"].removeprefix("/metadata/annotations/").replace("~1", "/")
        assert key in ANNOTATIONS
        if key == names.NCCL_CONF:
            assert all(name.startswith(("NCCL_", "UCX_", "A")) for name in conf_reading.read(operation["value"]))
            assert "NCCL_X" not in operation["value"], "no line of the tenant's"
        if key == names.INJECTION:
            assert json.loads(operation["value"])["fabric"] == "f"


def test_t06_a_network_of_another_namespace_adds_only_its_device():
    """Multus decides whether it may be attached (namespaceIsolation); railwright reads only its resource name."""
    foreign = pod(annotations={names.NETWORKS: "other/theirs"})
    networks = {("other", "theirs"): "x.y/vf", ("prod", "lan2"): None, ("prod", "lan3"): None}
    admitted = admitting.admit_pod(foreign, PLAIN, admitting.build_facts(networks=networks))
    assert admitted["metadata"]["annotations"][names.NETWORKS] == "other/theirs,prod/lan2,prod/lan3"
    assert admitted["spec"]["containers"][0]["resources"]["limits"]["x.y/vf"] == "1"
