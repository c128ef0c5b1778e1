"""Reports on the nodes of a fabric, for metrics: the devices of each rail by state.

A device counts as dead if it is in capacity but not in allocatable: its plugin reports it unhealthy or does not run, or
its slice taints it. Devices of claims count as those of device plugins. Rails that share a pool
are counted together, because the rail of an allocated device is unknown.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from railwright.fabric import intent, resources
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.policy import model


class State(enum.StrEnum):
    """The state of a device."""

    FREE = "free"
    BUSY = "busy"  # requested by a bound pod, or held by a claim
    DEAD = "dead"
    MISSING = "missing"  # not even in capacity, on a node that has devices of other rails; one for each rail and node
    UNSCHEDULABLE = "unschedulable"  # healthy and not busy, on a node that is cordoned or not Ready


def name_pools(fabric: model.Fabric) -> Mapping[str, str]:
    """Return the display name of the rails of each resource: `rail0`, or `rail0..rail3` if they share it."""
    pools = intent.group_by_resource(fabric.rails)
    return {resource: intent.format_rails(rails) for resource, rails in pools.items()}


def count_devices(
    nodes: Iterable[object_info.NodeInfo], cluster: cluster_state.ClusterState, resource_names: Sequence[str]
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


def count_missing(nodes: Iterable[object_info.NodeInfo], resource_names: Collection[str]) -> Counter[str]:
    """Count the nodes without a device of a rail that have devices of other rails, by resource.

    `resource_names` are those of one fabric.
    """
    counts: Counter[str] = Counter()
    for node in nodes:
        offered = [name for name in resource_names if node.capacity.get(name, 0) or node.allocatable.get(name, 0)]
        if offered and len(offered) < len(resource_names):
            counts.update(set(resource_names).difference(offered))
    return counts


def count_overcommitted(
    nodes: Iterable[object_info.NodeInfo], cluster: cluster_state.ClusterState, resource_names: Sequence[str]
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
