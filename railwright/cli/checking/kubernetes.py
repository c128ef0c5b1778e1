"""Checks of the prerequisites: API server, Multus, accelerators, device pools, Volcano."""

import importlib.resources
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.cli.checking import offered_devices, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.fabric import text

OLDEST = (1, 30)  # matchConditions and ValidatingAdmissionPolicy are stable since 1.30 (Kubernetes' feature gates)
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


def _check_reachable(snapshot: Snapshot) -> Assessment:
    if "version" in snapshot.unread:
        return fail(snapshot.unread["version"], unread=True)
    return ok(snapshot.server)


def _check_version(snapshot: Snapshot) -> Assessment:
    git_version = str(get_path(snapshot.get_one("version"), "gitVersion") or "")
    if (minor := _parse_minor(git_version)) is None:
        return skip(f"the API server reports no version: {git_version!r}", unread=True)
    return fail(f"{git_version} is older than {OLDEST[0]}.{OLDEST[1]}") if minor < OLDEST else ok(git_version)


def read_tested_versions() -> Mapping[str, Sequence[str]]:
    """Return the versions of each part of a cluster with which this release was tested."""
    text = importlib.resources.files("railwright.cli.checking").joinpath("tested_versions.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[str]])


def _check_tested_versions(snapshot: Snapshot) -> Assessment:
    """Compare minor versions with the tested ones. Another version is not a failure, but it is not known to work."""
    if "volcano-deployment" in snapshot.unread:
        return skip(snapshot.unread["volcano-deployment"], unread=True)
    running = {"Kubernetes": str(get_path(snapshot.get_one("version"), "gitVersion"))}
    scheduler = snapshot.get_one("volcano-deployment")
    if scheduler is not None:
        running["Volcano"] = next(filter(None, map(snapshots.get_image_version, snapshots.list_images(scheduler))), "")
    tested = read_tested_versions()
    untested = [
        f"{name} {version or 'of unknown version'} is not tested (tested: {', '.join(tested[name])})"
        for name, version in running.items()
        if _parse_minor(version) not in map(_parse_minor, tested[name])
    ]
    return (
        skip("; ".join(untested))
        if untested
        else ok(", ".join(f"{name} {version}" for name, version in running.items()))
    )


def _parse_minor(version: str) -> tuple[int, int] | None:
    match = _MINOR.match(version)
    return (int(match[1]), int(match[2])) if match else None


def _check_multus(snapshot: Snapshot) -> Assessment:
    if "networks" not in snapshot.unknown:
        return ok(text.format_count(len(snapshot.get_all("networks")), "network"))
    if any(rail.network for fabric in snapshot.fabrics.values() for rail in fabric.rails):
        return fail("the API server has no kind NetworkAttachmentDefinition, but rails of the policy have `network`")
    if snapshot.policy is None:
        return warn("the API server has no kind NetworkAttachmentDefinition; only rails without `network` work")
    return skip("not installed, and no rail of the policy has `network`")


def _check_accelerators(snapshot: Snapshot) -> Assessment:
    resources = ", ".join(snapshots.list_accelerators(snapshot))
    total, accelerated = len(snapshot.get_all("nodes")), len(offered_devices.list_accelerated(snapshot))
    if not accelerated:
        return warn(f"none of {text.format_count(total, 'node')} has any of {resources}")
    return ok(f"{text.format_count(total, 'node', 'has', part=accelerated)} {resources}")


def _check_pools(snapshot: Snapshot) -> Assessment:
    accelerators = set(snapshots.list_accelerators(snapshot))
    node_counts: Counter[str] = Counter()
    for node in offered_devices.list_nodes(snapshot):
        offered = node.status.allocatable
        for name in offered.keys() - accelerators:
            if "/" in name:
                node_counts[name] += snapshots.count(offered, name) > 0
    if not node_counts:
        return warn(
            "nodes offer no extended resources besides accelerators; rails need a device pool, or devInfiniband"
        )
    return ok(text.join_first((f"{name} on {count}" for name, count in sorted(node_counts.items())), 8))


def _check_volcano(snapshot: Snapshot) -> Assessment:
    if "queues" in snapshot.unknown:
        return skip("not installed; kube-scheduler places gangs pod by pod")
    return ok(text.format_count(len(snapshot.get_all("queues")), "queue"))


CHECKS: Checks = {
    "api-reachable": _check_reachable,
    "api-version": _check_version,
    "versions": _check_tested_versions,
    "device-pools": _check_pools,
    "volcano": _check_volcano,
    "multus": _check_multus,
    "accelerators": _check_accelerators,
}
