"""Checks of schedulers and of other webhooks for pods whose devices come as claims or by slices."""

import contextlib
import re
from collections.abc import Iterator

import yaml

from railwright.cli.checking import check_rows, scheduling, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.fabric import names

_INJECTOR = "network-resources-injector"
_DRA_PREDICATE = "predicate.DynamicResourceAllocationEnable"  # of Volcano's plugin predicates, read before 1.15


def _check_schedulers(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    if document is None or not any(fabric.claims for fabric in document.fabrics.values()):
        return skip("no rails come as claims")
    problems = [*_find_volcano_problems(snapshot), *_find_kube_scheduler_problems(snapshot)]
    return fail("; ".join(problems)) if problems else ok()


def _find_volcano_problems(snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    if snapshot.get_one("volcano") is None:
        return
    try:
        plugins = scheduling.list_volcano_plugins(snapshot)
    except yaml.YAMLError:  # the row of Volcano's configuration reports it
        return
    arguments = {plugin.get("name"): snapshots.get_map(plugin, "arguments") for plugin in plugins}
    if _needs_argument(snapshot) and arguments.get("predicates", {}).get(_DRA_PREDICATE) is not True:
        yield (
            f"Volcano's plugin predicates has no argument {_DRA_PREDICATE}: true, without which Volcano before "
            "1.15 allocates no claims"
        )
    managed = arguments.get("extender", {}).get("extender.managedResources")
    if isinstance(managed, list) and names.RAILS not in managed:
        yield (
            f"extender.managedResources lacks {names.RAILS}: Volcano does not call the extender for pods "
            "whose devices all come as claims"
        )


def _needs_argument(snapshot: snapshots.ClusterSnapshot) -> bool:
    """True unless Volcano is 1.15 or newer, which always allocates claims (pkg/scheduler/plugins/predicates)."""
    images = snapshots.list_images(snapshot.get_one("volcano-deployment"))
    versions = (re.match(r"(\d+)\.(\d+)", snapshots.get_image_version(image)) for image in images)
    return not any(match and (int(match[1]), int(match[2])) >= (1, 15) for match in versions)


def _find_kube_scheduler_problems(snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    for configmap, text in scheduling.list_kube_configurations(snapshot):
        with contextlib.suppress(yaml.YAMLError):  # the row of kube-scheduler's configuration reports it
            for extender in scheduling.list_own_extenders(text):
                managed = snapshots.get_list(extender, "managedResources")
                if managed and names.RAILS not in [snapshots.get_path(item, "name") for item in managed]:
                    yield (
                        f"ConfigMap {configmap}: managedResources lacks {names.RAILS}: kube-scheduler does not call "
                        "the extender for pods whose devices all come as claims"
                    )


def _check_extended_resources(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Check that Volcano does not get pods with extended resources that only slices offer (KEP-5004)."""
    document = snapshot.policy
    resources = {rail.resource for fabric in (document.fabrics.values() if document else ()) for rail in fabric.rails}
    mapped = {item.spec.extended_resource_name: item.metadata.name for item in snapshot.get_all("device-classes")}
    by_slices = sorted(
        resource
        for resource in resources & mapped.keys()
        if resource and not any(snapshots.count_capacity(node, resource) for node in snapshot.get_all("nodes"))
    )
    if not by_slices:
        return skip("no rail's resource comes by slices")
    if snapshot.get_one("volcano") is None:
        return ok(snapshots.join_limited(by_slices, 4))
    return warn(
        f"DeviceClass {mapped[by_slices[0]]} maps {snapshots.join_limited(by_slices, 4)}, which no node reports: "
        "Volcano schedules no pod that requests it, because its plugins overcommit and proportion count what nodes "
        "report"
    )


def _check_injector(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    by_multus = [
        name
        for name, fabric in (document.fabrics if document else {}).items()
        if fabric.claims and any(rail.network for rail in fabric.rails)
    ]
    if not by_multus:
        return skip("no rails come as claims with networks")
    injectors = [name for item in snapshot.get_all("mutating") if _INJECTOR in (name := snapshots.get_name(item))]
    if injectors:
        return warn(
            f"{injectors[0]} adds the extended resource of each network to pods of fabric "
            f"{snapshots.join_limited(by_multus)}, beside their claims: no node has it, and they stay Pending"
        )
    return ok()


CHECKS: check_rows.Checks = {
    "claim-schedulers": _check_schedulers,
    "claim-injector": _check_injector,
    "extended-resources": _check_extended_resources,
}
