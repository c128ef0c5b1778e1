"""Checks of the policy: it is valid, namespaces name its fabrics, and the networks of its rails exist.

Rows about rails run once per fabric; the subject of the assessment is the fabric.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.cluster import installed_names, policies
from railwright.fabric import intent, names, text
from railwright.fabric.policy import model as documents

Fabric = documents.Fabric
_CONFIGMAP = f"ConfigMap {installed_names.POLICY}"
_EDIT = check_rows.EDIT_POLICY
_MOST = 20  # errors printed; a user with more fixes these first


def _check_exists(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if snapshot.fabric_policy is not None:
        if snapshot.get_one("policy") is None:
            return ok(snapshot.policy_name)
        return warn(
            f"{snapshot.policy_name} is in force: {_CONFIGMAP} has no effect",
            f"delete the one that you do not use: kubectl -n {snapshot.namespace} delete configmap"
            f" {installed_names.POLICY}",
        )
    if snapshot.get_one("policy") is None:
        missing = f"{_CONFIGMAP} does not exist in namespace {snapshot.namespace}"
        return fail(f"{missing}, nor does a {names.POLICY_KIND} of this name")
    if snapshot.policy_text is None:
        keys = snapshots.join_limited(snapshots.get_list(snapshot.get_one("policy"), "data")) or "nothing"
        return fail(
            f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}", f"store the policy under this key: {_EDIT}"
        )
    return ok(snapshot.policy_name)


def _check_valid(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    result = snapshot.policy_result
    if isinstance(result, policies.Rejected):
        return fail(
            "\n".join(map(str, result.errors[:_MOST])),
            f"{_EDIT}; to validate it first: railwright policy validate FILE",
        )
    if result is None:
        return skip("there is no policy")
    return ok(
        f"{text.format_count(len(result.document.fabrics), 'fabric')}: "
        f"{snapshots.join_limited(result.document.fabrics)}"
    )


def _check_default(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if snapshot.policy is None:
        return skip("there is no valid policy")
    if snapshot.policy.default_fabric is None:
        return warn(f"none: the label {names.FABRIC}=default is rejected; users must name a fabric")
    return ok(snapshot.policy.default_fabric)


def _check_namespaces(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    if document is None:
        return skip("there is no valid policy")
    problems, count = [], 0
    for namespace in snapshot.get_all("namespaces"):
        labels = snapshots.get_map(namespace, "metadata", "labels")
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        count += 1
        name = intent.resolve_default(label, document)
        if name not in document.fabrics:
            problems.append(f"{snapshots.get_name(namespace)} names {label!r}, which is not a fabric of the policy")
        elif not document.fabrics[name].namespaces.matches(labels):
            problems.append(
                f"{snapshots.get_name(namespace)} may not use fabric {name}: its labels do not match `namespaces`"
            )
    if problems:
        return fail(f"{snapshots.join_limited(problems, 3)}: its pods with accelerators are rejected")
    return ok(text.format_count(count, "opted-in namespace") if count else "no namespace opts in as a whole")


def _check_networks(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    networks = [(rail.name, rail.network) for rail in fabric.rails if rail.network]
    if not networks:
        return skip("no rail has a network")
    missing = [f"{rail}: {network}" for rail, network in networks if _find_network(snapshot, network) is None]
    if missing:
        return fail(
            f"there is no NetworkAttachmentDefinition for {snapshots.join_limited(missing, 4)}: pods are rejected"
        )
    return ok(text.format_count(len(networks), "network"))


def _check_configurations(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if not any(rail.network for rail in fabric.rails):
        return skip("no rail has a network")
    problems = []
    for rail in fabric.rails:
        network = rail.network and _find_network(snapshot, rail.network)
        problem = _find_configuration_problem(snapshots.get_path(network, "spec", "config")) if network else ""
        if problem:
            problems.append(f"{rail.network}: {problem}")
    return fail(snapshots.join_limited(problems, 4)) if problems else ok()


def _find_configuration_problem(text: Any) -> str:
    """Return what is wrong with spec.config, or "". Empty is valid: Multus then reads the CNI file on the node."""
    if not text:
        return ""
    try:
        tree = json.loads(text)
    except (ValueError, TypeError) as error:
        return f"spec.config is not JSON: {error}"
    if not isinstance(tree, dict):
        return "spec.config is not a JSON object"
    plugins = tree.get("plugins") if isinstance(tree.get("plugins"), list) else [tree]
    if not plugins or not all(isinstance(plugin, dict) and plugin.get("type") for plugin in plugins):
        return "spec.config names no plugin (`type`)"
    return ""


def _check_pools(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.claims is not None:
        return skip("the rails come as claims")
    problems, unbound = [], []
    for rail in fabric.rails:
        network = rail.network and _find_network(snapshot, rail.network)
        annotated = snapshots.get_map(network, "metadata", "annotations").get(names.NAD_RESOURCE_NAME)
        if annotated and rail.resource and annotated != rail.resource:
            problems.append(f"{rail.name}: the policy has {rail.resource}, {rail.network} has {annotated}")
        elif not annotated and not rail.resource:
            unbound.append(rail.name)
    if problems:
        return fail(snapshots.join_limited(problems, 4))
    if unbound and fabric.transport is not documents.Transport.PVRDMA and not fabric.mounts.dev_infiniband:
        return warn(f"{snapshots.join_limited(unbound)} have no device pool, and /dev/infiniband is not mounted")
    return ok()


def get_resource(snapshot: snapshots.ClusterSnapshot, rail: documents.Rail) -> str | None:
    """Return a rail's device pool, from the policy or else from its network's annotation."""
    if rail.resource or not rail.network:
        return rail.resource
    network = _find_network(snapshot, rail.network)
    return snapshots.get_map(network, "metadata", "annotations").get(names.NAD_RESOURCE_NAME)


def for_each_fabric(
    assess: Callable[[snapshots.ClusterSnapshot, Fabric], check_rows.Assessment], *, needs_pools: bool = True
) -> check_rows.Assess:
    """Return a check that runs `assess` for each fabric with rails.

    With `needs_pools` it is skipped if the device pool of a rail is not known, because its network cannot be read.
    """

    def assess_fabrics(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
        document = snapshot.policy
        for name, fabric in (document.fabrics if document else {}).items():
            if fabric.transport is not documents.Transport.TCP and fabric.rails:
                is_hidden = needs_pools and _has_unread_pools(snapshot, fabric)
                named = intent.fill_resources(name, fabric, {}) if fabric.claims else fabric
                assessment = skip(snapshot.unread["networks"], unread=True) if is_hidden else assess(snapshot, named)
                yield msgspec.structs.replace(assessment, subject=name)

    return assess_fabrics


def _has_unread_pools(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> bool:
    return "networks" in snapshot.unread and any(rail.network and not rail.resource for rail in fabric.rails)


def _find_network(snapshot: snapshots.ClusterSnapshot, qualified: str | None) -> Any | None:
    return next((network for network in snapshot.get_all("networks") if snapshots.get_name(network) == qualified), None)


CHECKS: check_rows.Checks = {
    "policy-exists": _check_exists,
    "policy-valid": _check_valid,
    "default-fabric": _check_default,
    "namespace-labels": _check_namespaces,
    "rail-networks": for_each_fabric(_check_networks, needs_pools=False),
    "rail-configurations": for_each_fabric(_check_configurations, needs_pools=False),
    "rail-pools": for_each_fabric(_check_pools, needs_pools=False),
}
