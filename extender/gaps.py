"""Tells the operator of nodes without a domain label and of HyperNodes that cannot be read: a gauge and the log.

Owns when it is told: once for every change, and not before the caches are complete. What a gap is, is
`railwright.fabric.placement.unlabelled`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from extender import state as states
from railwright.fabric.placement import unlabelled
from railwright.fabric.policy import model
from railwright.serving import metrics

_EVERY_SECONDS = 15.0  # all nodes are looked at, for a message that may wait
_NAMED = 5  # nodes or sentences in one line of the log
_LOG = logging.getLogger("railwright.extender")


class Gaps:
    """What was told last. `incomplete` is not "" while caches are: half a cluster would be all gaps."""

    def __init__(
        self,
        state: states.State,
        counters: metrics.Metrics,
        *,
        policy: Callable[[], model.Policy | None],
        incomplete: Callable[[], str],
    ) -> None:
        self._state, self._counters = state, counters
        self._policy, self._incomplete = policy, incomplete
        self._seen: tuple[int, str] | None = None
        self._told: unlabelled.Gaps = {}
        self._problems: Sequence[str] = ()

    async def watch(self) -> None:
        """Look for gaps until cancelled, for where nobody reads metrics."""
        while True:
            self.show()
            await asyncio.sleep(_EVERY_SECONDS)

    def show(self) -> None:
        """Bring the gauge and the log up to date."""
        policy = self._policy()
        if policy is None or self._incomplete():
            return
        seen = self._state.fleet.layout, policy.digest
        if seen == self._seen:
            return
        self._seen = seen
        found = unlabelled.gaps(policy.document, self._state.fleet, self._state.pools)
        for key in self._told.keys() - found.keys():
            self._counters.nodes_without_domain.remove(key)
        for key, nodes in found.items():
            self._counters.nodes_without_domain.labels(key).set(len(nodes))
            self._tell(key, nodes)
        self._told = found
        self._tell_problems(self._state.fleet.hyper_node_problems())

    def _tell(self, key: str, nodes: Sequence[str]) -> None:
        if nodes == self._told.get(key, ()):
            return
        fields = {"domain": key, "nodes": len(nodes), "first": nodes[:_NAMED]}
        if nodes:
            fix = "label them, or correct placement.domains in the policy: nodes without a domain are placed on last"
            _LOG.warning("nodes without a domain", extra={"fields": {**fields, "fix": fix}})
        else:
            _LOG.info("every node has its domain", extra={"fields": fields})

    def _tell_problems(self, problems: Sequence[str]) -> None:
        if problems and problems != self._problems:
            fields = {"problems": len(problems), "first": problems[:_NAMED]}
            _LOG.warning("HyperNodes were read over", extra={"fields": fields})
        self._problems = problems
