"""Rows about every fabric's rails: networks, device pools, nodes that have them, hardware shapes, domains, NUMA nodes.

Owns the judgement of one fabric at a time; each verdict's subject is the fabric.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from railwright.cli.checking import model, nodes
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.fabric import hypernodes, names, topology, views
from railwright.fabric.policy import model as documents
from railwright.fabric.policy import presets, selectors

_EDIT = f"kubectl -n {names.NAMESPACE} edit configmap {names.POLICY_CONFIGMAP}"
Fabric = documents.Fabric


def _fabrics(judge: Callable[[sight.Seen, Fabric], model.Verdict]) -> model.Judge:
    """One verdict a fabric that has rails."""

    def judged(seen: sight.Seen) -> Iterator[model.Verdict]:
        document = seen.policy
        for name, fabric in (document.fabrics if document else {}).items():
            if fabric.transport is not documents.Transport.TCP and fabric.rails:
                found = judge(seen, fabric)
                yield model.Verdict(found.state, found.detail, found.hint, name)

    return judged


def _networks(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    wanted = [(rail.name, rail.network) for rail in fabric.rails if rail.network]
    if not wanted:
        return ok("no rail has a network of its own")
    missing = [f"{rail}: {network}" for rail, network in wanted if _network(seen, network) is None]
    if missing:
        return fail(f"there is no NetworkAttachmentDefinition for {sight.listed(missing, 4)}: pods are refused")
    return ok(sight.counted(len(wanted), "network"))


def _configurations(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    problems = []
    for rail in fabric.rails:
        network = rail.network and _network(seen, rail.network)
        problem = _configuration(sight.dig(network, "spec", "config")) if network else ""
        if problem:
            problems.append(f"{rail.network}: {problem}")
    return fail(sight.listed(problems, 4)) if problems else ok()


def _configuration(text: Any) -> str:
    """What is wrong with spec.config; "" also where it is empty: the node's own CNI file of that name is meant."""
    if not text:
        return ""
    try:
        tree = json.loads(text)
    except (ValueError, TypeError) as error:
        return f"spec.config is no JSON: {error}"
    if not isinstance(tree, dict):
        return "spec.config is no JSON object"
    plugins = tree.get("plugins") if isinstance(tree.get("plugins"), list) else [tree]
    if not plugins or not all(isinstance(each, dict) and each.get("type") for each in plugins):
        return "spec.config names no plugin (`type`)"
    return ""


def _pools(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    problems, unbound = [], []
    for rail in fabric.rails:
        network = rail.network and _network(seen, rail.network)
        annotated = (sight.dig(network, "metadata", "annotations") or {}).get(names.NAD_RESOURCE_NAME)
        if annotated and rail.resource and annotated != rail.resource:
            problems.append(f"{rail.name}: the policy says {rail.resource}, {rail.network} says {annotated}")
        elif not annotated and not rail.resource:
            unbound.append(rail.name)
    if problems:
        return fail(sight.listed(problems, 4))
    if unbound and fabric.transport is not documents.Transport.PVRDMA and not fabric.mounts.dev_infiniband:
        return warn(f"{sight.listed(unbound)} draw on no device pool, and /dev/infiniband is not mounted")
    return ok()


def resource_of(seen: sight.Seen, rail: documents.Rail) -> str | None:
    """The device pool of a rail: the policy's, else its network's."""
    if rail.resource or not rail.network:
        return rail.resource
    network = _network(seen, rail.network)
    return (sight.dig(network, "metadata", "annotations") or {}).get(names.NAD_RESOURCE_NAME)


def _offered(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    pools = _resources(seen, fabric)
    if not pools:
        return ok("no rail draws on a device pool")
    counts = {name: sum(nodes.offered(node, name) > 0 for node in seen.all("nodes")) for name in pools}
    nowhere = [name for name, count in counts.items() if not count]
    if nowhere:
        return fail(f"no node offers {sight.listed(nowhere, 4)}: pods wait for ever")
    least, most = min(counts.values()), max(counts.values())
    return ok(f"on {least if least == most else f'{least} to {most}'} of {len(seen.all('nodes'))} nodes")


def _dead(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    dead = [
        f"{node.metadata.name}: {name} 0 of {nodes.built_in(node, name)}"
        for node in seen.all("nodes")
        for name in _resources(seen, fabric)
        if nodes.built_in(node, name) and not nodes.offered(node, name)
    ]
    return warn(sight.listed(dead, 4)) if dead else ok()


def _bare(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    pools = _resources(seen, fabric)
    machines = nodes.accelerated(seen)
    if not pools or not machines:
        return ok("nothing to compare")
    partly = {
        node.metadata.name: [name for name in pools if not nodes.built_in(node, name)]
        for node in machines
        if not all(nodes.built_in(node, name) for name in pools)
    }
    bare = [f"{name} lacks {sight.listed(lacking, 2)}" for name, lacking in partly.items() if len(lacking) < len(pools)]
    none = [name for name, lacking in partly.items() if len(lacking) == len(pools)]
    if bare or none:
        told = [*bare, *([f"{sight.listed(none, 4)} lack all of them"] if none else [])]
        return warn(f"{len(partly)} of {len(machines)} nodes with accelerators: {sight.listed(told, 4)}")
    return ok(sight.counted(len(machines), "node"))


def _devices(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    document = seen.policy
    assert document is not None  # noqa: S101 - there is a fabric
    unknown: dict[str, list[str]] = {}
    for node in _with_rails(seen, fabric):
        shape = selectors.shape_of(document, node.metadata.labels)
        own = shape.devices if shape else {}
        for rail in fabric.rails:
            if not own.get(rail.name, rail.device):
                unknown.setdefault(rail.name, []).append(node.metadata.name)
    if unknown:
        told = [f"{rail} on {sight.listed(where, 2)}" for rail, where in unknown.items()]
        return warn(f"no RDMA device is known for {sight.listed(told, 3)}: NCCL_IB_HCA is left out there")
    return ok()


def _domains(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    keys = presets.domains(fabric.placement)
    if not keys:
        return skip("the fabric names no domains: all nodes count as equally near")
    if fabric.placement.preset == "volcano" and not fabric.placement.domains:
        return skip("its domains are HyperNodes")
    rails = tuple(rail.name for rail in fabric.rails)
    machines = _with_rails(seen, fabric)
    bare = [node.metadata.name for node in machines if not _labelled(node, keys[0], rails)]
    if not bare:
        return ok(f"{len(machines)} nodes have {keys[0]}")
    state = fail if len(bare) == len(machines) else warn
    return state(f"{len(bare)} of {len(machines)} nodes have no label {keys[0]}: {sight.listed(bare, 3)}")


def _labelled(node: views.Node, key: str, rails: tuple[str, ...]) -> bool:
    return all(each in node.metadata.labels for each in topology.per_rail(key, rails))


def _hypernodes(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    if fabric.placement.preset != "volcano" or fabric.placement.domains:
        return skip("its domains are no HyperNodes")
    if "hypernodes" in seen.unknown:
        return fail("the API server knows no HyperNode (topology.volcano.sh)")
    if not seen.all("hypernodes"):
        return fail("there is no HyperNode")
    tree = hypernodes.Tree()
    tree.replace(seen.all("hypernodes"))
    problems = tree.problems({node.metadata.name: node.metadata.labels for node in seen.all("nodes")})
    outside = [
        n.metadata.name for n in _with_rails(seen, fabric) if not tree.values(n.metadata.name, n.metadata.labels)
    ]
    if outside:
        problems = (*problems, f"{len(outside)} nodes are in no HyperNode: {sight.listed(outside, 3)}")
    return warn(sight.listed(problems, 3)) if problems else ok(sight.counted(len(seen.all("hypernodes")), "HyperNode"))


def _numa(seen: sight.Seen, fabric: Fabric) -> model.Verdict:
    if fabric.placement.numa != "required":
        return skip(f"numa is {fabric.placement.numa}")
    document = seen.policy
    assert document is not None  # noqa: S101 - there is a fabric
    reported = {each.metadata.name for each in seen.all("topologies")}
    blind = []
    for node in _with_rails(seen, fabric):
        shape = selectors.shape_of(document, node.metadata.labels)
        if node.metadata.name not in reported and not (shape and shape.numa):
            blind.append(node.metadata.name)
    if blind:
        return fail(
            f"of {sight.listed(blind, 3)} ({len(blind)} nodes) nothing tells which rails are near which accelerators"
        )
    return ok(f"{len(reported)} NodeResourceTopologies")


def _shapes(seen: sight.Seen) -> model.Verdict:
    document = seen.policy
    if document is None or not document.node_shapes:
        return skip("the policy has no nodeShapes")
    machines = nodes.accelerated(seen)
    if not machines:
        return skip("no node has accelerators")
    used = {shape.name for node in machines if (shape := selectors.shape_of(document, node.metadata.labels))}
    unused = [shape.name for shape in document.node_shapes if shape.name not in used]
    shapeless = [n.metadata.name for n in machines if selectors.shape_of(document, n.metadata.labels) is None]
    if shapeless:
        return warn(
            f"{len(shapeless)} of {len(machines)} nodes with accelerators match no shape: {sight.listed(shapeless, 3)}"
        )
    if unused:
        return warn(f"no node matches {sight.listed(unused)}")
    return ok(f"{sight.counted(len(machines), 'node')}, {sight.counted(len(used), 'shape')}")


def _with_rails(seen: sight.Seen, fabric: Fabric) -> tuple[views.Node, ...]:
    """Nodes that have accelerators and, where the fabric has pools, one of these."""
    pools = _resources(seen, fabric)
    machines = nodes.accelerated(seen)
    return tuple(node for node in machines if not pools or any(nodes.built_in(node, name) for name in pools))


def _resources(seen: sight.Seen, fabric: Fabric) -> list[str]:
    found = (resource_of(seen, rail) for rail in fabric.rails)
    return list(dict.fromkeys(each for each in found if each))


def _network(seen: sight.Seen, qualified: str | None) -> Any | None:
    return next((each for each in seen.all("networks") if sight.name_of(each) == qualified), None)


def rows() -> Iterator[Row]:
    """The group `rails`: most rows once a fabric."""
    for anchor, name, judge, hint, reads, needs in _ROWS:
        yield Row(anchor, name, judge, hint, ("policy", *reads), ("policy-valid", *needs))


_ROWS: tuple[tuple[str, str, model.Judge, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("rail-networks", "every rail's network exists", _fabrics(_networks),
     f"create it, or mend its name: kubectl get net-attach-def -A; {_EDIT}", ("networks",), ("multus",)),
    ("rail-configurations", "every network's configuration can be read", _fabrics(_configurations),
     "kubectl -n NAMESPACE edit net-attach-def NAME", ("networks",), ("rail-networks",)),
    ("rail-pools", "networks and policy name the same device pools", _fabrics(_pools),
     f"make both the same: {_EDIT}, or annotation {names.NAD_RESOURCE_NAME} of the network", ("networks",),
     ("rail-networks",)),
    ("rail-offered", "nodes offer every rail's device pool", _fabrics(_offered),
     "look at the device plugin's pods and configuration; to see: kubectl describe node NODE", ("nodes",),
     ()),
    ("rail-dead", "no node has lost all devices of a rail", _fabrics(_dead),
     "look at the NIC's link and the device plugin's log on that node; to see: kubectl describe node NODE", ("nodes",),
     ("rail-offered",)),
    ("rail-missing", "every node with accelerators has every rail", _fabrics(_bare),
     "install the device plugin there, or take the node out of training: kubectl taint node NODE rails=none:NoSchedule",
     ("nodes",), ("rail-offered",)),
    ("node-shapes", "node shapes and nodes fit each other", _shapes,
     f"mend `nodeShapes[].match`: {_EDIT}; labels are shown by kubectl get nodes --show-labels", ("nodes",), ()),
    ("rail-devices", "the RDMA device of every rail is known on every node", _fabrics(_devices),
     f"give the rail a `device`, or the node's shape `devices`: {_EDIT}", ("nodes",), ()),
    ("domain-labels", "nodes say which leaf they are in", _fabrics(_domains),
     "label the nodes (topograph does it), or mend `placement.domains`: kubectl label node NODE KEY=LEAF", ("nodes",),
     ()),
    ("hypernodes", "HyperNodes describe the nodes' leaves", _fabrics(_hypernodes),
     "kubectl get hypernodes; Volcano's topology discovery makes them", ("hypernodes", "nodes"), ()),
    ("numa-topologies", "it is known which rails are near which accelerators", _fabrics(_numa),
     "deploy the NodeResourceTopology exporter, or give the node's shape `numa`: " + _EDIT, ("topologies", "nodes"),
     ()),
)  # fmt: skip
