"""Compares what `check` expects with the manifests: names of Secrets, and a dry-run pod of each fabric."""

import admitting
import installations
import pytest
from admitting import EXAMPLES

from railwright.cli.checking import snapshots
from railwright.cli.clouds import profiles
from railwright.fabric import names


def test_check_reads_the_secrets_that_the_manifests_name():
    mounted = {
        manifest["metadata"]["name"]: volume["secret"]["secretName"]
        for manifest in installations.manifests()
        if manifest["kind"] == "Deployment"
        for volume in manifest["spec"]["template"]["spec"].get("volumes", ())
        if "secret" in volume
    }
    assert mounted.items() >= snapshots.SECRETS.items()


@pytest.mark.parametrize(
    ("example", "fabric", "allowed"),
    [("pvrdma-mpi", "pvrdma", None), ("pvrdma-mpi", "tcp", False), ("360-roce", "roce-derived", False)],
)
def test_only_the_dry_run_pod_of_a_privileged_fabric_may_become_privileged(example, fabric, allowed):
    trees = installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = (EXAMPLES / example / "policy.yaml").read_text()
    snapshot = installations.build_snapshot(trees)
    manifest = snapshots.build_dry_run_pod(snapshot, fabric, snapshots.choose_dry_run_namespace(snapshot, fabric))
    (container,) = manifest["spec"]["containers"]
    assert container.get("securityContext", {}).get("allowPrivilegeEscalation") is allowed


def test_the_dry_run_pod_is_created_in_a_namespace_that_may_use_the_fabric():
    trees = installations.healthy()
    data = trees["policy"][0]["data"]
    limited = "transport: infiniband\n    namespaces: {rdma: 'yes'}"
    data[names.POLICY_KEY] = data[names.POLICY_KEY].replace("transport: infiniband", limited)
    deleted = {"name": "ending", "labels": {"rdma": "yes"}, "deletionTimestamp": "2026-11-30T00:00:00Z"}
    trees["namespaces"] += [{"metadata": deleted}, {"metadata": {"name": "allowed", "labels": {"rdma": "yes"}}}]
    assert snapshots.choose_dry_run_namespace(installations.build_snapshot(trees), "ib") == "allowed"
    unreadable = installations.build_snapshot(trees, probed="given", unread={"namespaces": "403"})
    assert snapshots.choose_dry_run_namespace(unreadable, "ib") == "given"
    for given in ("absent", "ending", "kube-system", "default"):
        probing = installations.build_snapshot(trees, probed=given)
        with pytest.raises(snapshots.SkipError, match=f"^namespace {given} does not exist, is excluded, or its labels"):
            snapshots.choose_dry_run_namespace(probing, "ib")
    assert (
        snapshots.choose_dry_run_namespace(installations.build_snapshot(trees, probed="default"), "roce") == "default"
    )
    trees["namespaces"].pop()
    with pytest.raises(snapshots.SkipError, match="the labels of no namespace match"):
        snapshots.choose_dry_run_namespace(installations.build_snapshot(trees), "ib")


@pytest.mark.parametrize("name", ["aks-h100", "eks-efa", "gke-a3-ultra-dranet"])
def test_the_webhook_admits_the_dry_run_pod_of_each_fabric_of_a_profile(name):
    profile, trees = profiles.find_profile(name), installations.healthy()
    trees["policy"][0]["data"][names.POLICY_KEY] = profile.text
    snapshot, known = installations.build_snapshot(trees), admitting.build_facts(networks=None)
    assert snapshot.fabrics
    for fabric in snapshot.fabrics:
        pod = snapshots.build_dry_run_pod(snapshot, fabric, snapshots.choose_dry_run_namespace(snapshot, fabric))
        assert names.INJECTION in admitting.admit_pod(pod, profile.policy, known)["metadata"]["annotations"]
