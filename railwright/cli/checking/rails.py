"""Checks of each fabric's rails: networks, device pools, nodes, node shapes, topology domains, NUMA nodes.

Most rows run once per fabric; the subject of the assessment is the fabric.
"""

from railwright.cli.checking import check_rows, offered_devices, policy, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.fabric import hypernodes, node_views, text, topology
from railwright.fabric.policy import model, presets
from railwright.fabric.policy import model as documents

_NO_NODES = "no node has accelerators and rails of this fabric"
_CLAIMED = "the rails come as claims: see claim-devices"
Fabric = documents.Fabric


def _check_offered(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.claims is not None:
        return skip(_CLAIMED)
    pools = _list_resources(snapshot, fabric)
    if not pools:
        return skip("no rail has a device pool")
    nodes = offered_devices.list_nodes(snapshot)
    counts = {name: sum(snapshots.count_allocatable(node, name) > 0 for node in nodes) for name in pools}
    unavailable = [name for name, count in counts.items() if not count]
    if unavailable:
        return fail(f"no node offers {snapshots.join_limited(unavailable, 4)}: pods stay Pending")
    fewest, most = min(counts.values()), max(counts.values())
    return ok(
        f"on {fewest if fewest == most else f'{fewest} to {most}'} of "
        f"{text.format_count(len(snapshot.get_all('nodes')), 'node')}"
    )


def _check_dead(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    dead = [
        f"{node.metadata.name}: {name} 0 of {snapshots.count_capacity(node, name)}"
        for node in offered_devices.list_nodes(snapshot)
        for name in _list_resources(snapshot, fabric)
        if snapshots.count_capacity(node, name) and not snapshots.count_allocatable(node, name)
    ]
    return warn(snapshots.join_limited(dead, 4)) if dead else ok()


def _check_missing(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.claims is not None:
        return skip(_CLAIMED)
    pools = _list_resources(snapshot, fabric)
    accelerated = offered_devices.list_accelerated(snapshot)
    if not pools or not accelerated:
        return skip("no rail has a device pool" if not pools else "no node has accelerators")
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
            f"{text.format_count(len(accelerated), 'node', part=len(missing_pools))} with accelerators: "
            f"{snapshots.join_limited(problems, 4)}"
        )
    return ok(text.format_count(len(accelerated), "node"))


def _check_devices(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.claims is not None:
        return skip(_CLAIMED)
    document = snapshot.policy
    assert document is not None  # noqa: S101 - there is a fabric
    with_rails = _list_nodes_with_rails(snapshot, fabric)
    if not with_rails:
        return skip(_NO_NODES)
    unknown: dict[str, list[str]] = {}
    for node in with_rails:
        shape = model.find_shape(document.node_shapes, node.metadata.labels)
        shape_devices = shape.devices if shape else {}
        for rail in fabric.rails:
            if not shape_devices.get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.metadata.name)
    if unknown:
        problems = [f"{rail} on {snapshots.join_limited(node_names, 2)}" for rail, node_names in unknown.items()]
        return warn(f"no RDMA device name for {snapshots.join_limited(problems, 3)}: NCCL_IB_HCA is not set there")
    return ok()


def _check_domains(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    keys = presets.list_domain_keys(fabric.placement)
    if not keys:
        return skip("the fabric has no topology domains: all nodes count as equally close")
    if fabric.placement.preset == "volcano" and not fabric.placement.domains:
        return skip("the fabric's topology domains are HyperNodes")
    rails = tuple(rail.name for rail in fabric.rails)
    with_rails = _list_nodes_with_rails(snapshot, fabric)
    if not with_rails:
        return skip(_NO_NODES)
    unlabelled = [node.metadata.name for node in with_rails if not _has_labels(node, keys[0], rails)]
    if not unlabelled:
        return ok(f"{text.format_count(len(with_rails), 'node', 'has')} {keys[0]}")
    state = fail if len(unlabelled) == len(with_rails) else warn
    return state(
        f"{text.format_count(len(with_rails), 'node', 'has', part=len(unlabelled))} no label {keys[0]}: "
        f"{snapshots.join_limited(unlabelled, 3)}"
    )


def _has_labels(node: node_views.Node, key: str, rails: tuple[str, ...]) -> bool:
    return all(label in node.metadata.labels for label in topology.expand_rails(key, rails))


def _check_hypernodes(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.placement.preset != "volcano" or fabric.placement.domains:
        return skip("the fabric's topology domains are labels, not HyperNodes")
    if "hypernodes" in snapshot.unknown:
        return fail("the API server has no kind HyperNode (topology.volcano.sh)")
    if not snapshot.get_all("hypernodes"):
        return fail("there is no HyperNode")
    tree = hypernodes.Tree()
    tree.replace(snapshot.get_all("hypernodes"))
    problems = tree.find_problems({node.metadata.name: node.metadata.labels for node in snapshot.get_all("nodes")})
    outside = [
        node.metadata.name
        for node in _list_nodes_with_rails(snapshot, fabric)
        if not tree.read_values(node.metadata.name, node.metadata.labels)
    ]
    if outside:
        problems = (
            *problems,
            f"{text.format_count(len(outside), 'node', 'is')} in no HyperNode: {snapshots.join_limited(outside, 3)}",
        )
    return (
        warn(snapshots.join_limited(problems, 3))
        if problems
        else ok(text.format_count(len(snapshot.get_all("hypernodes")), "HyperNode"))
    )


def _check_numa(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> check_rows.Assessment:
    if fabric.placement.numa != "required":
        return skip(f"placement.numa is {fabric.placement.numa}")
    document = snapshot.policy
    assert document is not None  # noqa: S101 - there is a fabric
    reported = {report.metadata.name for report in snapshot.get_all("topologies")}
    with_rails = _list_nodes_with_rails(snapshot, fabric)
    if not with_rails:
        return skip(_NO_NODES)
    unknown = []
    for node in with_rails:
        shape = model.find_shape(document.node_shapes, node.metadata.labels)
        if node.metadata.name not in reported and not (shape and shape.numa):
            unknown.append(node.metadata.name)
    if unknown:
        return fail(
            f"{text.format_count(len(unknown), 'node', 'has')} no data on which rails share a NUMA node "
            "with which accelerators: "
            f"{snapshots.join_limited(unknown, 3)}"
        )
    return ok(f"{len(reported)} NodeResourceTopologies")


def _check_shapes(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    document = snapshot.policy
    if document is None or not document.node_shapes:
        return skip("the policy has no nodeShapes")
    accelerated = offered_devices.list_accelerated(snapshot)
    if not accelerated:
        return skip("no node has accelerators")
    used = {
        shape.name for node in accelerated if (shape := model.find_shape(document.node_shapes, node.metadata.labels))
    }
    unused = [shape.name for shape in document.node_shapes if shape.name not in used]
    shapeless = [
        node.metadata.name
        for node in accelerated
        if model.find_shape(document.node_shapes, node.metadata.labels) is None
    ]
    if shapeless:
        return warn(
            f"of {text.format_count(len(accelerated), 'node')} with accelerators, "
            f"{text.format_count(len(shapeless), 'node', 'matches')} no shape: "
            f"{snapshots.join_limited(shapeless, 3)}"
        )
    if unused:
        return warn(f"no node matches the shape {snapshots.join_limited(unused)}")
    return ok(f"{text.format_count(len(accelerated), 'node')}, {text.format_count(len(used), 'shape')}")


def _list_nodes_with_rails(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> tuple[node_views.Node, ...]:
    """Return the nodes with accelerators and, if the fabric has device pools, at least one of these."""
    pools = _list_resources(snapshot, fabric)
    accelerated = offered_devices.list_accelerated(snapshot)
    return tuple(
        node for node in accelerated if not pools or any(snapshots.count_capacity(node, name) for name in pools)
    )


def _list_resources(snapshot: snapshots.ClusterSnapshot, fabric: Fabric) -> list[str]:
    resources = (policy.get_resource(snapshot, rail) for rail in fabric.rails)
    return list(dict.fromkeys(resource for resource in resources if resource))


CHECKS: check_rows.Checks = {
    "rail-offered": policy.for_each_fabric(_check_offered),
    "rail-dead": policy.for_each_fabric(_check_dead),
    "rail-missing": policy.for_each_fabric(_check_missing),
    "node-shapes": _check_shapes,
    "rail-devices": policy.for_each_fabric(_check_devices),
    "domain-labels": policy.for_each_fabric(_check_domains),
    "hypernodes": policy.for_each_fabric(_check_hypernodes),
    "numa-topologies": policy.for_each_fabric(_check_numa),
}
