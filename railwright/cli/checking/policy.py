"""Checks of the policy: it is valid, namespaces name its fabrics, and the networks of its rails exist.

Rows about rails run once per fabric; the subject of the assessment is the fabric.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from railwright.cli.checking import check_rows
from railwright.cli.checking.check_rows import Assess, Assessment, Checks, assess_problems, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path
from railwright.cluster import installed_names, policies
from railwright.fabric import intent, names, text
from railwright.fabric.policy import model

_CONFIGMAP = f"ConfigMap {installed_names.POLICY}"
_MOST = 20  # errors printed; a user with more fixes these first
_NO_NETWORK = "no rail has a network"


def _check_exists(snapshot: Snapshot) -> Assessment:
    configmap = snapshot.get_one("policy")
    if snapshot.fabric_policy is not None and configmap is not None:
        return warn(
            f"{snapshot.policy_name} is in force: {_CONFIGMAP} has no effect",
            f"delete the one that you do not use: kubectl -n {snapshot.namespace} delete configmap"
            f" {installed_names.POLICY}",
        )
    if snapshot.fabric_policy is None and configmap is None:
        missing = f"{_CONFIGMAP} does not exist in namespace {snapshot.namespace}"
        return fail(f"{missing}, nor does a {names.POLICY_KIND} of this name")
    if snapshot.fabric_policy is None and snapshot.policy_text is None:
        keys = text.join_first(get_list(configmap, "data"), 5) or "nothing"
        detail = f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}"
        return fail(detail, f"store the policy under this key: {check_rows.EDIT_POLICY}")
    return ok(snapshot.policy_name)


def _check_valid(snapshot: Snapshot) -> Assessment:
    result = snapshot.policy_result
    if isinstance(result, policies.Rejected):
        return fail(
            "\n".join(map(str, result.errors[:_MOST])),
            f"{check_rows.EDIT_POLICY}; to validate it first: railwright policy validate FILE",
        )
    fabrics = snapshot.fabrics
    return ok(f"{text.format_count(len(fabrics), 'fabric')}: {text.join_first(fabrics, 5)}")


def require_policy(
    assess: Callable[[Snapshot, model.FabricPolicy], Assessment | Iterable[Assessment]],
) -> Assess:
    """Return a check of the policy, skipped without a valid one."""
    return lambda snapshot: assess(snapshot, snapshot.policy) if snapshot.policy else skip("there is no valid policy")


def _check_default(_snapshot: Snapshot, policy: model.FabricPolicy) -> Assessment:
    if policy.default_fabric is None:
        return warn(f"none: the label {names.FABRIC}=default is rejected; users must name a fabric")
    return ok(policy.default_fabric)


def _check_namespaces(snapshot: Snapshot, policy: model.FabricPolicy) -> Assessment:
    problems, count = [], 0
    for namespace, labels in snapshot.namespace_labels.items():
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        count += 1
        name = intent.resolve_default(label, policy)
        if name not in policy.fabrics:
            problems.append(f"{namespace} names {label!r}, which is not a fabric of the policy")
        elif not policy.fabrics[name].namespaces.matches(labels):
            problems.append(f"{namespace} may not use fabric {name}: its labels do not match `namespaces`")
    if problems:
        return fail(f"{text.join_first(problems, 3)}: its pods with accelerators are rejected")
    return ok(text.format_count(count, "opted-in namespace") if count else "no namespace opts in as a whole")


def _check_networks(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    networks = [(rail.name, rail.network) for rail in fabric.rails if rail.network]
    if not networks:
        return skip(_NO_NETWORK)
    missing = [f"{rail}: {network}" for rail, network in networks if _find_network(snapshot, network) is None]
    if missing:
        return fail(f"there is no NetworkAttachmentDefinition for {text.join_first(missing, 4)}: pods are rejected")
    return ok(text.format_count(len(networks), "network"))


def _check_configurations(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    networks = [rail.network for rail in fabric.rails if rail.network]
    if not networks:
        return skip(_NO_NETWORK)
    configurations = {name: get_path(_find_network(snapshot, name), "spec", "config") for name in networks}
    problems = {name: _find_configuration_problem(config) for name, config in configurations.items()}
    return assess_problems((f"{name}: {problem}" for name, problem in problems.items() if problem), most=4)


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


def _check_pools(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    if fabric.claims is not None:
        return skip("the rails come as claims")
    problems, unbound = [], []
    for rail in fabric.rails:
        annotated = _get_annotated_resource(snapshot, rail)
        if annotated and rail.resource and annotated != rail.resource:
            problems.append(f"{rail.name}: the policy has {rail.resource}, {rail.network} has {annotated}")
        elif not annotated and not rail.resource:
            unbound.append(rail.name)
    if unbound and not problems and not fabric.mounts.dev_infiniband and fabric.transport is not model.Transport.PVRDMA:
        return warn(f"{text.join_first(unbound, 5)} have no device pool, and /dev/infiniband is not mounted")
    return assess_problems(problems, most=4)


def get_resource(snapshot: Snapshot, rail: model.Rail) -> str | None:
    """Return a rail's device pool, from the policy or else from its network's annotation."""
    return rail.resource or _get_annotated_resource(snapshot, rail)


def _get_annotated_resource(snapshot: Snapshot, rail: model.Rail) -> str | None:
    network = _find_network(snapshot, rail.network) if rail.network else None
    return get_map(network, "metadata", "annotations").get(names.NAD_RESOURCE_NAME)


def for_each_fabric(assess: Callable[[Snapshot, model.Fabric], Assessment]) -> Assess:
    """Return a check that runs `assess` for each fabric with rails.

    It is skipped if the device pool of a rail is not known, because its network cannot be read.
    """

    def assess_fabrics(snapshot: Snapshot) -> Iterator[Assessment]:
        for name, fabric in snapshot.fabrics.items():
            if fabric.transport is model.Transport.TCP or not fabric.rails:
                continue
            if "networks" in snapshot.unread and any(rail.network and not rail.resource for rail in fabric.rails):
                yield skip(snapshot.unread["networks"], subject=name, unread=True)
            else:
                named = intent.fill_resources(name, fabric, {}) if fabric.claims else fabric
                yield msgspec.structs.replace(assess(snapshot, named), subject=name)

    return assess_fabrics


def _find_network(snapshot: Snapshot, qualified: str) -> Any | None:
    return next((network for network in snapshot.get_all("networks") if get_name(network) == qualified), None)


CHECKS: Checks = {
    "policy-exists": _check_exists,
    "policy-valid": _check_valid,
    "default-fabric": require_policy(_check_default),
    "namespace-labels": require_policy(_check_namespaces),
    "rail-networks": for_each_fabric(_check_networks),
    "rail-configurations": for_each_fabric(_check_configurations),
    "rail-pools": for_each_fabric(_check_pools),
}
