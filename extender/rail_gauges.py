"""Keeps the gauges of every rail's devices up to date: free, busy, dead; and what pods hold beyond what there is.

Owns when they are counted: all nodes are looked at, so it is done between requests, some nodes at a time, and a scrape
reads what was counted last. What the states mean is `railwright.fabric.placement.rail_devices`'.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping

from extender import state as states
from railwright.fabric.placement import rail_devices, rails
from railwright.fabric.policy import model
from railwright.serving import metrics

_EVERY_SECONDS = 15.0  # as often as Prometheus commonly asks
_LOG = logging.getLogger("railwright.extender")
_FIX = (
    "a NIC died under its pod, a device plugin restarts, or two schedulers gave a device at once: end a pod that fails"
)
_AT_ONCE = 100  # nodes between two looks at the door: half a millisecond with eight rails


class RailGauges:
    """The gauge, and what of it was set."""

    def __init__(
        self, state: states.State, counters: metrics.Metrics, policy: Callable[[], model.Policy | None]
    ) -> None:
        self._state, self._counters, self._policy = state, counters, policy
        self._shown: set[tuple[str, str, str]] = set()
        self._beyond: Mapping[tuple[str, str], int] = {}
        self._seen: tuple[int, dict[str, Mapping[str, str]]] | None = None

    async def watch(self) -> None:
        """Count until cancelled."""
        while True:
            await self.count()
            await asyncio.sleep(_EVERY_SECONDS)

    async def count(self) -> None:
        """Count once, if anything has changed."""
        if (policy := self._policy()) is None:
            return
        pools = {
            name: rail_devices.pools(rails.counted(fabric, self._state.pools))
            for name, fabric in policy.document.fabrics.items()
        }
        if (seen := (self._state.fleet.generation, pools)) == self._seen:
            return
        wanted = tuple({resource for each in pools.values() for resource in each})
        found: Counter[tuple[str, rail_devices.State]] = Counter()
        beyond: Counter[str] = Counter()
        nodes = tuple(self._state.fleet.nodes.values())
        for first in range(0, len(nodes), _AT_ONCE):
            some = nodes[first : first + _AT_ONCE]
            found.update(rail_devices.count(some, self._state.fleet, wanted))
            beyond.update(rail_devices.overcommitted(some, self._state.fleet, wanted))
            await asyncio.sleep(0)
        self._seen = seen
        self._tell({(name, rail): beyond[resource] for name, each in pools.items() for resource, rail in each.items()})
        self._show(
            {
                (name, rail, state): found[resource, state]
                for name, each in pools.items()
                for resource, rail in each.items()
                for state in rail_devices.State
            }
        )

    def _tell(self, beyond: Mapping[tuple[str, str], int]) -> None:
        """Show what is held beyond what is offered; a line of the log for each rail where that became more."""
        for gone in self._beyond.keys() - beyond.keys():
            self._counters.overcommitted_devices.remove(*gone)
        for (fabric, rail), devices in beyond.items():
            self._counters.overcommitted_devices.labels(fabric, rail).set(devices)
            if devices > self._beyond.get((fabric, rail), 0):
                _LOG.warning(
                    "devices are overcommitted",
                    extra={"fields": {"fabric": fabric, "rail": rail, "devices": devices, "fix": _FIX}},
                )
        self._beyond = beyond

    def _show(self, amounts: dict[tuple[str, str, str], int]) -> None:
        for gone in self._shown - amounts.keys():
            self._counters.rail_devices.remove(*gone)
        for labels, amount in amounts.items():
            self._counters.rail_devices.labels(*labels).set(amount)
        self._shown = set(amounts)
