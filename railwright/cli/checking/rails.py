"""Checks of each fabric's rails: networks, device pools, nodes, node shapes, topology domains, NUMA nodes.

Most rows run once per fabric; the subject of the assessment is the fabric.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import Row, fail, ok, skip, warn
from railwright.fabric import hypernodes, names, topology, views
from railwright.fabric.policy import model as documents
from railwright.fabric.policy import presets, selectors

_EDIT = f"kubectl -n {names.NAMESPACE} edit configmap {names.POLICY_CONFIGMAP}"
Fabric = documents.Fabric


def _for_each_fabric(assess: Callable[[snapshots.ClusterSnapshot, Fabric], check_rows.Assessment]) -> check_rows.Assess:
    """Return a check that runs `assess` for each fabric with rails."""

    def assess_fabrics(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
        document = snapshot.policy
        for name, fabric in (document.fabrics if document else {}).items():
            if fabric.transport is not documents.Transport.TCP and fabric.rails:
                assessment = assess(snapshot, fabric)
                yield check_rows.Assessment(assessment.state, assessment.detail, assessment.hint, name)

    return assess_fabrics


def _check_networks(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    networks = [(rail.name, rail.network) for rail in fabric.rails if rail.network]
    if not networks:
        return ok("no rail has a network")
    missing = [f"{rail}: {network}" for rail, network in networks if _find_network(snapshot, network) is None]
    if missing:
        return fail(
            f"there is no NetworkAttachmentDefinition for {snapshots.join_limited(missing, 4)}: pods are rejected"
        )
    return ok(snapshots.format_count(len(networks), "network"))


def _check_configurations(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
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
    problems, unbound = [], []
    for rail in fabric.rails:
        network = rail.network and _find_network(snapshot, rail.network)
        annotated = (snapshots.get_path(network, "metadata", "annotations") or {}).get(names.NAD_RESOURCE_NAME)
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
    return (snapshots.get_path(network, "metadata", "annotations") or {}).get(names.NAD_RESOURCE_NAME)


def _check_offered(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    pools = _list_resources(snapshot, fabric)
    if not pools:
        return ok("no rail has a device pool")
    counts = {
        name: sum(snapshots.count_allocatable(node, name) > 0 for node in snapshot.all("nodes")) for name in pools
    }
    unavailable = [name for name, count in counts.items() if not count]
    if unavailable:
        return fail(f"no node offers {snapshots.join_limited(unavailable, 4)}: pods stay Pending")
    fewest, most = min(counts.values()), max(counts.values())
    return ok(f"on {fewest if fewest == most else f'{fewest} to {most}'} of {len(snapshot.all('nodes'))} nodes")


def _check_dead(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    dead = [
        f"{node.metadata.name}: {name} 0 of {snapshots.count_capacity(node, name)}"
        for node in snapshot.all("nodes")
        for name in _list_resources(snapshot, fabric)
        if snapshots.count_capacity(node, name) and not snapshots.count_allocatable(node, name)
    ]
    return warn(snapshots.join_limited(dead, 4)) if dead else ok()


def _check_missing(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    pools = _list_resources(snapshot, fabric)
    accelerated = snapshots.list_accelerated(snapshot)
    if not pools or not accelerated:
        return ok("nothing to compare")
    missing_pools = {
        node.metadata.name: [name for name in pools if not snapshots.count_capacity(node, name)]
        for node in accelerated
        if not all(snapshots.count_capacity(node, name) for name in pools)
    }
    partial = [
        f"{name} lacks {snapshots.join_limited(missing, 2)}"
        for name, missing in missing_pools.items()
        if len(missing) < len(pools)
    ]
    without_rails = [name for name, missing in missing_pools.items() if len(missing) == len(pools)]
    if partial or without_rails:
        problems = [
            *partial,
            *([f"{snapshots.join_limited(without_rails, 4)} lack all rails"] if without_rails else []),
        ]
        return warn(
            f"{len(missing_pools)} of {len(accelerated)} nodes with accelerators: {snapshots.join_limited(problems, 4)}"
        )
    return ok(snapshots.format_count(len(accelerated), "node"))


def _check_devices(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    document = snapshot.policy
    assert document is not None  # noqa: S101 - there is a fabric
    unknown: dict[str, list[str]] = {}
    for node in _list_nodes_with_rails(snapshot, fabric):
        shape = selectors.shape_of(document, node.metadata.labels)
        shape_devices = shape.devices if shape else {}
        for rail in fabric.rails:
            if not shape_devices.get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.metadata.name)
    if unknown:
        problems = [f"{rail} on {snapshots.join_limited(node_names, 2)}" for rail, node_names in unknown.items()]
        return warn(f"no RDMA device name for {snapshots.join_limited(problems, 3)}: NCCL_IB_HCA is not set there")
    return ok()


def _check_domains(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    keys = presets.domains(fabric.placement)
    if not keys:
        return skip("the fabric has no topology domains: all nodes count as equally close")
    if fabric.placement.preset == "volcano" and not fabric.placement.domains:
        return skip("the fabric's topology domains are HyperNodes")
    rails = tuple(rail.name for rail in fabric.rails)
    with_rails = _list_nodes_with_rails(snapshot, fabric)
    unlabelled = [node.metadata.name for node in with_rails if not _has_labels(node, keys[0], rails)]
    if not unlabelled:
        return ok(f"{len(with_rails)} nodes have {keys[0]}")
    state = fail if len(unlabelled) == len(with_rails) else warn
    return state(
        f"{len(unlabelled)} of {len(with_rails)} nodes have no label {keys[0]}: {snapshots.join_limited(unlabelled, 3)}"
    )


def _has_labels(node: views.Node, key: str, rails: tuple[str, ...]) -> bool:
    return all(label in node.metadata.labels for label in topology.expand_rails(key, rails))


def _check_hypernodes(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.placement.preset != "volcano" or fabric.placement.domains:
        return skip("the fabric's topology domains are labels, not HyperNodes")
    if "hypernodes" in snapshot.unknown:
        return fail("the API server has no kind HyperNode (topology.volcano.sh)")
    if not snapshot.all("hypernodes"):
        return fail("there is no HyperNode")
    tree = hypernodes.Tree()
    tree.replace(snapshot.all("hypernodes"))
    problems = tree.problems({node.metadata.name: node.metadata.labels for node in snapshot.all("nodes")})
    outside = [
        node.metadata.name
        for node in _list_nodes_with_rails(snapshot, fabric)
        if not tree.values(node.metadata.name, node.metadata.labels)
    ]
    if outside:
        problems = (*problems, f"{len(outside)} nodes are in no HyperNode: {snapshots.join_limited(outside, 3)}")
    return (
        warn(snapshots.join_limited(problems, 3))
        if problems
        else ok(snapshots.format_count(len(snapshot.all("hypernodes")), "HyperNode"))
    )


def _check_numa(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.placement.numa != "required":
        return skip(f"placement.numa is {fabric.placement.numa}")
    document = snapshot.policy
    assert document is not None  # noqa: S101 - there is a fabric
    reported = {report.metadata.name for report in snapshot.all("topologies")}
    unknown = []
    for node in _list_nodes_with_rails(snapshot, fabric):
        shape = selectors.shape_of(document, node.metadata.labels)
        if node.metadata.name not in reported and not (shape and shape.numa):
            unknown.append(node.metadata.name)
    if unknown:
        return fail(
            f"{len(unknown)} nodes have no data on which rails share a NUMA node with which accelerators: "
            f"{snapshots.join_limited(unknown, 3)}"
        )
    return ok(f"{len(reported)} NodeResourceTopologies")


def _check_shapes(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    if document is None or not document.node_shapes:
        return skip("the policy has no nodeShapes")
    accelerated = snapshots.list_accelerated(snapshot)
    if not accelerated:
        return skip("no node has accelerators")
    used = {shape.name for node in accelerated if (shape := selectors.shape_of(document, node.metadata.labels))}
    unused = [shape.name for shape in document.node_shapes if shape.name not in used]
    shapeless = [
        node.metadata.name for node in accelerated if selectors.shape_of(document, node.metadata.labels) is None
    ]
    if shapeless:
        return warn(
            f"{len(shapeless)} of {len(accelerated)} nodes with accelerators match no shape: "
            f"{snapshots.join_limited(shapeless, 3)}"
        )
    if unused:
        return warn(f"no node matches the shape {snapshots.join_limited(unused)}")
    return ok(f"{snapshots.format_count(len(accelerated), 'node')}, {snapshots.format_count(len(used), 'shape')}")


def _list_nodes_with_rails(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> tuple[views.Node, ...]:
    """Return the nodes with accelerators and, if the fabric has device pools, at least one of these."""
    pools = _list_resources(snapshot, fabric)
    accelerated = snapshots.list_accelerated(snapshot)
    return tuple(
        node for node in accelerated if not pools or any(snapshots.count_capacity(node, name) for name in pools)
    )


def _list_resources(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> list[str]:
    resources = (get_resource(snapshot, rail) for rail in fabric.rails)
    return list(dict.fromkeys(resource for resource in resources if resource))


def _find_network(snapshot: snapshots.ClusterSnapshot, qualified: str | None) -> Any | None:
    return next((network for network in snapshot.all("networks") if snapshots.get_name(network) == qualified), None)


def list_rows() -> Iterator[Row]:
    """Yield the checks of rails in the group `nodes and rails`."""
    yield from _ROWS


_ROWS: tuple[Row, ...] = (
    Row(
        anchor="rail-networks",
        name="each rail's network exists",
        assess=_for_each_fabric(_check_networks),
        hint=f"create it, or correct its name in the policy: kubectl get net-attach-def -A; {_EDIT}",
        reads=("policy", "networks"),
        depends_on=("policy-valid", "multus"),
    ),
    Row(
        anchor="rail-configurations",
        name="each rail network's configuration is valid",
        assess=_for_each_fabric(_check_configurations),
        hint="kubectl -n NAMESPACE edit net-attach-def NAME",
        reads=("policy", "networks"),
        depends_on=("policy-valid", "rail-networks"),
    ),
    Row(
        anchor="rail-pools",
        name="networks and policy name the same device pools",
        assess=_for_each_fabric(_check_pools),
        hint=f"set both to the same value: {_EDIT}, or annotation {names.NAD_RESOURCE_NAME} of the network",
        reads=("policy", "networks"),
        depends_on=("policy-valid", "rail-networks"),
    ),
    Row(
        anchor="rail-offered",
        name="nodes offer each rail's device pool",
        assess=_for_each_fabric(_check_offered),
        hint="check the device plugin's pods and configuration: kubectl describe node NODE",
        reads=("policy", "nodes"),
        depends_on=("policy-valid",),
    ),
    Row(
        anchor="rail-dead",
        name="no node has lost all devices of a rail",
        assess=_for_each_fabric(_check_dead),
        hint="check the NIC's link and the device plugin's log on that node: kubectl describe node NODE",
        reads=("policy", "nodes"),
        depends_on=("policy-valid", "rail-offered"),
    ),
    Row(
        anchor="rail-missing",
        name="each node with accelerators has all rails",
        assess=_for_each_fabric(_check_missing),
        hint="install the device plugin there, or exclude the node: kubectl taint node NODE rails=none:NoSchedule",
        reads=("policy", "nodes"),
        depends_on=("policy-valid", "rail-offered"),
    ),
    Row(
        anchor="node-shapes",
        name="node shapes match the nodes",
        assess=_check_shapes,
        hint=f"correct `nodeShapes[].match`: {_EDIT}; to list labels: kubectl get nodes --show-labels",
        reads=("policy", "nodes"),
        depends_on=("policy-valid",),
    ),
    Row(
        anchor="rail-devices",
        name="each rail's RDMA device name is known on each node",
        assess=_for_each_fabric(_check_devices),
        hint=f"set `device` of the rail, or `devices` of the node's shape: {_EDIT}",
        reads=("policy", "nodes"),
        depends_on=("policy-valid",),
    ),
    Row(
        anchor="domain-labels",
        name="nodes are labelled with their leaf",
        assess=_for_each_fabric(_check_domains),
        hint="label the nodes (topograph does it), or correct `placement.domains`: kubectl label node NODE KEY=LEAF",
        reads=("policy", "nodes"),
        depends_on=("policy-valid",),
    ),
    Row(
        anchor="hypernodes",
        name="HyperNodes cover the nodes",
        assess=_for_each_fabric(_check_hypernodes),
        hint="Volcano's topology discovery creates them; to list: kubectl get hypernodes",
        reads=("policy", "hypernodes", "nodes"),
        depends_on=("policy-valid",),
    ),
    Row(
        anchor="numa-topologies",
        name="NUMA nodes of rails and accelerators are known",
        assess=_for_each_fabric(_check_numa),
        hint="deploy the NodeResourceTopology exporter, or set `numa` of the node's shape: " + _EDIT,
        reads=("policy", "topologies", "nodes"),
        depends_on=("policy-valid",),
    ),
)
