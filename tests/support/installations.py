"""Builds a healthy cluster for `railwright check`: the objects of the manifests, nodes and certificates.

Plain JSON trees by source, in which a test makes one defect; `build_snapshot` turns them into the input of rows.
"""

import base64
import datetime as dt
import functools
import json
import pathlib
import pickle
from collections.abc import Mapping
from typing import Any

import devices
import msgspec
import yaml

from certs import pki
from railwright.cli.checking import snapshots
from railwright.cluster.installed_names import EXTENDER, WEBHOOK
from railwright.fabric import names, views

ROOT = pathlib.Path(__file__).parents[2]
BASE = ROOT / "manifests" / "base"
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
DAY = dt.timedelta(days=1)
LEAF = "fabric.topograph.run/tier-0"
POLICY = """
apiVersion: railwright.io/v1alpha1
defaultFabric: roce
fabrics:
  roce:
    transport: roce
    rails:
    - {name: rail0, network: prod/rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, network: prod/rail1, device: mlx5_1}
    placement: {preset: topograph}
  ib:
    transport: infiniband
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0}
    - {name: rail1, resource: nvidia.com/mlx5_1}
    placement: {preset: volcano}
nodeShapes:
- name: h100
  match: {shape: h100}
  devices: {rail0: mlx5_0, rail1: mlx5_1}
  numa:
  - {gpus: [0, 1, 2, 3], rails: [rail0]}
  - {gpus: [4, 5, 6, 7], rails: [rail1]}
"""
CLAIMS = """\
  claimed:
    transport: efa
    gpusPerNode: 8
    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}
    rails:
    - {name: rail0, claim: rdmap16s27}
    - {name: rail1, claim: rdmap32s27}
"""
Tree = dict[str, Any]
Trees = dict[str, list[Tree]]
_SOURCES = {
    "Namespace": "namespaces",
    "Deployment": "deployments",
    "MutatingWebhookConfiguration": "mutating",
    "ValidatingWebhookConfiguration": "validating",
    "ValidatingAdmissionPolicy": "admission-policies",
    "ValidatingAdmissionPolicyBinding": "admission-bindings",
}


def healthy() -> Trees:
    """Return a copy that the test may change. A pickle is several times as fast as copy.deepcopy."""
    return pickle.loads(_pickle_healthy())  # noqa: S301 - our own


def add_claims(trees: Trees) -> None:
    """Add a fabric with rails in claims, its slices and classes, and schedulers configured for claims."""
    (policy,) = trees["policy"]
    text = policy["data"][names.POLICY_KEY]
    policy["data"][names.POLICY_KEY] = text.replace("nodeShapes:", f"{CLAIMS}nodeShapes:")
    trees["device-slices"] = [tree for node in range(3) for tree in devices.build_slices(f"gpu-{node}")]
    is_ours = 'device.driver == "dra.net"'
    trees["device-classes"] = [devices.GPU_CLASS, devices.build_class("dranet", is_ours)]
    (volcano,) = trees["volcano"]
    ((key, text),) = volcano["data"].items()
    tree = yaml.safe_load(text)
    for plugin in (plugin for tier in tree["tiers"] for plugin in tier["plugins"]):
        if plugin["name"] == "extender":
            managed = plugin["arguments"]["extender.managedResources"]
            plugin["arguments"]["extender.managedResources"] = list(dict.fromkeys([*managed, names.RAILS]))
    volcano["data"][key] = yaml.safe_dump(tree)


def manifests() -> list[Tree]:
    """Return every object of manifests/base."""
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [document for name in listed for document in yaml.safe_load_all((BASE / name).read_text()) if document]


def build_snapshot(trees: Trees, **more: Any) -> snapshots.Snapshot:
    """Return the snapshot of these trees. Missing dry runs are answered by their policy."""
    objects = {
        name: [msgspec.convert(item, snapshots.SOURCES[name].view) for item in listed] for name, listed in trees.items()
    }
    whole = snapshots.Snapshot(NOW, "https://cluster:6443", objects=objects, **more)
    if not whole.dry_runs:
        digest = getattr(whole.policy_result, "digest", "")
        record = json.dumps({"policy": digest})
        whole.dry_runs = dict.fromkeys(whole.fabrics, admit(record))
    return whole


def build_workload(kind: str, name: str, template: Tree, **metadata: Any) -> Tree:
    """Return a Job, CronJob or Deployment of namespace train with this metadata of its pod template."""
    spec = {"template": {"metadata": template, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
    spec = {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec
    return {"metadata": {"name": name, "namespace": "train", **metadata}, "spec": spec}


def pod(name: str, labels: Mapping[str, str], annotations: Mapping[str, str], gpus: int = 0) -> Tree:
    """Return a pod of namespace train."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    metadata = {"name": name, "namespace": "train", "labels": dict(labels), "annotations": dict(annotations)}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


def install_by_helm(trees: Trees) -> None:
    """Mark the Deployments as those of the Helm release fabric-team."""
    for deployment in trees["deployments"]:
        deployment["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
        deployment["metadata"].setdefault("annotations", {})["meta.helm.sh/release-name"] = "fabric-team"


def pair(
    *hosts: str, days: float = 365, left: float = 300, authority: pki.KeyPair | None = None
) -> tuple[pki.KeyPair, pki.KeyPair]:
    """Return a certificate of `days` days of which `left` remain, and its CA."""
    begin = NOW - dt.timedelta(days=days - left)
    above = authority or pki.issue_ca("a", now=NOW - 400 * DAY, lifetime=3650 * DAY)
    span = dt.timedelta(days=days)
    return pki.issue_certificate(
        above, common_name="s", hosts=hosts, usages=["server"], now=begin, lifetime=span
    ), above


def secret(leaf: pki.KeyPair) -> Tree:
    """Return a Secret of type kubernetes.io/tls."""
    parts = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    return {"metadata": {"name": "s"}, "data": {key: base64.b64encode(text).decode() for key, text in parts.items()}}


def trust(trees: Trees, authority: pki.KeyPair) -> None:
    """Fill every caBundle."""
    bundle = base64.b64encode(authority.certificate_pem).decode()
    for source in ("mutating", "validating"):
        for hook in trees[source][0]["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle


def admit(record: str) -> views.Pod:
    """Return a pod with this injection record."""
    return msgspec.convert({"metadata": {"annotations": {names.INJECTION: record}}, "spec": {}}, views.Pod)


@functools.cache
def _pickle_healthy() -> bytes:
    trees: Trees = {name: [] for name in snapshots.SOURCES}
    for manifest in manifests():
        if manifest["kind"] in _SOURCES:
            trees[_SOURCES[manifest["kind"]]].append(manifest)
    # an anchor of the YAML is one object in Python; a cluster holds them apart
    trees = json.loads(json.dumps(trees))
    trees["version"] = [{"gitVersion": "v1.35.0"}]
    trees["namespaces"] += [
        _build_named("default"),
        _build_named("kube-system"),
        _build_named("train", labels={names.FABRIC: "default"}),
    ]
    for namespace in trees["namespaces"]:
        namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
    for deployment in trees["deployments"]:
        _run(trees, deployment)
    _certify(trees)
    trees["policy"] = [{**_build_named(names.POLICY_CONFIGMAP), "data": {names.POLICY_KEY: POLICY}}]
    for rail in range(2):
        network = _build_named(
            f"rail{rail}", namespace="prod", annotations={names.NAD_RESOURCE_NAME: f"nvidia.com/mlx5_{rail}"}
        )
        config = json.dumps({"cniVersion": "0.3.1", "type": "macvlan", "master": f"eth{rail}"})
        trees["networks"].append({**network, "spec": {"config": config}})
    trees["nodes"] = [_node(f"gpu-{index}") for index in range(3)]
    members = [{"type": "Node", "selector": {"exactMatch": {"name": f"gpu-{index}"}}} for index in range(3)]
    trees["hypernodes"] = [{**_build_named("leaf-0"), "spec": {"tier": 1, "members": members}}]
    trees["pods"] = [pod("rank-0", {names.FABRIC: "roce"}, {names.INJECTION: "{}"}, gpus=8)]
    trees["volcano"] = [_volcano()]
    return pickle.dumps(trees)


def _build_named(name: str, **metadata: Any) -> Tree:
    return {"metadata": {"name": name, **metadata}}


def _run(trees: Trees, deployment: Tree) -> None:
    replicas = deployment["spec"]["replicas"]
    deployment["status"] = {"replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for index in range(replicas):
        name = f"{deployment['metadata']['name']}-{index}"
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        trees["own-pods"].append(
            {
                **_build_named(name, labels=labels),
                "spec": {**deployment["spec"]["template"]["spec"], "nodeName": f"gpu-{index}"},
                "status": status,
            }
        )


def _certify(trees: Trees) -> None:
    webhook, authority = pair(f"{WEBHOOK}.{names.NAMESPACE}.svc")
    extender, _ = pair(f"{EXTENDER}.{names.NAMESPACE}.svc", authority=authority)
    trees["railwright-webhook-secret"] = [secret(webhook)]
    trees["railwright-webhook-secret"][0]["metadata"]["annotations"] = {"cert-manager.io/certificate-name": "webhook"}
    trees["railwright-extender-secret"] = [secret(extender)]
    trust(trees, authority)


def _node(name: str) -> Tree:
    resources = {"cpu": "64", "nvidia.com/gpu": "8", "nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    node = _build_named(name, labels={"shape": "h100", LEAF: "leaf-0"})
    return {**node, "status": {"capacity": dict(resources), "allocatable": dict(resources)}}


def _volcano() -> Tree:
    text = (ROOT / "manifests" / "examples" / "schedulers" / "volcano-scheduler.yaml").read_text()
    return {**_build_named("volcano-scheduler-configmap"), "data": {"volcano-scheduler.conf": text}}
