"""Finds nodes without topology labels, for the operator to fix: such nodes are used last.

Only nodes with an accelerator or a rail device of the fabric count. For a preset, only the levels that this cluster has
count, because a preset has the labels of the deepest known fabrics.
"""

from collections.abc import Mapping

from railwright.fabric import intent, topology
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import model, presets

MissingLabels = Mapping[str, tuple[str, ...]]
"""Domain key of the policy -> sorted names of the nodes without a value."""


def find_missing_labels(
    document: model.FabricPolicy, cluster: cluster_state.ClusterState, pools: Mapping[tuple[str, str], str]
) -> MissingLabels:
    """Return the nodes without topology labels of all fabrics; `pools` as in `intent.fill_resources`."""
    missing: dict[str, set[str]] = {}
    for name, policy_fabric in document.fabrics.items():
        fabric = intent.fill_resources(name, policy_fabric, pools)
        for key, names in _find_in_fabric(fabric, document, cluster).items():
            missing.setdefault(key, set()).update(names)
    return {key: tuple(sorted(names)) for key, names in missing.items()}


def _find_in_fabric(
    fabric: model.Fabric, document: model.FabricPolicy, cluster: cluster_state.ClusterState
) -> Mapping[str, list[str]]:
    keys = presets.list_domain_keys(fabric.placement)
    resources = {*document.accelerators, *(rail.resource for rail in fabric.rails if rail.resource)}
    missing: dict[str, list[str]] = {key: [] for key in keys}
    deepest = 0
    for node in cluster.nodes.values():
        node_resources = {
            name for name in resources if node.capacity.get(name, 0) > 0 or node.allocatable.get(name, 0) > 0
        }
        if not node_resources:
            continue
        node_rails = [rail.name for rail in fabric.rails if rail.resource is None or rail.resource in node_resources]
        domain = cluster.locate(node, keys, node_rails)
        for level, key in enumerate(keys):
            if domain[level]:
                deepest = max(deepest, level)
            if not domain[level] or not all(map(node.labels.get, _list_labels(key, node_rails))):
                missing[key].append(node.name)
    reported_keys = keys if fabric.placement.domains else keys[: deepest + 1]
    return {key: missing[key] for key in reported_keys}


def _list_labels(key: str, node_rails: list[str]) -> list[str]:
    """Return the labels that a node with these rails should have for a per-rail key."""
    return [*topology.expand_rails(key, node_rails)] if topology.RAIL in key else []
