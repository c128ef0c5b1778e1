"""Reports on the cluster in metrics and log: devices of rails, topology labels.

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

# --- devices of rails -----------------------------------------------------------------------------------------

_INTERVAL_SECONDS = 15.0  # a common scrape interval of Prometheus
_LOG = logging.getLogger("railwright.extender")
_FIX = (
    "a NIC failed under its pod, a device plugin is restarting, or two schedulers allocated the same device: "
    "delete a failing pod"
)
_BATCH_NODES = 100  # nodes counted before yielding to the event loop (~0.5 ms with 8 rails)


class RailGauges:
    """The gauges, and the label values that are set."""

    def __init__(
        self, state: states.State, counters: metrics.Metrics, policy: Callable[[], model.Policy | None]
    ) -> None:
        self._state, self._counters, self._policy = state, counters, policy
        self._labels: set[tuple[str, str, str]] = set()
        self._overcommitted: Mapping[tuple[str, str], int] = {}
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
        device_counts: Counter[tuple[str, fabric_report.State]] = Counter()
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
        self._update_overcommitted(
            {
                (name, rail): overcommitted[resource]
                for name, rail_by_resource in pools.items()
                for resource, rail in rail_by_resource.items()
            }
        )
        self._update_devices(
            {
                (name, rail, state): missing[name][resource]
                if state is fabric_report.State.MISSING
                else device_counts[resource, state]
                for name, rail_by_resource in pools.items()
                for resource, rail in rail_by_resource.items()
                for state in fabric_report.State
            }
        )

    def _update_overcommitted(self, overcommitted: Mapping[tuple[str, str], int]) -> None:
        """Update the gauge of overcommitted devices, and log each rail with an increase."""
        for removed_labels in self._overcommitted.keys() - overcommitted.keys():
            self._counters.overcommitted_devices.remove(*removed_labels)
        for (fabric, rail), devices in overcommitted.items():
            self._counters.overcommitted_devices.labels(fabric, rail).set(devices)
            if devices > self._overcommitted.get((fabric, rail), 0):
                _LOG.warning(
                    "devices are overcommitted",
                    extra={"fields": {"fabric": fabric, "rail": rail, "devices": devices, "fix": _FIX}},
                )
        self._overcommitted = overcommitted

    def _update_devices(self, counts_by_labels: dict[tuple[str, str, str], int]) -> None:
        for removed_labels in self._labels - counts_by_labels.keys():
            self._counters.rail_devices.remove(*removed_labels)
        for labels, amount in counts_by_labels.items():
            self._counters.rail_devices.labels(*labels).set(amount)
        self._labels = set(counts_by_labels)


# --- topology labels ------------------------------------------------------------------------------------------

_MAX_NAMED = 5  # nodes or problems in one log line


class TopologyLabelMonitor:
    """Tracks the last report. `get_cache_problem` returns "" once the caches are complete."""

    def __init__(
        self,
        state: states.State,
        counters: metrics.Metrics,
        *,
        get_policy: Callable[[], model.Policy | None],
        get_cache_problem: Callable[[], str],
    ) -> None:
        self._state, self._counters = state, counters
        self._get_policy, self._get_cache_problem = get_policy, get_cache_problem
        self._version: tuple[int, str] | None = None
        self._missing_labels: fabric_report.MissingLabels = {}
        self._problems: Sequence[str] = ()

    def update(self) -> None:
        """Update the gauge, and log what has changed."""
        policy = self._get_policy()
        if policy is None or self._get_cache_problem():
            return
        version = self._state.cluster.topology_version, policy.digest
        if version == self._version:
            return
        self._version = version
        missing = fabric_report.find_missing_labels(policy.document, self._state.cluster, self._state.pools)
        for level in self._missing_labels.keys() - missing.keys():
            self._counters.nodes_without_domain.remove(level)
        for level, nodes in missing.items():
            self._counters.nodes_without_domain.labels(level).set(len(nodes))
            self._log_change(level, nodes)
        self._missing_labels = missing
        self._log_problems(self._state.cluster.find_hyper_node_problems())

    def _log_change(self, level: str, nodes: Sequence[str]) -> None:
        if nodes == self._missing_labels.get(level, ()):
            return
        fields = {"domain": level, "nodes": len(nodes), "first": nodes[:_MAX_NAMED]}
        if nodes:
            fix = "label them, or correct placement.domains in the policy: nodes without a domain are used last"
            _LOG.warning("nodes without a domain", extra={"fields": {**fields, "fix": fix}})
        else:
            _LOG.info("every node has its domain", extra={"fields": fields})

    def _log_problems(self, problems: Sequence[str]) -> None:
        if problems and problems != self._problems:
            fields = {"problems": len(problems), "first": problems[:_MAX_NAMED]}
            _LOG.warning("invalid HyperNodes are ignored", extra={"fields": fields})
        self._problems = problems


# --- tasks ----------------------------------------------------------------------------------------------------


def build_tasks(gauges: RailGauges, labels: TopologyLabelMonitor) -> Sequence[server.Task]:
    """Return the task that keeps the reports up to date. The log then has them even if nothing scrapes the metrics."""

    async def watch() -> None:
        while True:
            labels.update()
            await gauges.count()
            await asyncio.sleep(_INTERVAL_SECONDS)

    return (watch,)
