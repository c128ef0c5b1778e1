"""Every metric of both servers, one row each, in a registry of its own. Pods and namespaces are never labels.

Owns names, labels, help and buckets. Nothing here knows when a number changes; nothing is global, so that two
servers of one process (the demo, the tests) count apart.
"""

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import prometheus_client
from prometheus_client import exposition, multiprocess, registry, values

from railwright.fabric import version
from railwright.serving.metric_row import PREFIX, Row, ServerName, counter, gauge, histogram

__all__ = ["CONTENT_TYPE", "DIRECTORY", "PREFIX", "Metrics", "share", "workers_exposition"]

CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's variable: where several processes count together

# seconds; a review takes a tenth of a millisecond, the API server waits 5 s, a scheduler 10
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATIONS = (0, 1, 2, 5, 10, 20, 50, 100)  # a whole injection is 12 to 40 operations
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
_NODES = (1, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series each, asked for by nobody


class Metrics:
    """The metrics of one server. `only` rows can be counted in by anyone but are shown by their server alone."""

    # fmt: off  # one row a metric: a table is read down its columns
    # --- every server ---------------------------------------------------------------------------------
    build_info = gauge("build_info", "1, labelled with what runs.", "version", "server")
    http_rejected = counter("http_rejected", "Requests refused before any handler saw them.", "code")
    connections = gauge("connections", "Open connections of the service port.", merge="livesum")
    event_loop_lag_seconds = gauge("event_loop_lag_seconds", "Worst delay of the event loop in the last half minute.")
    certificate_expiry = gauge(
        "certificate_expiry_timestamp_seconds", "When the serving certificate ends.", merge="livemin"
    )
    certificate_seconds_left = gauge(
        "certificate_seconds_left", "Until the serving certificate ends; +Inf without one.", merge="livemin"
    )
    certificate_lifetime_seconds = gauge(
        "certificate_lifetime_seconds", "From the begin of the serving certificate to its end; 0 without one."
    )
    policy_valid = gauge(
        "policy_valid", "1 while the newest policy is in force, 0 while an older one stays.", merge="livemin"
    )
    policy_generation = gauge("policy_generation", "Good reads of the policy.", merge="livemin")
    policy_info = gauge("policy_info", "1, labelled with the digest of the policy in force.", "digest")
    snapshot_generation = gauge("snapshot_generation", "Good reads of the snapshot file.", merge="livemin")
    cache_age_seconds = gauge("cache_age_seconds", "Since the source of a cache was last heard of.", "kind")
    cache_objects = gauge("cache_objects", "Objects in a cache.", "kind")
    watch_restarts = counter("watch_restarts", "Watches begun anew, by reason.", "kind", "reason")
    watch_skipped = counter("watch_skipped", "Objects left out because they could not be read.", "kind")
    # --- webhook --------------------------------------------------------------------------------------
    webhook_requests = counter("webhook_requests", "Reviews answered.", "path", "outcome", only="webhook")
    webhook_request_duration_seconds = histogram(
        "webhook_request_duration_seconds", "From last byte to answer.", "path", buckets=_FAST, only="webhook"
    )
    webhook_patch_operations = histogram(
        "webhook_patch_operations", "Operations of a patch.", buckets=_OPERATIONS, only="webhook"
    )
    webhook_injections = counter(
        "webhook_injections", "Pods that opted in.", "fabric", "role", "outcome", only="webhook"
    )
    webhook_skipped = counter("webhook_skipped", "Pods asked about that did not opt in.", only="webhook")
    webhook_workloads = counter(
        "webhook_workloads", "Workloads asked about, for their pod templates.", "kind", "outcome", only="webhook"
    )
    webhook_refusals = counter("webhook_refusals", "What was refused, and why.", "fabric", "reason", only="webhook")
    webhook_warnings = counter("webhook_warnings", "Admission warnings given.", only="webhook")
    webhook_events = counter("webhook_events", "Kubernetes Events, by what became of them.", "outcome", only="webhook")
    uninjected_pods = gauge(
        "uninjected_pods",
        "Pods that opted in, live, and were not injected: they may run over TCP.",
        "fabric",
        only="webhook",
    )
    # --- extender -------------------------------------------------------------------------------------
    leader = gauge("leader", "1 while this replica is the one that answers schedulers, else 0.", only="extender")
    leader_transitions = counter(
        "leader_transitions", "Times this process began or ceased to answer schedulers.", only="extender"
    )
    extender_requests = counter("extender_requests", "Scheduler calls answered.", "path", "outcome", only="extender")
    extender_request_duration_seconds = histogram(
        "extender_request_duration_seconds", "From last byte to answer.", "path", buckets=_FAST, only="extender"
    )
    extender_nodes = histogram("extender_nodes", "Nodes judged by one call.", "verb", buckets=_NODES, only="extender")
    extender_unknown_nodes = counter(
        "extender_unknown_nodes", "Nodes offered that the cache has not seen.", only="extender"
    )
    ledger_entries = gauge("ledger_entries", "Allocations announced and not yet seen bound.", "state", only="extender")
    nodes_without_domain = gauge(
        "nodes_without_domain", "Nodes of a fabric that have no value of a domain.", "domain", only="extender"
    )
    ledger_expired = counter("ledger_expired", "Announced allocations nobody ever confirmed.", only="extender")
    gangs = counter(
        "gangs", "Gangs placed, by leaves and bandwidth against what was possible; or not.", "outcome", only="extender"
    )
    gangs_waiting = gauge("gangs_waiting", "Gangs asked about whose pods are not all bound.", only="extender")
    gang_longest_wait_seconds = gauge(
        "gang_longest_wait_seconds", "Since the first question about the gang that waits longest.", only="extender"
    )
    gang_bandwidth_ratio = histogram(
        "gang_bandwidth_ratio",
        "Modelled bandwidth of placed gangs, of an ideal fabric's.",
        buckets=_SHARES,
        only="extender",
    )
    gang_attained_ratio = histogram(
        "gang_attained_ratio",
        "Modelled bandwidth of placed gangs, of the best possible when planned.",
        buckets=_SHARES,
        only="extender",
    )
    rail_devices = gauge(
        "rail_devices",
        "Devices of a rail on all nodes: free, busy, dead (unhealthy), unschedulable (and not busy).",
        "fabric",
        "rail",
        "state",
        only="extender",
    )
    overcommitted_devices = gauge(
        "overcommitted_devices", "Devices bound pods hold beyond what nodes offer.", "fabric", "rail", only="extender"
    )
    extender_notices = counter(
        "extender_notices", "Kubernetes Events, by what became of them.", "outcome", only="extender"
    )
    # fmt: on

    def __init__(self, server: ServerName) -> None:
        self.registry = registry.CollectorRegistry()
        rows = [row for row in vars(Metrics).values() if isinstance(row, Row)]
        self._collectors: dict[str, Any] = {
            row.name: row.build(self.registry) for row in rows if row.only in (None, server)
        }
        self._requests = self.webhook_requests if server == "webhook" else self.extender_requests
        self._seconds = (
            self.webhook_request_duration_seconds if server == "webhook" else self.extender_request_duration_seconds
        )
        self._answered: dict[tuple[str, str], tuple[prometheus_client.Counter, prometheus_client.Histogram]] = {}
        self._injected: dict[tuple[str, str, str], prometheus_client.Counter] = {}
        self._uninjected: set[str] = set()
        self._digest = ""
        self.show_certificate(math.inf, math.inf, 0.0)  # without one nothing ends, and no alert should say so
        self.leader.set(1)  # one that shares its work with nobody
        self.build_info.labels(version.VERSION, server).set(1)
        if not _sharing():  # its own process's memory, files and CPU; it cannot tell of several
            prometheus_client.ProcessCollector(registry=self.registry)

    def collector(self, row: Row[Any]) -> Any:
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

    def injected(self, fabric: str, role: str, outcome: str) -> None:
        """Count a pod that opted in. Fabrics are the policy's or `unknown`, so that there are few of these."""
        injection = self._injected.get((fabric, role, outcome))
        if injection is None:  # as above: four times the cost of counting
            injection = self._injected[fabric, role, outcome] = self.webhook_injections.labels(fabric, role, outcome)
        injection.inc()

    def show_certificate(self, ends: float, left: float, lifetime: float) -> None:
        """Set the gauges of the serving certificate: a Unix time, and two spans of seconds."""
        self.certificate_expiry.set(ends)
        self.certificate_seconds_left.set(left)
        self.certificate_lifetime_seconds.set(lifetime)

    def show_uninjected(self, pods: Mapping[str, int]) -> None:
        """Set how many pods are without their injection, by fabric; one that left the policy has none."""
        for fabric in self._uninjected - pods.keys():
            self.uninjected_pods.labels(fabric).set(0)
        self._uninjected |= pods.keys()
        for fabric, count in pods.items():
            self.uninjected_pods.labels(fabric).set(count)

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
