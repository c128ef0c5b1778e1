"""Lists the kinds that placement needs, watched or read from a snapshot, each with its sink."""

import functools
from collections.abc import Callable
from typing import Any

from extender import state as states
from railwright.cluster import resources, sinks, sources
from railwright.fabric.claims import inventory
from railwright.fabric.workloads import membership

_Row = tuple[resources.Kind, sinks.Sink[Any]]


def list_watches(
    state: states.State, *, pods: sinks.Sink[Any] | None = None, nodes: sinks.Sink[Any] | None = None
) -> list[sources.WatchSpec]:
    """Return a watch for each kind. `pods` and `nodes` are second sinks of these kinds."""
    cluster, state_pods = state.cluster, states.Pods(state)
    state_nodes: sinks.Sink[Any] = sinks.Functions(
        cluster.replace_nodes, cluster.upsert_node, lambda node: cluster.remove_node(node.metadata.name)
    )
    table: list[_Row] = [
        (resources.NODES, state_nodes if nodes is None else sinks.Both(state_nodes, nodes)),
        (resources.PLACED_PODS, state_pods if pods is None else sinks.Both(state_pods, pods)),
        (resources.NADS, states.Networks(state)),
        (
            resources.HYPER_NODES,
            sinks.Functions(
                cluster.replace_hyper_nodes,
                cluster.upsert_hyper_node,
                lambda hyper_node: cluster.remove_hyper_node(hyper_node.metadata.name),
            ),
        ),
        (
            resources.NODE_TOPOLOGIES,
            sinks.Functions(
                cluster.replace_topologies,
                cluster.upsert_topology,
                lambda report: cluster.remove_topology(report.metadata.name),
            ),
        ),
    ]
    table += _list_device_watches(state)
    table += [
        (
            resources.GANG_SIZES[kind.name],
            sinks.Functions(
                functools.partial(cluster.replace_sizes, kind),
                functools.partial(cluster.upsert_size, kind),
                functools.partial(cluster.remove_size, kind),
            ),
        )
        for kind in membership.SIZE_KINDS
    ]
    excerpts = {resources.RESOURCE_SLICES: cluster.claimed.inventory.share_slice}
    large = (resources.NODES, resources.PLACED_PODS)  # applied gradually: a partial cluster state is still consistent
    return [
        sources.WatchSpec(
            kind=kind,
            sink=sink,
            excerpt=excerpts.get(kind, sources.return_whole),
            gradual=kind in large,
        )
        for kind, sink in table
    ]


def _list_device_watches(state: states.State) -> list[_Row]:
    """Return the kinds of Dynamic Resource Allocation."""
    kinds, claims, templates = inventory.Inventory, states.Claims(state), states.ClaimTemplates(state)

    def change(apply: Callable[[inventory.Inventory, Any], set[str]]) -> Callable[[Any], None]:
        return lambda changed: state.cluster.change_devices(lambda devices: apply(devices, changed))

    return [
        (
            resources.DEVICE_CLASSES,
            sinks.Functions(change(kinds.replace_classes), change(kinds.upsert_class), change(kinds.remove_class)),
        ),
        (
            resources.RESOURCE_SLICES,
            sinks.Functions(change(kinds.replace_slices), change(kinds.upsert_slice), change(kinds.remove_slice)),
        ),
        (
            resources.DEVICE_TAINT_RULES,
            sinks.Functions(
                change(kinds.replace_taint_rules), change(kinds.upsert_taint_rule), change(kinds.remove_taint_rule)
            ),
        ),
        (resources.CLAIM_TEMPLATES, templates),
        (resources.RESOURCE_CLAIMS, claims),
    ]
