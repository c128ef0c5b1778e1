"""Compares what `check` expects with the manifests: names, entries, permissions, a dry-run pod of each fabric."""

import admitting
import installations
import pytest
import yaml
from admitting import EXAMPLES

from documentation import permissions as manifests
from railwright.cli.checking import admission, permissions, pods, snapshots
from railwright.cli.clouds import profiles
from railwright.fabric import names

HOOKS = {
    hook["name"]: hook
    for document in yaml.safe_load_all((installations.BASE / "admission.yaml").read_text())
    for hook in document["webhooks"]
}


def test_the_expected_entries_are_those_of_the_manifest():
    compared = {key for hook in admission.read_expected().values() for key in hook}
    assert admission.read_expected() == {
        name: {key: value for key, value in hook.items() if key in compared} for name, hook in HOOKS.items()
    }
    assert {"clientConfig", "rules", "objectSelector", "namespaceSelector", "matchConditions"} < compared


def test_names_of_secrets_and_configurations_are_those_of_the_manifests():
    mounted = {
        manifest["metadata"]["name"]: volume["secret"]["secretName"]
        for manifest in installations.manifests()
        if manifest["kind"] == "Deployment"
        for volume in manifest["spec"]["template"]["spec"].get("volumes", ())
        if "secret" in volume
    }
    assert mounted.items() >= snapshots.SECRETS.items()
    configurations = [
        manifest for manifest in installations.manifests() if manifest["kind"].endswith("WebhookConfiguration")
    ]
    assert {configuration["metadata"]["name"] for configuration in configurations} == {snapshots.CONFIGURATION}


@pytest.mark.parametrize(
    ("example", "fabric", "allowed"),
    [("pvrdma-mpi", "pvrdma", None), ("pvrdma-mpi", "tcp", False), ("360-roce", "roce-derived", False)],
)
def test_only_the_dry_run_pod_of_a_privileged_fabric_may_become_privileged(example, fabric, allowed):
    trees = installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = (EXAMPLES / example / "policy.yaml").read_text()
    snapshot = installations.build_snapshot(trees)
    manifest = pods.build_pod(snapshot, fabric, pods.choose_namespace(snapshot, fabric))
    (container,) = manifest["spec"]["containers"]
    assert container.get("securityContext", {}).get("allowPrivilegeEscalation") is allowed


@pytest.mark.parametrize(
    ("namespace", "cause"),
    [
        ("absent", "namespace absent does not exist"),
        ("ending", "namespace ending is being deleted"),
        ("kube-system", "railwright injects no pods in namespace kube-system"),
        ("other", "the labels of namespace other do not match `namespaces` of fabric ib"),
    ],
)
def test_a_namespace_that_cannot_have_the_dry_run_pod_is_reported_with_the_cause(namespace, cause):
    trees = installations.healthy()
    data = trees["policy"][0]["data"]
    limited = "transport: infiniband\n    namespaces: {rdma: 'yes'}"
    data[names.POLICY_KEY] = data[names.POLICY_KEY].replace("transport: infiniband", limited)
    deleted = {"name": "ending", "labels": {"rdma": "yes"}, "deletionTimestamp": "2026-11-30T00:00:00Z"}
    trees["namespaces"] += [
        {"metadata": metadata}
        for metadata in (deleted, {"name": "other"}, {"name": "allowed", "labels": {"rdma": "yes"}})
    ]
    snapshot = installations.build_snapshot(trees)
    assert pods.choose_namespace(snapshot, "ib", "allowed") == "allowed"
    with pytest.raises(snapshots.SkipError, match=f"^{cause}; give another namespace to --namespace-for-probe$"):
        pods.choose_namespace(snapshot, "ib", namespace)


@pytest.mark.parametrize("name", ["aks-h100", "eks-efa", "gke-a3-ultra-dranet"])
def test_the_webhook_admits_the_dry_run_pod_of_each_fabric_of_a_profile(name):
    profile, trees = profiles.find(name), installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = profile.text
    snapshot, known = installations.build_snapshot(trees), admitting.build_facts(networks=None)
    assert snapshot.fabrics
    for fabric in snapshot.fabrics:
        pod = pods.build_pod(snapshot, fabric, pods.choose_namespace(snapshot, fabric))
        assert names.INJECTION in admitting.admit_pod(pod, profile.policy, known)["metadata"]["annotations"]


def list_rights(server: str, *, has_extender: bool = True) -> set[str]:
    deployments = [{"metadata": {"name": "railwright-extender"}}] if has_extender else []
    snapshot = snapshots.Snapshot(None, objects={"deployments": deployments})
    return {str(item) for item in permissions.list_permissions(server, snapshot)}


def test_the_checked_permissions_are_those_of_the_roles_in_the_manifests():
    roles = yaml.safe_load_all((manifests.markdown.ROOT / "manifests/base/webhook-rbac.yaml").read_text())
    (role,) = [role for role in roles if role["kind"] == "Role"]
    expected = {
        f"{verb} {resource.partition('/')[0]}{rule['apiGroups'][0] and '.' + rule['apiGroups'][0]}"
        f"{''.join(f'/{name}' for name in rule.get('resourceNames', ()))}"
        f"{' --subresource=status' if resource.endswith('/status') else ''} -n railwright-system"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert expected < list_rights("railwright-webhook")
    assert {"list nodes -A", "watch hypernodes.topology.volcano.sh -A"} < list_rights("railwright-extender")


@pytest.mark.parametrize("more", ["claims: {deviceClass: dranet}", "nvlinkSegment: 1"])
def test_the_webhook_needs_rights_for_claims_only_under_a_policy_that_uses_claims(more):
    def list_with(key: str) -> set[str]:
        fabric = f"transport: efa\n    gpusPerNode: 8\n    {key}\n    rails: [{{name: a, device: mlx5_0}}]"
        text = f"apiVersion: railwright.io/v1alpha1\nfabrics:\n  f:\n    {fabric}\n    placement: {{domains: [c]}}\n"
        policy = {"metadata": {"name": names.POLICY_CONFIGMAP}, "data": {names.POLICY_KEY: text}}
        snapshot = snapshots.Snapshot(None, objects={"policy": [policy]})
        assert snapshot.policy is not None
        return {str(item) for item in permissions.list_permissions("railwright-webhook", snapshot)}

    templates = "resourceclaimtemplates.resource.k8s.io"
    rights = {f"{verb} {templates} -A" for verb in ("list", "watch", "create")}
    assert list_with(more) - list_with("railsPerPod: all") == {"watch pods -A", *rights}


def test_without_an_extender_the_rotator_needs_no_right_to_its_secret():
    kept = list_rights("railwright-certs") - list_rights("railwright-certs", has_extender=False)
    assert kept == {
        f"{verb} secrets/railwright-extender-tls -n {names.NAMESPACE}" for verb in ("get", "patch", "create")
    }
