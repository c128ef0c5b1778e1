"""Reports expressions of DeviceClasses, of the policy and of claims of which it is unknown which devices they select.

Such a device is no reason to refuse a node: kube-scheduler's allocator decides. The report is a gauge, an Event on the
object, and a line in the log. `railwright check` has a row.
"""

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from extender import state as states
from railwright.cluster import events, expression_process, installed_names
from railwright.fabric.claims import resource_names
from railwright.fabric.claims.comparisons import Match
from railwright.serving import metrics, server

UNKNOWN = "SelectorUnknown"  # stable
_INTERVAL_SECONDS = 15.0  # a common scrape interval of Prometheus
_REPEAT_SECONDS = 1800.0  # the API server keeps Events for about an hour
_MAX_TEXT = 300  # characters of an expression in a message
_LOG = logging.getLogger("railwright.extender")
_API_VERSION = "resource.k8s.io/v1"
_PENDING = "pending"
_STATES = (Match.UNKNOWN.value, Match.FAILS.value, _PENDING)
_NOT_UNDERSTOOD = (
    "railwright counts every device as selected and refuses no node for it; kube-scheduler decides. Compare attributes "
    "with constants instead"
)
_FIXES = {
    resource_names.DEVICE_CLASS: _NOT_UNDERSTOOD,
    resource_names.POLICY: _NOT_UNDERSTOOD,
    resource_names.TEMPLATE: "railwright does not count the request by rail; kube-scheduler decides",
    resource_names.CLAIM: "railwright does not count the request by rail; kube-scheduler decides",
}
_GUARD = "kube-scheduler cannot allocate devices where it meets such a device: test the attribute with has() first"


def build_tasks(
    state: states.State, counters: metrics.Metrics, poster: events.Events | None, is_leader: Callable[[], bool]
) -> Sequence[server.Task]:
    """Return the tasks that have expressions evaluated in another process, and that report the unknown ones."""
    answering = functools.partial(expression_process.keep_answering, state.list_questions, state.answer)
    return (answering, SelectorReports(state, counters, poster, is_leader).watch)


class SelectorReports:
    """Reports each expression of an object once in half an hour, while this process leads."""

    def __init__(
        self,
        state: states.State,
        counters: metrics.Metrics,
        poster: events.Events | None,
        is_leader: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state, self._counters, self._poster, self._is_leader = state, counters, poster, is_leader
        self._clock = clock
        self._reported: dict[tuple[str, str, str], float] = {}  # kind, identity and expression -> time

    async def watch(self) -> None:
        """Update the report until cancelled."""
        while True:
            self.update()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def update(self) -> None:
        """Update the gauge, and report what was not reported yet."""
        devices = self._state.cluster.claimed.inventory
        rows = devices.list_unknown()
        counts = Counter(row.match.value for row in rows)
        counts[_PENDING] = devices.results.count_pending
        for state in _STATES:
            self._counters.unknown_selectors.labels(state).set(counts[state])
        now = self._clock()
        due = {key: at for key, at in self._reported.items() if now - at < _REPEAT_SECONDS}
        for row in rows if self._is_leader() else ():
            key = (row.kind, row.metadata.identity, row.expression)
            if key not in due:
                due[key] = now
                self._report(row)
        self._reported = due

    def _report(self, row: resource_names.UnknownSelector) -> None:
        message, involved = describe(row), _refer_to(row)
        name = f"{involved.namespace}/{involved.name}".strip("/")
        fields = {"object": f"{involved.kind} {name}", "cause": message}
        _LOG.warning("selector of devices is unknown", extra={"fields": fields})
        if self._poster is not None:
            self._poster.post(involved, warning=True, reason=UNKNOWN, message=message)


def _refer_to(row: resource_names.UnknownSelector) -> events.Involved:
    """Return the object of an Event. The policy is that of the ConfigMap or of the FabricPolicy, both of one name."""
    if row.kind == resource_names.POLICY:
        namespace, name = installed_names.NAMESPACE, installed_names.POLICY
        return events.Involved(kind="ConfigMap", api_version="v1", namespace=namespace, name=name, uid="")
    metadata = row.metadata
    return events.Involved(
        kind=row.kind,
        api_version=_API_VERSION,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )


def describe(row: resource_names.UnknownSelector) -> str:
    """Return expression, device, cause and fix."""
    text = row.expression if len(row.expression) <= _MAX_TEXT else f"{row.expression[:_MAX_TEXT]}..."
    device = f" for device {row.device}" if row.device else ""
    if row.match is Match.FAILS:
        return f"the expression {text} fails{device}: {row.cause}; {_GUARD}"
    return f"it is unknown which devices the expression {text} selects{device}: {row.cause}; {_FIXES[row.kind]}"
