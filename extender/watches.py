"""Lists the kinds that placement needs, watched or read from a snapshot, each with its sink."""

from typing import Any

from extender import state as states
from railwright.cluster import resources, sinks, sources
from railwright.fabric.workloads import gang_sizes


def list_watches(state: states.State, *, pods: sinks.Sink[Any] | None = None) -> list[sources.WatchSpec]:
    """Return a watch for each kind. `pods` is a second sink of pods."""
    state_pods = states.Pods(state)
    table: list[tuple[resources.Kind, str, sinks.Sink[Any]]] = [
        (resources.NODES, "Node", states.Nodes(state)),
        (resources.PLACED_PODS, "Pod", state_pods if pods is None else sinks.Both(state_pods, pods)),
        (resources.NADS, "NetworkAttachmentDefinition", states.Networks(state)),
        (resources.HYPER_NODES, "HyperNode", states.HyperNodes(state)),
        (resources.NODE_TOPOLOGIES, "NodeResourceTopology", states.NodeTopologies(state)),
    ]
    table += [
        (resources.GANG_SIZES[kind.name], kind.snapshot_kind, states.Sizes(state, kind))
        for kind in gang_sizes.SIZE_KINDS
    ]
    large = (resources.NODES, resources.PLACED_PODS)  # applied gradually: a partial cluster state is still consistent
    return [
        sources.WatchSpec(kind=kind, snapshot_kind=snapshot, sink=sink, gradual=kind in large)
        for kind, snapshot, sink in table
    ]
