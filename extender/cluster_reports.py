"""Counts the devices of rails for metrics.

Counting visits all nodes, so it runs in batches between requests. A scrape reads the last count. A device is dead if it
is in capacity but not in allocatable: its plugin reports it unhealthy or does not run, or its ResourceSlice taints it.
Devices of claims count as those of device plugins. Rails that share a pool are counted together, because the rail of an
allocated device is unknown.
"""

import asyncio
import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from extender import state as states
from railwright.fabric import intent, resources
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.policy import model
from railwright.serving import metrics

_INTERVAL_SECONDS = 15.0  # a common scrape interval of Prometheus
_BATCH_NODES = 100  # nodes counted before yielding to the event loop (~2 ms with 8 rails and 20 pods each)


class DeviceState(enum.StrEnum):
    """The state of a rail's device: the value of the label `state` of the metric."""

    FREE = "free"
    BUSY = "busy"  # requested by a bound pod, or held by a claim
    DEAD = "dead"
    MISSING = "missing"  # not even in capacity, on a node that has devices of other rails; one for each rail and node
    UNSCHEDULABLE = "unschedulable"  # healthy and not busy, on a node that is cordoned or not Ready
    # requested by bound pods beyond the node's allocatable: a device failed while in use, its plugin restarts, or two
    # schedulers allocated it at the same time
    OVERCOMMITTED = "overcommitted"


def count_devices(
    nodes: Iterable[object_info.NodeInfo], cluster: cluster_state.ClusterState, resource_names: Collection[str]
) -> Counter[tuple[str, DeviceState]]:
    """Count the devices of a fabric's resources on these nodes, by resource and state."""
    counts: Counter[tuple[str, DeviceState]] = Counter()
    for node in nodes:
        used = cluster.get_used(node.name)
        idle_state = DeviceState.FREE if node.schedulable else DeviceState.UNSCHEDULABLE
        capacities = {name: max(node.capacity.get(name, 0), node.allocatable.get(name, 0)) for name in resource_names}
        has_devices = any(capacities.values())
        for name, capacity in capacities.items():
            allocatable, requested = node.allocatable.get(name, 0), used.get(name, 0)
            if not capacity:
                counts[name, DeviceState.MISSING] += has_devices
            if not capacity and not requested:
                continue
            busy = min(requested, capacity)
            for state, amount in (
                (DeviceState.BUSY, busy),
                (DeviceState.DEAD, capacity - max(allocatable, busy)),
                (idle_state, allocatable - busy),
                (DeviceState.OVERCOMMITTED, requested - allocatable),
            ):
                counts[name, state] += max(amount, 0) // resources.UNIT
    return counts


def name_pools(fabric: model.Fabric) -> Mapping[str, str]:
    """Return resource -> names of the rails that use it: `rail0`, or `rail0..rail3` if several share it."""
    pools = intent.group_by_resource(fabric.rails)
    return {resource: intent.format_rails(rails) for resource, rails in pools.items()}


class RailGauges:
    """Updates the gauges of the rails' devices every _INTERVAL_SECONDS."""

    def __init__(
        self, state: states.State, counters: metrics.ExtenderMetrics, policy: Callable[[], model.Policy | None]
    ) -> None:
        self._state, self._counters, self._policy = state, counters, policy
        self._counted: tuple[int, dict[str, Mapping[str, str]]] | None = None

    async def run(self) -> None:
        """Update the gauges repeatedly until cancelled."""
        while True:
            await self.update()
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def update(self) -> None:
        """Count the devices and set the gauges, unless cluster and policy are unchanged."""
        if (policy := self._policy()) is None:
            return
        pools = {
            name: name_pools(intent.fill_resources(name, fabric, self._state.pools))
            for name, fabric in policy.document.fabrics.items()
        }
        if (version := (self._state.cluster.version, pools)) == self._counted:
            return
        counts: dict[str, Counter[tuple[str, DeviceState]]] = {name: Counter() for name in pools}
        # Nodes may change between two batches. The version was read before, so such a change leads to another count.
        nodes = tuple(self._state.cluster.nodes.values())
        for first in range(0, len(nodes), _BATCH_NODES):
            batch = nodes[first : first + _BATCH_NODES]
            for name, rail_by_resource in pools.items():
                counts[name].update(count_devices(batch, self._state.cluster, rail_by_resource))
            await asyncio.sleep(0)
        self._counted = version
        self._counters.rail_devices.clear()
        for name, rail_by_resource in pools.items():
            for resource, rail in rail_by_resource.items():
                for state in DeviceState:
                    self._counters.rail_devices.labels(name, rail, state).set(counts[name][resource, state])
