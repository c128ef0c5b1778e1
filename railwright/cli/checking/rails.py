"""Checks of each fabric's rails: device pools, nodes, node shapes, topology domains, NUMA nodes.

Most rows run once per fabric; the subject of the assessment is the fabric.
"""

from collections.abc import Callable, Sequence

from railwright.cli.checking import offered_devices, policy
from railwright.cli.checking.check_rows import Assess, Assessment, Checks, assess_problems, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, count
from railwright.fabric import hypernodes, node_views, text, topology
from railwright.fabric.policy import model, presets

_NO_NODES = "no node has accelerators and rails of this fabric"
Nodes = Sequence[node_views.Node]


def _for_each_unclaimed(assess: Callable[[Snapshot, model.Fabric], Assessment]) -> Assess:
    """Return a check for each fabric with rails, skipped for those whose rails come as claims."""
    claimed = skip("the rails come as claims: see claim-devices")
    return policy.for_each_fabric(lambda snapshot, fabric: claimed if fabric.claims else assess(snapshot, fabric))


def _check_offered(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    pools = _list_resources(snapshot, fabric)
    if not pools:
        return skip("no rail has a device pool")
    nodes = offered_devices.list_nodes(snapshot)
    counts = {name: sum(count(node.status.allocatable, name) > 0 for node in nodes) for name in pools}
    if unavailable := [name for name in pools if not counts[name]]:
        return fail(f"no node offers {text.join_first(unavailable, 4)}: pods stay Pending")
    fewest, most = min(counts.values()), max(counts.values())
    number = fewest if fewest == most else f"{fewest} to {most}"
    return ok(f"on {number} of {text.format_count(len(nodes), 'node')}")


def _check_dead(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    dead = [
        f"{node.metadata.name}: {name} 0 of {capacity}"
        for node in offered_devices.list_nodes(snapshot)
        for name in _list_resources(snapshot, fabric)
        if (capacity := count(node.status.capacity, name)) and not count(node.status.allocatable, name)
    ]
    return assess_problems(dead, bad=warn, most=4)


def _check_missing(snapshot: Snapshot, fabric: model.Fabric) -> Assessment:
    pools = _list_resources(snapshot, fabric)
    accelerated = offered_devices.list_accelerated(snapshot)
    if not pools or not accelerated:
        return skip("no rail has a device pool" if not pools else "no node has accelerators")
    missing = {
        node.metadata.name: [name for name in pools if not count(node.status.capacity, name)] for node in accelerated
    }
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
    nodes = _list_nodes_with_rails(snapshot, fabric)
    if not nodes:
        return skip(_NO_NODES)
    unknown: dict[str, list[str]] = {}
    for node in nodes:
        shape = _find_shape(snapshot, node)
        for rail in fabric.rails:
            if not (shape.devices if shape else {}).get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.metadata.name)
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
    labels = topology.expand_rails(keys[0], tuple(rail.name for rail in fabric.rails))
    unlabelled = [node.metadata.name for node in nodes if not set(labels) <= node.metadata.labels.keys()]
    if not unlabelled:
        return ok(f"{text.format_count(len(nodes), 'node', 'has')} {keys[0]}")
    share = text.format_count(len(nodes), "node", "has", part=len(unlabelled))
    bad = fail if len(unlabelled) == len(nodes) else warn
    return bad(f"{share} no label {keys[0]}: {text.join_first(unlabelled, 3)}")


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
    members = [node.metadata for node in _list_nodes_with_rails(snapshot, fabric)]
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
    unreported = [node for node in nodes if node.metadata.name not in reported]
    unknown = [
        node.metadata.name for node in unreported if (shape := _find_shape(snapshot, node)) is None or not shape.numa
    ]
    if unknown:
        return fail(
            f"{text.format_count(len(unknown), 'node', 'has')} no data on which rails share a NUMA node with which "
            f"accelerators: {text.join_first(unknown, 3)}"
        )
    return ok(f"{len(reported)} NodeResourceTopologies")


def _check_shapes(snapshot: Snapshot, document: model.FabricPolicy) -> Assessment:
    if not document.node_shapes:
        return skip("the policy has no nodeShapes")
    accelerated = offered_devices.list_accelerated(snapshot)
    if not accelerated:
        return skip("no node has accelerators")
    shapes = {node.metadata.name: _find_shape(snapshot, node) for node in accelerated}
    used = {shape.name for shape in shapes.values() if shape}
    count_text = text.format_count(len(accelerated), "node")
    if shapeless := [name for name, shape in shapes.items() if shape is None]:
        share = text.format_count(len(shapeless), "node", "matches")
        return warn(f"of {count_text} with accelerators, {share} no shape: {text.join_first(shapeless, 3)}")
    if unused := [shape.name for shape in document.node_shapes if shape.name not in used]:
        return warn(f"no node matches the shape {text.join_first(unused, 5)}")
    return ok(f"{count_text}, {text.format_count(len(used), 'shape')}")


def _find_shape(snapshot: Snapshot, node: node_views.Node) -> model.NodeShape | None:
    return model.find_shape(snapshot.policy.node_shapes, node.metadata.labels) if snapshot.policy else None


def _list_nodes_with_rails(snapshot: Snapshot, fabric: model.Fabric) -> Nodes:
    """Return the nodes with accelerators and, if the fabric has device pools, at least one of these."""
    pools = _list_resources(snapshot, fabric)
    accelerated = offered_devices.list_accelerated(snapshot)
    return [node for node in accelerated if not pools or any(count(node.status.capacity, name) for name in pools)]


def _list_resources(snapshot: Snapshot, fabric: model.Fabric) -> list[str]:
    resources = (policy.get_resource(snapshot, rail) for rail in fabric.rails)
    return list(dict.fromkeys(resource for resource in resources if resource))


CHECKS: Checks = {
    "rail-offered": _for_each_unclaimed(_check_offered),
    "rail-dead": policy.for_each_fabric(_check_dead),
    "rail-missing": _for_each_unclaimed(_check_missing),
    "node-shapes": policy.require_policy(_check_shapes),
    "rail-devices": _for_each_unclaimed(_check_devices),
    "domain-labels": policy.for_each_fabric(_check_domains),
    "hypernodes": policy.for_each_fabric(_check_hypernodes),
    "numa-topologies": policy.for_each_fabric(_check_numa),
}
