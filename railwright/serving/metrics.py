"""Every metric of both servers: names, labels, help texts and buckets. Pods and namespaces are never labels.

Each server has its own registry, so that two servers of one process (the demo, the tests) count separately.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import prometheus_client
from prometheus_client import Counter, Gauge, Histogram, exposition

from railwright.fabric import version

PREFIX = "railwright_"
# seconds; a review takes a tenth of a millisecond; the API server waits 5 s, a scheduler 10 s
_LATENCIES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
# omits an unused `_created` series per metric
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

M = TypeVar("M", Counter, Gauge, Histogram)


class MetricDescription(NamedTuple):
    """What the runbook says of a metric. `name` is the name in queries."""

    name: str
    type: str  # counter, gauge or histogram
    labels: Sequence[str]
    text: str


class Metrics:
    """The metrics that both servers have."""

    def __init__(self, server: str) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.descriptions: list[MetricDescription] = []
        self.build_info = self._create_metric(
            Gauge, "build_info", "Always 1; the labels identify the running version.", ["version", "server"]
        )
        text = (
            "Answered AdmissionReviews or scheduler requests. If no handler got the request, `outcome` is the HTTP "
            "status. `path` is empty for an unknown path."
        )
        self.requests = self._create_metric(Counter, "requests", text, ["path", "outcome"])
        self.get_requests = functools.cache(self.requests.labels)  # each request asks, and `labels` takes 1 us
        text = "Time from the last byte of the request to the response."
        self.request_duration_seconds = self._create_metric(
            Histogram, "request_duration_seconds", text, ["path"], buckets=_LATENCIES
        )
        self.get_duration = functools.cache(self.request_duration_seconds.labels)
        self.events = self._create_metric(Counter, "events", "Kubernetes Events by result.", ["outcome"])
        text = "Time at which the serving certificate expires; +Inf without one."
        self.certificate_expiry_timestamp_seconds = self._create_metric(
            Gauge, "certificate_expiry_timestamp_seconds", text
        )
        text = "1 if the newest policy is in force, 0 if it is invalid."
        self.policy_valid = self._create_metric(Gauge, "policy_valid", text)
        text = "Always 1; the label is the digest of the policy in force."
        self.policy_info = self._create_metric(Gauge, "policy_info", text, ["digest"])
        text = "Time since the API server last sent a list, an event or a bookmark for a cache."
        self.cache_age_seconds = self._create_metric(Gauge, "cache_age_seconds", text, ["kind"])
        self.cache_objects = self._create_metric(Gauge, "cache_objects", "Objects in a cache.", ["kind"])
        text = (
            "Restarts of watches, by reason. The reason `skipped` counts objects that were skipped, because they "
            "cannot be decoded or have too many values."
        )
        self.watch_failures = self._create_metric(Counter, "watch_failures", text, ["kind", "reason"])
        self.certificate_expiry_timestamp_seconds.set(math.inf)  # without a certificate no alert may fire
        self.build_info.labels(version.VERSION, server).set(1)
        prometheus_client.ProcessCollector(registry=self.registry)

    def _create_metric(self, kind: type[M], name: str, text: str, labels: Sequence[str] = (), **options: Any) -> M:
        """Create a metric and its description. The client library appends _total to the names of counters."""
        suffix = "_total" if kind is Counter else ""
        self.descriptions.append(MetricDescription(f"{PREFIX}{name}{suffix}", kind.__name__.lower(), labels, text))
        return kind(PREFIX + name, text, labels, registry=self.registry, **options)

    def set_source_gauges(
        self,
        *,
        policy_valid: bool,
        policy_digest: str,
        caches: Iterable[tuple[str, float, int]],
    ) -> None:
        """Set the gauges of the policy and of the caches: (kind, age in seconds, objects)."""
        self.policy_valid.set(policy_valid)
        self.policy_info.clear()  # of an older one
        if policy_digest:
            self.policy_info.labels(policy_digest).set(1)
        self.cache_age_seconds.clear()  # of kinds that are no longer watched
        self.cache_objects.clear()
        for kind, age, objects in caches:
            self.cache_age_seconds.labels(kind).set(age)
            self.cache_objects.labels(kind).set(objects)

    def format_exposition(self) -> bytes:
        """Return the text of /metrics, in Prometheus's format."""
        return exposition.generate_latest(self.registry)


class WebhookMetrics(Metrics):
    """The common metrics, and those of admissions."""

    def __init__(self) -> None:
        super().__init__("webhook")
        labels = ["fabric", "role", "outcome"]
        self.webhook_injections = self._create_metric(Counter, "webhook_injections", "Opted-in pods.", labels)
        self.get_injections = functools.cache(self.webhook_injections.labels)
        self.webhook_refusals = self._create_metric(
            Counter, "webhook_refusals", "Rejected objects.", ["fabric", "reason"]
        )
        self.webhook_warnings = self._create_metric(
            Counter, "webhook_warnings", "Admission warnings, by reason code.", ["code"]
        )


class ExtenderMetrics(Metrics):
    """The common metrics, and those of placement: assumed pods, rejected nodes, gangs and rails."""

    def __init__(self) -> None:
        super().__init__("extender")
        text = "Assumed pods: placed by a scheduler, binding not observed yet."
        self.assumed_pods = self._create_metric(Gauge, "assumed_pods", text, ["state"])
        text = "Nodes that were filtered, or whose allocation was rejected, by reason code."
        self.extender_rejected_nodes = self._create_metric(Counter, "extender_rejected_nodes", text, ["code"])
        self.gangs = self._create_metric(Counter, "gangs", "Gangs that were placed, or never fit, by state.", ["state"])
        text = "Gangs with at least one unbound pod."
        self.gangs_waiting = self._create_metric(Gauge, "gangs_waiting", text)
        text = "Time since the first pod of the longest waiting gang was seen."
        self.gang_longest_wait_seconds = self._create_metric(Gauge, "gang_longest_wait_seconds", text)
        text = "Modelled bandwidth of placed gangs, relative to the best possible when the last pod was bound."
        self.gang_attained_ratio = self._create_metric(Histogram, "gang_attained_ratio", text, buckets=_SHARES)
        text = (
            "Devices of a rail on all nodes, by state, from device plugins and from ResourceSlices. `busy` is used by "
            "a bound pod or held by a claim, `dead` is unhealthy or tainted, `unschedulable` is unused on a cordoned "
            "node. `missing` counts nodes that have devices of other rails only, `overcommitted` devices "
            "that bound pods request beyond what their nodes offer."
        )
        self.rail_devices = self._create_metric(Gauge, "rail_devices", text, ["fabric", "rail", "state"])
