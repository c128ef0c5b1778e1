"""Every metric of both servers, one row each. Labels have bounded values; pods and namespaces are never labels."""

from collections.abc import Mapping
from typing import Literal

import msgspec
import prometheus_client as prometheus
from prometheus_client.exposition import generate_latest

VERSION = "0.1.0"
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
_COUNTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Row(msgspec.Struct, frozen=True):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str  # without the prefix; counters get _total from the library
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


ROWS = (
    Row("gauge", "build_info", "1, labelled with what runs.", ("version", "server")),
    Row("counter", "http_rejected", "Requests refused before any handler saw them.", ("code",)),
    Row("gauge", "event_loop_lag_seconds", "How late the event loop last woke up."),
    Row("gauge", "certificate_expiry_timestamp_seconds", "When the serving certificate ends."),
    Row("gauge", "policy_valid", "1 while the newest policy is in force, 0 while an older one stays for it."),
    Row("gauge", "policy_generation", "Good reads of the policy."),
    Row("gauge", "policy_info", "1, labelled with the digest of the policy in force.", ("digest",)),
    Row("gauge", "snapshot_generation", "Good reads of the snapshot file."),
    Row("gauge", "cache_age_seconds", "Since the source of a cache was last heard of.", ("kind",)),
    Row("gauge", "cache_objects", "Objects in a cache.", ("kind",)),
    Row("counter", "watch_restarts", "Watches begun anew, by reason.", ("kind", "reason")),
    Row("counter", "webhook_requests", "Reviews answered.", ("path", "outcome")),
    Row("histogram", "webhook_request_seconds", "From last byte to answer.", ("path",), _FAST),
    Row("histogram", "webhook_patch_operations", "Operations of a patch.", (), _COUNTS),
    Row("counter", "webhook_injections", "Opted-in pods.", ("fabric", "role", "outcome")),
    Row("counter", "webhook_refusals", "Pods refused, by reason.", ("reason",)),
    Row("counter", "webhook_warnings", "Admission warnings given."),
    Row("counter", "extender_requests", "Scheduler calls answered.", ("path", "outcome")),
    Row("histogram", "extender_request_seconds", "From last byte to answer.", ("path",), _FAST),
    Row("histogram", "extender_nodes", "Nodes judged by one call.", ("verb",), _COUNTS),
    Row("counter", "extender_unknown_nodes", "Nodes a scheduler offered that the cache has not seen."),
    Row("gauge", "ledger_entries", "Allocations announced and not yet seen bound.", ("state",)),
    Row("counter", "ledger_expired", "Announced allocations nobody ever confirmed."),
)

Metric = prometheus.Counter | prometheus.Gauge | prometheus.Histogram


class Metrics:
    """The metrics of one process, in a registry of its own."""

    def __init__(self, server: str) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._all: Mapping[str, Metric] = {row.name: self._made(row) for row in ROWS}
        self.set("build_info", 1, VERSION, server)
        prometheus.ProcessCollector(registry=self.registry)

    def _made(self, row: Row) -> Metric:
        name = f"railwright_{row.name}"
        if row.kind == "counter":
            return prometheus.Counter(name, row.help, row.labels, registry=self.registry)
        if row.kind == "gauge":
            return prometheus.Gauge(name, row.help, row.labels, registry=self.registry)
        return prometheus.Histogram(name, row.help, row.labels, buckets=row.buckets, registry=self.registry)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        metric = self._labelled(name, labels)
        assert isinstance(metric, prometheus.Counter), name  # noqa: S101 - a row of another kind is our own mistake
        metric.inc(by)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        metric = self._labelled(name, labels)
        assert isinstance(metric, prometheus.Gauge), name  # noqa: S101 - as above
        metric.set(value)

    def set_only(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge and forget its other label sets: for information that replaces itself."""
        metric = self._all[name]
        assert isinstance(metric, prometheus.Gauge), name  # noqa: S101 - as above
        metric.clear()
        metric.labels(*labels).set(value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        metric = self._labelled(name, labels)
        assert isinstance(metric, prometheus.Histogram), name  # noqa: S101 - as above
        metric.observe(value)

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)

    def _labelled(self, name: str, labels: tuple[str, ...]) -> Metric:
        metric = self._all[name]
        return metric.labels(*labels) if labels else metric
