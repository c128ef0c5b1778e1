"""Reports on the cluster: devices of rails in metrics, overcommitted ones also in the log.

Devices are counted between requests in batches of nodes, because that visits all nodes; a scrape reads the last count.
`railwright.fabric.placement.state.fabric_report` counts devices.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from extender import state as states
from railwright.fabric import intent
from railwright.fabric.placement.state import fabric_report
from railwright.fabric.policy import model
from railwright.serving import metrics

_LOG = logging.getLogger("railwright.extender")
_INTERVAL_SECONDS = 15.0  # a common scrape interval of Prometheus
_BATCH_NODES = 100  # nodes counted before yielding to the event loop (~0.5 ms with 8 rails)
_FIX_OVERCOMMITTED = (
    "a NIC failed under its pod, a device plugin is restarting, or two schedulers allocated the same device: "
    "delete a failing pod"
)


class RailGauges:
    """Counts the devices of rails."""

    def __init__(
        self, state: states.State, counters: metrics.ExtenderMetrics, policy: Callable[[], model.Policy | None]
    ) -> None:
        self._state, self._counters, self._policy = state, counters, policy
        self._overcommitted: Mapping[tuple[str, str], int] = {}  # by fabric and rail
        self._counted_version: tuple[int, dict[str, Mapping[str, str]]] | None = None

    async def run(self) -> None:
        """Count until cancelled. The log then has overcommitted devices even if nothing scrapes the metrics."""
        while True:
            await self.count()
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def count(self) -> None:
        """Count once, if anything has changed."""
        if (policy := self._policy()) is None:
            return
        pools = {
            name: fabric_report.name_pools(intent.fill_resources(name, fabric, self._state.pools))
            for name, fabric in policy.document.fabrics.items()
        }
        if (version := (self._state.cluster.version, pools)) == self._counted_version:
            return
        resources = tuple({resource for rail_by_resource in pools.values() for resource in rail_by_resource})
        device_counts: Counter[tuple[str, str]] = Counter()
        overcommitted: Counter[str] = Counter()
        missing: dict[str, Counter[str]] = {name: Counter() for name in pools}
        # Nodes may change between two batches. The version was read before, so such a change leads to another count.
        nodes = tuple(self._state.cluster.nodes.values())
        for first in range(0, len(nodes), _BATCH_NODES):
            batch = nodes[first : first + _BATCH_NODES]
            device_counts.update(fabric_report.count_devices(batch, self._state.cluster, resources))
            overcommitted.update(fabric_report.count_overcommitted(batch, self._state.cluster, resources))
            for name, rail_by_resource in pools.items():
                missing[name].update(fabric_report.count_missing(batch, rail_by_resource))
            await asyncio.sleep(0)
        self._counted_version = version
        self._counters.rail_devices.clear()
        before, self._overcommitted = self._overcommitted, {}
        for name, rail_by_resource in pools.items():
            for resource, rail in rail_by_resource.items():
                counts = {state: device_counts[resource, state] for state in fabric_report.State}
                counts[fabric_report.State.MISSING] = missing[name][resource]
                for state, amount in (*counts.items(), ("overcommitted", overcommitted[resource])):
                    self._counters.rail_devices.labels(name, rail, state).set(amount)
                self._overcommitted = {**self._overcommitted, (name, rail): overcommitted[resource]}
                if overcommitted[resource] > before.get((name, rail), 0):
                    fields = {"fabric": name, "rail": rail, "devices": overcommitted[resource]}
                    _LOG.warning("devices are overcommitted", extra={"fields": {**fields, "fix": _FIX_OVERCOMMITTED}})
