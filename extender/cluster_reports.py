"""Reports on the cluster: devices of rails in metrics, topology labels in the log.

Devices are counted between requests in batches of nodes, because that visits all nodes; a scrape reads the last count.
Missing topology labels and invalid HyperNodes are logged once for each change, and not before the caches are complete.
`railwright.fabric.placement.state.fabric_report` counts devices and finds nodes without labels.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from extender import state as states
from railwright.fabric import intent
from railwright.fabric.placement.state import fabric_report
from railwright.fabric.policy import model
from railwright.serving import metrics, server

_LOG = logging.getLogger("railwright.extender")
_INTERVAL_SECONDS = 15.0  # a common scrape interval of Prometheus
_BATCH_NODES = 100  # nodes counted before yielding to the event loop (~0.5 ms with 8 rails)
_MAX_NAMED = 5  # nodes or problems in one log line
_FIX_OVERCOMMITTED = (
    "a NIC failed under its pod, a device plugin is restarting, or two schedulers allocated the same device: "
    "delete a failing pod"
)
_FIX_DOMAIN = "label them, or correct placement.domains in the policy: nodes without a domain are used last"


class RailGauges:
    """Counts the devices of rails."""

    def __init__(
        self, state: states.State, counters: metrics.ExtenderMetrics, policy: Callable[[], model.Policy | None]
    ) -> None:
        self._state, self._counters, self._policy = state, counters, policy
        self._overcommitted: Mapping[tuple[str, str], int] = {}  # by fabric and rail
        self._counted_version: tuple[int, dict[str, Mapping[str, str]]] | None = None

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


class TopologyLabelMonitor:
    """Tracks the last report. `get_cache_problem` returns "" once the caches are complete."""

    def __init__(
        self,
        state: states.State,
        *,
        get_policy: Callable[[], model.Policy | None],
        get_cache_problem: Callable[[], str],
    ) -> None:
        self._state = state
        self._get_policy, self._get_cache_problem = get_policy, get_cache_problem
        self._version: tuple[int, str] | None = None
        self._missing_labels: fabric_report.MissingLabels = {}
        self._problems: Sequence[str] = ()

    def update(self) -> None:
        """Log what has changed."""
        policy = self._get_policy()
        if policy is None or self._get_cache_problem():
            return
        version = self._state.cluster.topology_version, policy.digest
        if version == self._version:
            return
        self._version = version
        missing = fabric_report.find_missing_labels(policy.document, self._state.cluster, self._state.pools)
        for level, nodes in missing.items():
            if nodes != self._missing_labels.get(level, ()):
                fields = {"domain": level, "nodes": len(nodes), "first": nodes[:_MAX_NAMED]}
                if nodes:
                    _LOG.warning("nodes without a domain", extra={"fields": {**fields, "fix": _FIX_DOMAIN}})
                else:
                    _LOG.info("every node has its domain", extra={"fields": fields})
        self._missing_labels = missing
        problems = self._state.cluster.find_hyper_node_problems()
        if problems and problems != self._problems:
            fields = {"problems": len(problems), "first": problems[:_MAX_NAMED]}
            _LOG.warning("invalid HyperNodes are ignored", extra={"fields": fields})
        self._problems = problems


def build_task(gauges: RailGauges, labels: TopologyLabelMonitor) -> server.Task:
    """Return the task that keeps the reports up to date. The log then has them even if nothing scrapes the metrics."""

    async def watch() -> None:
        while True:
            labels.update()
            await gauges.count()
            await asyncio.sleep(_INTERVAL_SECONDS)

    return watch
