"""Reports nodes without topology labels and invalid HyperNodes in a gauge and in the log.

Logs each change once, and nothing before the caches are complete. `railwright.fabric.placement.explain.missing_labels`
finds the nodes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from extender import state as states
from railwright.fabric.placement.state import fabric_report
from railwright.fabric.policy import model
from railwright.serving import metrics

_INTERVAL_SECONDS = 15.0  # each check visits all nodes, and the report is not urgent
_MAX_NAMED = 5  # nodes or problems in one log line
_LOG = logging.getLogger("railwright.extender")


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

    async def watch(self) -> None:
        """Update the report until cancelled, so that the log has it even if nothing scrapes the metrics."""
        while True:
            self.update()
            await asyncio.sleep(_INTERVAL_SECONDS)

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
