"""Every metric of both servers, one row each, in a registry of its own. Pods and namespaces are never labels.

Owns names, labels, help and buckets. Nothing here knows when a number changes; nothing is global, so that two
servers of one process (the demo, the tests) count apart.
"""

import importlib.metadata
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeVar, cast, overload

import prometheus_client
from prometheus_client import exposition, multiprocess, registry, values

PREFIX = "railwright_"
CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable: where several processes count together
VERSION = importlib.metadata.version("railwright")

_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds
_OPERATIONS = (0, 1, 2, 5, 10, 20, 50, 100)  # a whole injection is 12 to 40 operations
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
_NODES = (1, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series each, asked for by nobody

Collector = TypeVar("Collector", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
ServerName = Literal["webhook", "extender"]
# How several workers' gauges become one, in prometheus_client's words; counters and histograms are always summed.
Merge = Literal["livemax", "livemin", "livesum"]


class _Row(Generic[Collector]):
    """A metric: a descriptor, so that `metrics.policy_valid` is typed and a metric is one row."""

    def __init__(
        self, kind: type[Collector], name: str, text: str, labels: Sequence[str], only: ServerName | None, **more: Any
    ) -> None:
        self.kind: type[Collector] = kind
        self.name, self.text, self.labels = name, text, labels
        self.only, self.more = only, more

    def build(self, into: registry.CollectorRegistry | None) -> Collector:
        name = PREFIX + self.name
        return self.kind(name, self.text, self.labels, registry=into, **self.more)

    @overload
    def __get__(self, owner: None, kind: type) -> "_Row[Collector]": ...
    @overload
    def __get__(self, owner: "Metrics", kind: type) -> Collector: ...
    def __get__(self, owner: "Metrics | None", kind: type) -> "_Row[Collector] | Collector":
        return self if owner is None else cast("Collector", owner.collector(self))


def _counter(name: str, text: str, *labels: str, only: ServerName | None = None) -> _Row[prometheus_client.Counter]:
    return _Row(prometheus_client.Counter, name, text, labels, only)


def _gauge(
    name: str, text: str, *labels: str, only: ServerName | None = None, merge: Merge = "livemax"
) -> _Row[prometheus_client.Gauge]:
    return _Row(prometheus_client.Gauge, name, text, labels, only, multiprocess_mode=merge)


def _histogram(
    name: str, text: str, *labels: str, buckets: Sequence[float], only: ServerName | None = None
) -> _Row[prometheus_client.Histogram]:
    return _Row(prometheus_client.Histogram, name, text, labels, only, buckets=buckets)


class Metrics:
    """The metrics of one server. `only` rows can be counted in by anyone but are shown by their server alone."""

    # fmt: off  # one row a metric: a table is read down its columns
    # --- every server ---------------------------------------------------------------------------------
    build_info = _gauge("build_info", "1, labelled with what runs.", "version", "server")
    http_rejected = _counter("http_rejected", "Requests refused before any handler saw them.", "code")
    connections = _gauge("connections", "Open connections of the service port.", merge="livesum")
    event_loop_lag_seconds = _gauge("event_loop_lag_seconds", "Worst delay of the event loop in the last half minute.")
    certificate_expiry = _gauge(
        "certificate_expiry_timestamp_seconds", "When the serving certificate ends.", merge="livemin"
    )
    policy_valid = _gauge(
        "policy_valid", "1 while the newest policy is in force, 0 while an older one stays.", merge="livemin"
    )
    policy_generation = _gauge("policy_generation", "Good reads of the policy.", merge="livemin")
    policy_info = _gauge("policy_info", "1, labelled with the digest of the policy in force.", "digest")
    snapshot_generation = _gauge("snapshot_generation", "Good reads of the snapshot file.", merge="livemin")
    cache_age_seconds = _gauge("cache_age_seconds", "Since the source of a cache was last heard of.", "kind")
    cache_objects = _gauge("cache_objects", "Objects in a cache.", "kind")
    watch_restarts = _counter("watch_restarts", "Watches begun anew, by reason.", "kind", "reason")
    watch_skipped = _counter("watch_skipped", "Objects left out because they could not be read.", "kind")
    # --- webhook --------------------------------------------------------------------------------------
    webhook_requests = _counter("webhook_requests", "Reviews answered.", "path", "outcome", only="webhook")
    webhook_request_seconds = _histogram(
        "webhook_request_seconds", "From last byte to answer.", "path", buckets=_FAST, only="webhook"
    )
    webhook_patch_operations = _histogram(
        "webhook_patch_operations", "Operations of a patch.", buckets=_OPERATIONS, only="webhook"
    )
    webhook_injections = _counter(
        "webhook_injections", "Pods that opted in.", "fabric", "role", "outcome", only="webhook"
    )
    webhook_workloads = _counter(
        "webhook_workloads", "Workloads asked about, for their pod templates.", "kind", "outcome", only="webhook"
    )
    webhook_refusals = _counter("webhook_refusals", "What was refused, and why.", "fabric", "reason", only="webhook")
    webhook_warnings = _counter("webhook_warnings", "Admission warnings given.", only="webhook")
    webhook_events = _counter("webhook_events", "Kubernetes Events, by what became of them.", "outcome", only="webhook")
    # --- extender -------------------------------------------------------------------------------------
    extender_requests = _counter("extender_requests", "Scheduler calls answered.", "path", "outcome", only="extender")
    extender_request_seconds = _histogram(
        "extender_request_seconds", "From last byte to answer.", "path", buckets=_FAST, only="extender"
    )
    extender_nodes = _histogram("extender_nodes", "Nodes judged by one call.", "verb", buckets=_NODES, only="extender")
    extender_unknown_nodes = _counter(
        "extender_unknown_nodes", "Nodes offered that the cache has not seen.", only="extender"
    )
    extender_events = _counter("extender_events", "Volcano's allocate and deallocate events.", "verb", only="extender")
    ledger_entries = _gauge("ledger_entries", "Allocations announced and not yet seen bound.", "state", only="extender")
    nodes_without_domain = _gauge(
        "nodes_without_domain", "Nodes of a fabric that have no value of a domain.", "domain", only="extender"
    )
    ledger_expired = _counter("ledger_expired", "Announced allocations nobody ever confirmed.", only="extender")
    gangs = _counter(
        "gangs", "Gangs placed, by leaves and bandwidth against what was possible; or not.", "outcome", only="extender"
    )
    gang_bandwidth = _histogram(
        "gang_bandwidth", "Modelled bandwidth of placed gangs, of the whole.", buckets=_SHARES, only="extender"
    )
    leader = _gauge("leader", "1 while this process answers schedulers, 0 while it stands by.", only="extender")
    leader_transitions = _counter(
        "leader_transitions", "Times this process began or ceased to answer schedulers.", only="extender"
    )
    extender_notices = _counter(
        "extender_notices", "Kubernetes Events, by what became of them.", "outcome", only="extender"
    )
    # fmt: on

    def __init__(self, server: ServerName) -> None:
        self.registry = registry.CollectorRegistry()
        rows = [row for row in vars(Metrics).values() if isinstance(row, _Row)]
        self._collectors: dict[str, Any] = {
            row.name: row.build(self.registry) for row in rows if row.only in (None, server)
        }
        self._requests = self.webhook_requests if server == "webhook" else self.extender_requests
        self._seconds = self.webhook_request_seconds if server == "webhook" else self.extender_request_seconds
        self._answered: dict[tuple[str, str], tuple[prometheus_client.Counter, prometheus_client.Histogram]] = {}
        self._digest = ""
        self.certificate_expiry.set(math.inf)  # without a certificate nothing ends, and no alert should say so
        self.build_info.labels(VERSION, server).set(1)
        if not _sharing():  # its own process's memory, files and CPU; it cannot tell of several
            prometheus_client.ProcessCollector(registry=self.registry)

    def collector(self, row: _Row[Any]) -> Any:
        """What counts for a row; the other server's rows count into nothing that is shown."""
        if row.name not in self._collectors:
            self._collectors[row.name] = row.build(None)
        return self._collectors[row.name]

    def answered(self, path: str, outcome: str, seconds: float) -> None:
        """Count a request of this server by the route's path and what its handler made of it."""
        request = self._answered.get((path, outcome))
        if request is None:  # looking a child up costs more than counting
            request = self._requests.labels(path, outcome), self._seconds.labels(path)
            self._answered[path, outcome] = request
        request[0].inc()
        request[1].observe(seconds)

    def show_policy(self, digest: str) -> None:
        """Make `digest` the one that policy_info shows."""
        if _sharing():  # labels cannot be removed from shared files; 0 says that it is over
            if self._digest:
                self.policy_info.labels(self._digest).set(0)
        else:
            self.policy_info.clear()
        self._digest = digest
        self.policy_info.labels(digest).set(1)

    def show_sources(
        self,
        *,
        policy_valid: bool,
        policy_generation: int,
        policy_digest: str | None,
        snapshot_generation: int | None,
        caches: Iterable[tuple[str, float, int]],
    ) -> None:
        """Set the gauges of the policy and of the caches: (kind, age in seconds, objects); None is not shown."""
        self.policy_valid.set(policy_valid)
        self.policy_generation.set(policy_generation)
        if policy_digest is not None:
            self.show_policy(policy_digest)
        if snapshot_generation is not None:
            self.snapshot_generation.set(snapshot_generation)
        for kind, age, objects in caches:
            self.cache_age_seconds.labels(kind).set(age)
            self.cache_objects.labels(kind).set(objects)

    def exposition(self) -> bytes:
        """The text of /metrics."""
        return exposition.generate_latest(self.registry)


def workers_exposition(directory: str) -> bytes:
    """The text of /metrics for all workers that count into `directory`."""
    merged = registry.CollectorRegistry()
    multiprocess.MultiProcessCollector(merged, path=directory)  # type: ignore[no-untyped-call]  # theirs
    return exposition.generate_latest(merged)


def share(directory: str) -> None:
    """From here on count into files of `directory`, so that the processes of one server can be added up.

    prometheus_client chooses that once, when it is imported; we know it later, so the choice is made again. Metrics
    built earlier stay private.
    """
    os.environ[DIRECTORY] = directory
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]  # theirs


def _sharing() -> bool:
    return DIRECTORY in os.environ
