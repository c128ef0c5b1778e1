"""Checks of the policy and of the rails of its fabrics: networks, device pools, node shapes, domains, NUMA nodes.

Rows about rails run once per fabric; the subject of the assessment is the fabric.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Assess, Assessment, Checks, assess_problems, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path, list_accelerators
from railwright.cluster import expression_process, installed_names, policies
from railwright.fabric import hypernodes, intent, names, resources, text, topology
from railwright.fabric.placement.state import cluster_state, object_info, rail_reports
from railwright.fabric.policy import claimed_rails, model, presets

# Sources of `read_cluster`
CLUSTER_SOURCES = ("nodes", "device-classes", "device-slices", "networks", "policy", snapshots.FABRIC_POLICY)


def read_cluster(snapshot: Snapshot) -> cluster_state.ClusterState:
    """Return the nodes as placement sees them, with the devices of slices, and the reports about their rails."""
    cluster = cluster_state.ClusterState()
    devices = cluster.claimed.inventory
    devices.class_sink.replace(snapshot.get_all("device-classes"))
    devices.slice_sink.replace(snapshot.get_all("device-slices"))
    if snapshot.policy is not None:
        devices.replace_claim_resources(claimed_rails.list_claim_resources(snapshot.policy))
        cluster.apply_health_policy(rail_reports.HealthPolicy(snapshot.policy, read_networks(snapshot)))
    for node in devices.offered.ids_by_node:
        devices.count_devices(node)  # asks which devices match
    if questions := devices.names.evaluations.list_questions():
        devices.answer(expression_process.answer_all(questions))
        for node in devices.offered.ids_by_node:
            devices.count_devices(node)
    cluster.replace_nodes(snapshot.get_all("nodes"))
    return cluster


def read_networks(snapshot: Snapshot) -> intent.Networks:
    """Return each network with the resource that its annotation names."""
    networks = [get_map(item, "metadata") for item in snapshot.get_all("networks")]
    return {
        (str(network.get("namespace")), str(network.get("name"))): get_map(network, "annotations").get(
            names.NAD_RESOURCE_NAME
        )
        for network in networks
    }


def get_cluster(snapshot: Snapshot) -> cluster_state.ClusterState:
    """Return the cluster that was read for the snapshot."""
    cluster: cluster_state.ClusterState = snapshot.get_all(snapshots.CLUSTER)[0]
    return cluster


def list_accelerated(snapshot: Snapshot) -> list[object_info.NodeInfo]:
    """Return the nodes with at least one accelerator, healthy or not."""
    accelerators = list_accelerators(snapshot)
    return [node for node in get_cluster(snapshot).nodes.values() if has_any(node, accelerators)]


def has_any(node: object_info.NodeInfo, names: Iterable[str]) -> bool:
    """True if a node has at least one device of these resources, healthy or not."""
    return any(node.capacity.get(name) or node.allocatable.get(name) for name in names)


# --- the policy ---------------------------------------------------------------------------------------------


_CONFIGMAP = f"ConfigMap {installed_names.POLICY}"
_MOST = 20  # errors printed; a user with more fixes these first
_NO_NETWORK = "no rail has a network"
_WITHOUT_POOLS = frozenset({model.Transport.PVRDMA, model.Transport.PLUGIN})
_WITHOUT_NAMES = frozenset({model.Transport.EFA, model.Transport.ERDMA, model.Transport.PLUGIN})
_HCA = "NCCL_IB_HCA"


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
    problems, opted_in = [], 0
    for namespace, labels in snapshot.namespace_labels.items():
        label = labels.get(names.FABRIC)
        if label is None or label == names.FABRIC_NONE:
            continue
        opted_in += 1
        name = intent.resolve_default(label, policy)
        if name not in policy.fabrics:
            problems.append(f"{namespace} names {label!r}, which is not a fabric of the policy")
        elif not policy.fabrics[name].namespaces.matches(labels):
            problems.append(f"{namespace} may not use fabric {name}: its labels do not match `namespaces`")
    if problems:
        return fail(f"{text.join_first(problems, 3)}: its pods with accelerators are rejected")
    return ok(text.format_count(opted_in, "opted-in namespace") if opted_in else "no namespace opts in as a whole")


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
    has_devices = fabric.mounts.dev_infiniband or fabric.security.privileged
    if unbound and not problems and not has_devices and fabric.transport not in _WITHOUT_POOLS:
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


# --- rails on nodes ---------------------------------------------------------------------------------------

_NO_NODES = "no node has accelerators and rails of this fabric"


def _for_each_unclaimed(assess: Callable[[Snapshot, model.Fabric], Assessment]) -> Assess:
    """Return a check for each fabric with rails, skipped for those whose rails come as claims."""
    claimed = skip("the rails come as claims: see claim-devices")
    return for_each_fabric(lambda snapshot, fabric: claimed if fabric.claims else assess(snapshot, fabric))


def _check_offered(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    pools = _list_resources(snapshot, fabric)
    if not pools:
        return skip("no rail has a device pool")
    nodes = get_cluster(snapshot).nodes.values()
    counts = {name: sum(node.allocatable.get(name, 0) > 0 for node in nodes) for name in pools}
    if unavailable := [name for name in pools if not counts[name]]:
        return fail(f"no node offers {text.join_first(unavailable, 4)}: pods stay Pending")
    fewest, most = min(counts.values()), max(counts.values())
    number = fewest if fewest == most else f"{fewest} to {most}"
    return ok(f"on {number} of {text.format_count(len(nodes), 'node')}")


def _check_dead(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    dead = [
        f"{node.name}: {name} 0 of {capacity // resources.UNIT}"
        for node in get_cluster(snapshot).nodes.values()
        for name in _list_resources(snapshot, fabric)
        if (capacity := node.capacity.get(name)) and not node.allocatable.get(name)
    ]
    return assess_problems(dead, bad=warn, most=4)


def _check_reports(snapshot: Snapshot, _document: model.FabricPolicy) -> Assessment:
    cluster = get_cluster(snapshot)
    unknown = [
        f"{node.metadata.name}: {report.source} names {text.join_first(report.names, 2)}"
        for node in snapshot.get_all("nodes")
        if (named := rail_reports.read_conditions(node))
        for report in rail_reports.find_unknown(
            cluster.health_policy,
            rail_reports.Observation(cluster.nodes[node.metadata.name], named, cluster.claimed.inventory),
        )
    ]
    return assess_problems(unknown, bad=warn)


def _check_missing(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    pools = _list_resources(snapshot, fabric)
    others = [pool for other in snapshot.fabrics.values() for pool in _list_resources(snapshot, other)]
    accelerated = [node for node in list_accelerated(snapshot) if has_any(node, pools) or not has_any(node, others)]
    if not pools or not accelerated:
        return skip("no rail has a device pool" if not pools else "no node has accelerators")
    missing = {node.name: [name for name in pools if not node.capacity.get(name)] for node in accelerated}
    problems = [
        f"{node} lacks {text.join_first(lacking, 2)}"
        for node, lacking in missing.items()
        if 0 < len(lacking) < len(pools)
    ]
    if without_rails := [node for node, lacking in missing.items() if len(lacking) == len(pools)]:
        problems.append(f"{text.join_first(without_rails, 4)} lack all rails")
    if problems:
        affected = text.format_count(len(accelerated), "node", part=sum(map(bool, missing.values())))
        return warn(f"{affected} with accelerators: {text.join_first(problems, 4)}")
    return ok(text.format_count(len(accelerated), "node"))


def _check_devices(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    if fabric.transport in _WITHOUT_NAMES or not fabric.nccl.derive or _HCA in fabric.env:
        return skip(f"{_HCA} is not derived from the rails of this fabric")
    nodes = _list_nodes_with_rails(snapshot, fabric)
    if not nodes:
        return skip(_NO_NODES)
    unknown: dict[str, list[str]] = {}
    for node in nodes:
        shape = _find_shape(snapshot, node)
        for rail in fabric.rails:
            if not (shape.devices if shape else {}).get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.name)
    problems = [f"{rail} on {text.join_first(on, 2)}" for rail, on in unknown.items()]
    if problems:
        return warn(f"no RDMA device name for {text.join_first(problems, 3)}: NCCL_IB_HCA is not set there")
    return ok()


def _check_domains(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    keys = presets.list_domain_keys(fabric.placement)
    if not keys:
        return skip("the fabric has no topology domains: all nodes count as equally close")
    if fabric.placement.preset == "volcano" and not fabric.placement.domains:
        return skip("the fabric's topology domains are HyperNodes")
    nodes = _list_nodes_with_rails(snapshot, fabric)
    if not nodes:
        return skip(_NO_NODES)
    if attribute := topology.get_attribute(keys[0]):
        known = set().union(*_read_groups(snapshot, attribute).values())
        unlabelled = [node.name for node in nodes if node.name not in known]
    else:
        labels = topology.expand_rails(keys[0], tuple(rail.name for rail in fabric.rails))
        unlabelled = [node.name for node in nodes if not set(labels) <= node.labels.keys()]
    if not unlabelled:
        return ok(f"{text.format_count(len(nodes), 'node', 'has')} {keys[0]}")
    share = text.format_count(len(nodes), "node", "has", part=len(unlabelled))
    bad = fail if len(unlabelled) == len(nodes) else warn
    return bad(f"{share} no {'' if attribute else 'label '}{keys[0]}: {text.join_first(unlabelled, 3)}")


# Attributes of dranet whose values InfiniBand does not cross (Azure/AKS issues 2725 and 1947)
_PARTITIONS = ("azure.dra.net/placementGroupId", "azure.dra.net/interconnectGroupId")


def _check_partitions(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    labels = {node.name: node.labels for node in _list_nodes_with_rails(snapshot, fabric)}
    keys = presets.list_domain_keys(fabric.placement)
    problems, known = [], 0
    for attribute in _PARTITIONS:
        groups = _read_groups(snapshot, attribute)
        partitions = {
            group: sorted(members & labels.keys()) for group, members in groups.items() if members & labels.keys()
        }
        known += len(partitions)
        is_domain = topology.ATTRIBUTE + attribute in keys
        if len(partitions) > 1 and not is_domain and not any(_tells_apart(key, partitions, labels) for key in keys):
            members = [f"{group} ({text.join_first(nodes, 2)})" for group, nodes in sorted(partitions.items())]
            problems.append(f"nodes differ in {attribute}: {text.join_first(members, 3)}")
    if not known:
        return skip("no slice names the placement group of a node")
    return assess_problems(problems, text.format_count(known, "group"), bad=warn)


def _read_groups(snapshot: Snapshot, attribute: str) -> dict[str, set[str]]:
    """Return the nodes of each value of an attribute of the slices."""
    groups: dict[str, set[str]] = {}
    for device in get_cluster(snapshot).claimed.inventory.offered.devices.values():
        if value := device.get_value(attribute):
            groups.setdefault(str(value), set()).add(device.node)
    return groups


def _tells_apart(key: str, partitions: dict[str, list[str]], labels: dict[str, Mapping[str, str]]) -> bool:
    """True if nodes of two groups never have the same value of a label, and all have one."""
    values = [{labels[node].get(key, "") for node in nodes} for nodes in partitions.values()]
    return "" not in set().union(*values) and sum(map(len, values)) == len(set().union(*values))


def _check_hypernodes(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    if fabric.placement.preset != "volcano" or fabric.placement.domains:
        return skip("the fabric's topology domains are labels, not HyperNodes")
    if "hypernodes" in snapshot.unknown:
        return fail("the API server has no kind HyperNode (topology.volcano.sh)")
    if not snapshot.get_all("hypernodes"):
        return fail("there is no HyperNode")
    tree = hypernodes.Tree()
    tree.replace(snapshot.get_all("hypernodes"))
    problems = [*tree.find_problems({node.metadata.name: node.metadata.labels for node in snapshot.get_all("nodes")})]
    members = _list_nodes_with_rails(snapshot, fabric)
    if outside := [node.name for node in members if not tree.read_values(node.name, node.labels)]:
        share = text.format_count(len(outside), "node", "is")
        problems.append(f"{share} in no HyperNode: {text.join_first(outside, 3)}")
    return assess_problems(problems, text.format_count(len(snapshot.get_all("hypernodes")), "HyperNode"), bad=warn)


def _check_numa(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    if fabric.placement.numa != "required":
        return skip(f"placement.numa is {fabric.placement.numa}")
    nodes = _list_nodes_with_rails(snapshot, fabric)
    if not nodes:
        return skip(_NO_NODES)
    reported = {report.metadata.name for report in snapshot.get_all("topologies")}
    unreported = [node for node in nodes if node.name not in reported]
    unknown = [node.name for node in unreported if (shape := _find_shape(snapshot, node)) is None or not shape.numa]
    if unknown:
        return fail(
            f"{text.format_count(len(unknown), 'node', 'has')} no data on which rails share a NUMA node with which "
            f"accelerators: {text.join_first(unknown, 3)}"
        )
    return ok(f"{len(reported)} NodeResourceTopologies")


def _check_shapes(snapshot: Snapshot, document: model.FabricPolicy) -> Assessment:
    if not document.node_shapes:
        return skip("the policy has no nodeShapes")
    accelerated = list_accelerated(snapshot)
    if not accelerated:
        return skip("no node has accelerators")
    shapes = {node.name: _find_shape(snapshot, node) for node in accelerated}
    used = {shape.name for shape in shapes.values() if shape}
    count_text = text.format_count(len(accelerated), "node")
    if shapeless := [name for name, shape in shapes.items() if shape is None]:
        share = text.format_count(len(shapeless), "node", "matches")
        return warn(f"of {count_text} with accelerators, {share} no shape: {text.join_first(shapeless, 3)}")
    if unused := [shape.name for shape in document.node_shapes if shape.name not in used]:
        return warn(f"no node matches the shape {text.join_first(unused, 5)}")
    return ok(f"{count_text}, {text.format_count(len(used), 'shape')}")


def _find_shape(snapshot: Snapshot, node: object_info.NodeInfo) -> model.NodeShape | None:
    return model.find_shape(snapshot.policy.node_shapes, node.labels) if snapshot.policy else None


def _list_nodes_with_rails(snapshot: Snapshot, fabric: model.Fabric) -> list[object_info.NodeInfo]:
    """Return the nodes with accelerators and, if the fabric has device pools, at least one of these."""
    pools = _list_resources(snapshot, fabric)
    accelerated = list_accelerated(snapshot)
    return [node for node in accelerated if not pools or any(map(node.capacity.get, pools))]


def _list_resources(snapshot: Snapshot, fabric: model.Fabric) -> list[str]:
    resources = (get_resource(snapshot, rail) for rail in fabric.rails)
    return list(dict.fromkeys(resource for resource in resources if resource))


CHECKS: Checks = {
    "policy-exists": _check_exists,
    "policy-valid": _check_valid,
    "default-fabric": require_policy(_check_default),
    "namespace-labels": require_policy(_check_namespaces),
    "rail-networks": for_each_fabric(_check_networks),
    "rail-configurations": for_each_fabric(_check_configurations),
    "rail-pools": for_each_fabric(_check_pools),
    "rail-offered": _for_each_unclaimed(_check_offered),
    "rail-dead": for_each_fabric(_check_dead),
    "rail-reports": require_policy(_check_reports),
    "rail-missing": _for_each_unclaimed(_check_missing),
    "node-shapes": require_policy(_check_shapes),
    "rail-devices": _for_each_unclaimed(_check_devices),
    "domain-labels": for_each_fabric(_check_domains),
    "network-partitions": for_each_fabric(_check_partitions),
    "hypernodes": for_each_fabric(_check_hypernodes),
    "numa-topologies": for_each_fabric(_check_numa),
}
