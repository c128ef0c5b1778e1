"""Counts the free, busy, dead and unschedulable devices of each rail, for metrics.

A device counts as dead if it is in capacity but not in allocatable: its plugin reports it unhealthy or does not run.
Rails that share a pool are counted together, because the rail of an allocated device is unknown.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import intent, resources
from railwright.fabric.placement.state import cluster_state, node_info
from railwright.fabric.policy import model


class State(enum.StrEnum):
    """The state of a device."""

    FREE = "free"
    BUSY = "busy"  # requested by a bound pod
    DEAD = "dead"
    UNSCHEDULABLE = "unschedulable"  # healthy and not busy, on a node that is cordoned or not Ready


def name_pools(fabric: model.Fabric) -> Mapping[str, str]:
    """Return the display name of the rails of each resource: `rail0`, or `rail0..rail3` if they share it."""
    pools = intent.group_by_resource(fabric.rails)
    return {resource: intent.format_rails(rails) for resource, rails in pools.items()}


def count(
    nodes: Iterable[node_info.NodeInfo], cluster: cluster_state.ClusterState, resource_names: Sequence[str]
) -> Counter[tuple[str, State]]:
    """Count the devices of these resources on these nodes, by resource and state."""
    counts: Counter[tuple[str, State]] = Counter()
    for node in nodes:
        used = cluster.get_used(node.name)
        for name in resource_names:
            allocatable = node.allocatable.get(name, 0)
            capacity = max(node.capacity.get(name, 0), allocatable)
            if not capacity:
                continue
            busy = min(used.get(name, 0), capacity)
            counts[name, State.BUSY] += busy // resources.UNIT
            counts[name, State.DEAD] += max(capacity - max(allocatable, busy), 0) // resources.UNIT
            idle_state = State.FREE if node.schedulable else State.UNSCHEDULABLE
            counts[name, idle_state] += max(allocatable - busy, 0) // resources.UNIT
    return counts


def count_overcommitted(
    nodes: Iterable[node_info.NodeInfo], cluster: cluster_state.ClusterState, resource_names: Sequence[str]
) -> Mapping[str, int]:
    """Count the devices that bound pods request beyond their node's allocatable, by resource; only counts above 0.

    Causes: a device failed while in use, its plugin restarts, or two schedulers allocated it at the same time.
    """
    counts: Counter[str] = Counter()
    for node in nodes:
        used = cluster.get_used(node.name)
        for name in resource_names:
            beyond = used.get(name, 0) - node.allocatable.get(name, 0)
            if beyond > 0:
                counts[name] += beyond // resources.UNIT
    return counts
