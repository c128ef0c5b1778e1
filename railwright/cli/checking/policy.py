"""Checks of the policy and of the rails of its fabrics: networks, device pools, node shapes, domains, NUMA nodes.

Rows about rails run once per fabric; the subject of the assessment is the fabric.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, SkipError, assess_problems, fail, ok, require, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path, list_accelerators
from railwright.cluster import installed_names, policies
from railwright.fabric import hypernodes, intent, names, resources, text, topology
from railwright.fabric.placement.state import cluster_state, object_info, rail_reports
from railwright.fabric.policy import claimed_rails, model, presets

# Sources of `read_cluster`
CLUSTER_SOURCES = ("nodes", "device-classes", "device-slices", "networks", "policy")


def read_cluster(snapshot: Snapshot) -> cluster_state.ClusterState:
    """Return the nodes as placement sees them, with the devices of slices, and the reports about their rails."""
    cluster = cluster_state.ClusterState()
    devices = cluster.claimed.inventory
    devices.class_sink.replace(snapshot.get_all("device-classes"))
    devices.slice_sink.replace(snapshot.get_all("device-slices"))
    if snapshot.policy is not None:
        devices.replace_claim_resources(claimed_rails.list_claim_resources(snapshot.policy))
        cluster.apply_health_policy(rail_reports.HealthPolicy(snapshot.policy, read_networks(snapshot)))
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
_WITHOUT_POOLS = frozenset({model.Transport.PVRDMA, model.Transport.PLUGIN})
_WITHOUT_NAMES = frozenset({model.Transport.EFA, model.Transport.ERDMA, model.Transport.PLUGIN})
_HCA = "NCCL_IB_HCA"
_NO_POOL = "no rail has a device pool"


def _check_exists(snapshot: Snapshot) -> Assessment:
    configmap = snapshot.get_one("policy")
    if configmap is None:
        return fail(f"{_CONFIGMAP} does not exist in namespace {snapshot.namespace}")
    if snapshot.policy_text is None:
        keys = text.join_first(get_list(configmap, "data"), 5) or "nothing"
        detail = f"{_CONFIGMAP} has no key {names.POLICY_KEY}; it has {keys}"
        return fail(detail, f"store the policy under this key: {check_rows.EDIT_POLICY}")
    return ok(_CONFIGMAP)


def _check_valid(snapshot: Snapshot) -> Assessment:
    result = snapshot.policy_result
    if isinstance(result, policies.Rejected):
        return fail(
            "\n".join(map(str, result.errors[:_MOST])),
            f"{check_rows.EDIT_POLICY}; to validate it first: railwright policy validate FILE",
        )
    fabrics = snapshot.fabrics
    return ok(f"{text.format_count(len(fabrics), 'fabric')}: {text.join_first(fabrics, 5)}")


def require_policy(snapshot: Snapshot) -> model.Policy:
    """Return the policy. Raise SkipError without a valid one."""
    if not isinstance(snapshot.policy_result, model.Policy):
        raise SkipError("there is no valid policy")
    return snapshot.policy_result


def _check_default(snapshot: Snapshot) -> Assessment:
    if default := require_policy(snapshot).document.default_fabric:
        return ok(default)
    return warn(f"none: the label {names.FABRIC}=default is rejected; users must name a fabric")


def _check_namespaces(snapshot: Snapshot) -> Assessment:
    policy = require_policy(snapshot).document
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
    good = text.format_count(opted_in, "opted-in namespace") if opted_in else "no namespace opts in as a whole"
    return assess_problems(problems, good, "{}: its pods with accelerators are rejected")


def _check_networks(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    networks = _require_networks(snapshot, fabric)
    missing = (f"{rail.name}: {rail.network}" for rail, network in networks if network is None)
    good, bad = (
        text.format_count(len(networks), "network"),
        "there is no NetworkAttachmentDefinition for {}: pods are rejected",
    )
    return assess_problems(missing, good, bad, most=4)


def _check_configurations(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    problems = {
        rail.network or "": _find_configuration_problem(get_path(network, "spec", "config"))
        for rail, network in _require_networks(snapshot, fabric)
    }
    return assess_problems(problems, most=4)


def _require_networks(snapshot: Snapshot, fabric: model.Fabric) -> list[tuple[model.Rail, Any]]:
    """Return the rails with a network, and the network, None if it does not exist. Raise SkipError without any."""
    networks = {get_name(network): network for network in snapshot.get_all("networks")}
    rails = [(rail, networks.get(rail.network)) for rail in fabric.rails if rail.network]
    return require(rails, "no rail has a network")


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
    require(not fabric.claims, "the rails come as claims")
    networks = read_networks(snapshot)
    problems = [
        f"{rail.name}: the policy has {rail.resource}, {rail.network} has {annotated}"
        for rail in fabric.rails
        if rail.network_key and (annotated := networks.get(rail.network_key)) and annotated != rail.resource
    ]
    unbound = [rail.name for rail in fabric.rails if not rail.resource]
    has_devices = fabric.mounts.dev_infiniband or fabric.security.privileged
    if unbound and not problems and not has_devices and fabric.transport not in _WITHOUT_POOLS:
        return warn(f"{text.join_first(unbound, 5)} have no device pool, and /dev/infiniband is not mounted")
    return assess_problems(problems, most=4)


def list_fabrics(snapshot: Snapshot) -> Mapping[str, model.Fabric]:
    """Return the fabrics with rails. A rail without a resource of its own has the one that its network names."""
    networks = read_networks(snapshot)
    return {
        name: intent.fill_resources(name, fabric, networks)
        for name, fabric in snapshot.fabrics.items()
        if fabric.transport is not model.Transport.TCP and fabric.rails
    }


def for_each_fabric(
    assess: Callable[[Snapshot, model.Fabric], Assessment], *, with_claims: bool = True
) -> check_rows.Assess:
    """Return a check that runs `assess` for each fabric with rails.

    It is skipped if the device pool of a rail is not known, because its network cannot be read.
    """

    def assess_fabric(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
        if any(rail.network and not rail.resource for rail in fabric.rails):
            check_rows.require_read(snapshot, "networks")
        require(with_claims or not fabric.claims, "the rails come as claims: see claim-devices")
        return assess(snapshot, fabric)

    return check_rows.for_each(list_fabrics, assess_fabric)


# --- rails on nodes ---------------------------------------------------------------------------------------


def _check_offered(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    pools = require(_list_pools(fabric), _NO_POOL)
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
        for name in _list_pools(fabric)
        if (capacity := node.capacity.get(name)) and not node.allocatable.get(name)
    ]
    return assess_problems(dead, bad=warn, most=4)


def _check_reports(snapshot: Snapshot) -> Assessment:
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
    pools = require(_list_pools(fabric), _NO_POOL)
    others = [pool for other in list_fabrics(snapshot).values() for pool in _list_pools(other)]
    accelerated = [node for node in list_accelerated(snapshot) if has_any(node, pools) or not has_any(node, others)]
    require(accelerated, "no node has accelerators")
    missing = {node.name: [name for name in pools if not node.capacity.get(name)] for node in accelerated}
    problems = [
        f"{node} lacks {text.join_first(lacking, 2)}"
        for node, lacking in missing.items()
        if 0 < len(lacking) < len(pools)
    ]
    if without_rails := [node for node, lacking in missing.items() if len(lacking) == len(pools)]:
        problems.append(f"{text.join_first(without_rails, 4)} lack all rails")
    affected = text.format_count(len(accelerated), "node", part=sum(map(bool, missing.values())))
    good, bad = text.format_count(len(accelerated), "node"), f"{affected} with accelerators: {{}}"
    return assess_problems(problems, good, bad, bad=warn, most=4)


def _check_devices(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    is_derived = fabric.transport not in _WITHOUT_NAMES and fabric.nccl.derive and _HCA not in fabric.env
    require(is_derived, f"{_HCA} is not derived from the rails of this fabric")
    nodes = _require_nodes(snapshot, fabric)
    unknown: dict[str, list[str]] = {}
    for node in nodes:
        shape = _find_shape(snapshot, node)
        for rail in fabric.rails:
            if not (shape.devices if shape else {}).get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.name)
    problems = (f"{rail} on {text.join_first(on, 2)}" for rail, on in unknown.items())
    return assess_problems(problems, "", f"no RDMA device name for {{}}: {_HCA} is not set there", bad=warn)


def _check_domains(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    no_domains = "the fabric has no topology domains: all nodes count as equally close"
    keys = require(presets.list_domain_keys(fabric.placement), no_domains)
    require(not _has_hyper_nodes(fabric), "the fabric's topology domains are HyperNodes")
    nodes = _require_nodes(snapshot, fabric)
    labels = topology.expand_rails(keys[0], tuple(rail.name for rail in fabric.rails))
    unlabelled = [node.name for node in nodes if not set(labels) <= node.labels.keys()]
    if not unlabelled:
        return ok(f"{text.format_count(len(nodes), 'node', 'has')} {keys[0]}")
    share = text.format_count(len(nodes), "node", "has", part=len(unlabelled))
    bad = fail if len(unlabelled) == len(nodes) else warn
    return bad(f"{share} no label {keys[0]}: {text.join_first(unlabelled, 3)}")


def _check_hypernodes(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    require(_has_hyper_nodes(fabric), "the fabric's topology domains are labels, not HyperNodes")
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
    require(fabric.placement.numa == "required", f"placement.numa is {fabric.placement.numa}")
    nodes = _require_nodes(snapshot, fabric)
    reported = {report.metadata.name for report in snapshot.get_all("topologies")}
    unreported = [node for node in nodes if node.name not in reported]
    unknown = [node.name for node in unreported if (shape := _find_shape(snapshot, node)) is None or not shape.numa]
    share = text.format_count(len(unknown), "node", "has")
    bad = f"{share} no data on which rails share a NUMA node with which accelerators: {{}}"
    return assess_problems(unknown, f"{len(reported)} NodeResourceTopologies", bad)


def _check_shapes(snapshot: Snapshot) -> Assessment:
    known = require(require_policy(snapshot).document.node_shapes, "the policy has no nodeShapes")
    accelerated = require(list_accelerated(snapshot), "no node has accelerators")
    shapes = {node.name: _find_shape(snapshot, node) for node in accelerated}
    used = {shape.name for shape in shapes.values() if shape}
    count_text = text.format_count(len(accelerated), "node")
    if shapeless := [name for name, shape in shapes.items() if shape is None]:
        share = text.format_count(len(shapeless), "node", "matches")
        return warn(f"of {count_text} with accelerators, {share} no shape: {text.join_first(shapeless, 3)}")
    if unused := [shape.name for shape in known if shape.name not in used]:
        return warn(f"no node matches the shape {text.join_first(unused, 5)}")
    return ok(f"{count_text}, {text.format_count(len(used), 'shape')}")


def _has_hyper_nodes(fabric: model.Fabric) -> bool:
    return fabric.placement.preset == "volcano" and not fabric.placement.domains


def _find_shape(snapshot: Snapshot, node: object_info.NodeInfo) -> model.NodeShape | None:
    return model.find_shape(require_policy(snapshot).document.node_shapes, node.labels)


def _list_nodes_with_rails(snapshot: Snapshot, fabric: model.Fabric) -> list[object_info.NodeInfo]:
    """Return the nodes with accelerators and, if the fabric has device pools, at least one of these."""
    pools = _list_pools(fabric)
    accelerated = list_accelerated(snapshot)
    return [node for node in accelerated if not pools or any(map(node.capacity.get, pools))]


def _require_nodes(snapshot: Snapshot, fabric: model.Fabric) -> list[object_info.NodeInfo]:
    """Return the nodes with rails of a fabric. Raise SkipError without any."""
    return require(_list_nodes_with_rails(snapshot, fabric), "no node has accelerators and rails of this fabric")


def _list_pools(fabric: model.Fabric) -> list[str]:
    return list(dict.fromkeys(rail.resource for rail in fabric.rails if rail.resource))


CHECKS: Checks = {
    "policy-exists": _check_exists,
    "policy-valid": _check_valid,
    "default-fabric": _check_default,
    "namespace-labels": _check_namespaces,
    "rail-networks": for_each_fabric(_check_networks),
    "rail-configurations": for_each_fabric(_check_configurations),
    "rail-pools": for_each_fabric(_check_pools),
    "rail-offered": for_each_fabric(_check_offered, with_claims=False),
    "rail-dead": for_each_fabric(_check_dead),
    "rail-reports": _check_reports,
    "rail-missing": for_each_fabric(_check_missing, with_claims=False),
    "node-shapes": _check_shapes,
    "rail-devices": for_each_fabric(_check_devices, with_claims=False),
    "domain-labels": for_each_fabric(_check_domains),
    "hypernodes": for_each_fabric(_check_hypernodes),
    "numa-topologies": for_each_fabric(_check_numa),
}
