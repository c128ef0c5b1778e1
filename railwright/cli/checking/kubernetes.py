"""Checks of the prerequisites: API server, permissions, Multus, accelerators, device pools, Volcano."""

import importlib.resources
import re
from collections.abc import Mapping, Sequence

import msgspec

from railwright.cli.checking import check_rows, offered_devices, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.fabric import text

OLDEST = (1, 30)  # matchConditions and ValidatingAdmissionPolicy are stable since 1.30 (Kubernetes' feature gates)
INSTALL_PERMISSIONS: tuple[tuple[str, str, str], ...] = (  # verb, API group, resource of each kind in manifests/base
    ("create", "", "namespaces"),
    ("create", "", "serviceaccounts"),
    ("create", "", "configmaps"),
    ("create", "", "services"),
    ("create", "", "secrets"),
    ("create", "", "resourcequotas"),
    ("create", "apps", "deployments"),
    ("create", "coordination.k8s.io", "leases"),
    ("create", "networking.k8s.io", "networkpolicies"),
    ("create", "policy", "poddisruptionbudgets"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "rbac.authorization.k8s.io", "roles"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
)


def format_permission(verb: str, group: str, resource: str) -> str:
    """Return a permission as arguments of `kubectl auth can-i`."""
    return f"{verb} {resource}.{group}" if group else f"{verb} {resource}"


def _check_reachable(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if "version" in snapshot.unread:
        return fail(snapshot.unread["version"], unread=True)
    return ok(snapshot.server)


def _check_version(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    git_version = snapshots.get_path(snapshot.get_one("version"), "gitVersion") or ""
    match = re.match(r"v?(\d+)\.(\d+)", str(git_version))
    if match is None:
        return skip(f"the API server reports no version: {git_version!r}", unread=True)
    if (int(match[1]), int(match[2])) < OLDEST:
        return fail(f"{git_version} is older than {OLDEST[0]}.{OLDEST[1]}")
    return ok(str(git_version))


def read_tested_versions() -> Mapping[str, Sequence[str]]:
    """Return the versions of each part of a cluster with which this release was tested."""
    text = importlib.resources.files("railwright.cli.checking").joinpath("tested_versions.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[str]])


def _check_tested_versions(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Compare minor versions with the tested ones. Another version is not a failure, but it is not known to work."""
    if "volcano-deployment" in snapshot.unread:
        return skip(snapshot.unread["volcano-deployment"], unread=True)
    running = {"Kubernetes": str(snapshots.get_path(snapshot.get_one("version"), "gitVersion"))}
    scheduler = snapshot.get_one("volcano-deployment")
    if scheduler is not None:
        running["Volcano"] = next(filter(None, map(snapshots.get_image_version, snapshots.list_images(scheduler))), "")
    tested = read_tested_versions()
    untested = [
        f"{name} {version or 'of unknown version'} is not tested (tested: {', '.join(tested[name])})"
        for name, version in running.items()
        if _get_minor(version) not in map(_get_minor, tested[name])
    ]
    if untested:
        return skip("; ".join(untested))
    return ok(", ".join(f"{name} {version}" for name, version in running.items()))


def _get_minor(version: str) -> str:
    match = re.match(r"v?(\d+\.\d+)", version)
    return match[1] if match else ""


def _check_permissions(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if snapshot.forbidden:
        return warn(
            f"you may not {', '.join(snapshot.forbidden)}; checks that need it are skipped",
            "ask a cluster administrator for these permissions (the ClusterRole view has most of them); to verify: "
            f"kubectl auth can-i {snapshot.forbidden[0]}",
        )
    return ok()


def _check_install_permissions(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    required = [format_permission(*permission) for permission in INSTALL_PERMISSIONS]
    denied = [permission for permission in required if snapshot.may.get(permission) is False]
    if denied:
        return fail(f"you may not {snapshots.join_limited(denied)}")
    if not all(snapshot.may.get(permission) for permission in required):
        return skip("the API server did not answer which permissions you have", unread=True)
    return ok()


def _check_multus(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    rail_networks = (
        [rail.network for fabric in snapshot.policy.fabrics.values() for rail in fabric.rails]
        if snapshot.policy
        else []
    )
    if "networks" not in snapshot.unknown:
        return ok(text.format_count(len(snapshot.get_all("networks")), "network"))
    if any(rail_networks):
        return fail("the API server has no kind NetworkAttachmentDefinition, but rails of the policy have `network`")
    if snapshot.policy is None:
        return warn("the API server has no kind NetworkAttachmentDefinition; only rails without `network` work")
    return skip("not installed, and no rail of the policy has `network`")


def _check_accelerators(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    resources = snapshots.list_accelerators(snapshot)
    accelerated = offered_devices.list_accelerated(snapshot)
    if not accelerated:
        return warn(
            f"none of {text.format_count(len(snapshot.get_all('nodes')), 'node')} has any of {', '.join(resources)}"
        )
    return ok(
        f"{text.format_count(len(snapshot.get_all('nodes')), 'node', 'has', part=len(accelerated))} "
        f"{', '.join(resources)}"
    )


def _check_pools(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    accelerators = set(snapshots.list_accelerators(snapshot))
    node_counts: dict[str, int] = {}
    for node in offered_devices.list_nodes(snapshot):
        for name in node.status.allocatable:
            if "/" in name and name not in accelerators:
                node_counts[name] = node_counts.get(name, 0) + (snapshots.count_allocatable(node, name) > 0)
    if not node_counts:
        return warn(
            "nodes offer no extended resources besides accelerators; rails need a device pool, or devInfiniband"
        )
    return ok(snapshots.join_limited((f"{name} on {count}" for name, count in sorted(node_counts.items())), 8))


def _check_volcano(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if "queues" in snapshot.unknown:
        return skip("not installed; kube-scheduler places gangs pod by pod")
    return ok(text.format_count(len(snapshot.get_all("queues")), "queue"))


CHECKS: check_rows.Checks = {
    "api-reachable": _check_reachable,
    "api-version": _check_version,
    "versions": _check_tested_versions,
    "install-permissions": _check_install_permissions,
    "device-pools": _check_pools,
    "volcano": _check_volcano,
    "multus": _check_multus,
    "accelerators": _check_accelerators,
    "caller-permissions": _check_permissions,
}
