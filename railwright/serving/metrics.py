"""Every metric of both servers, one row each. Pods and namespaces are never labels.

Contains names, labels, help texts and buckets. Each server has its own registry, so that two servers of one process
(the demo, the tests) count separately.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

import prometheus_client
from prometheus_client import exposition, registry

from railwright.fabric import version

PREFIX = "railwright_"
CONTENT_TYPE = exposition.CONTENT_TYPE_LATEST

# seconds; a review takes a tenth of a millisecond; the API server waits 5 s, a scheduler 10 s
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_OPERATIONS = (0, 1, 2, 5, 10, 20, 50, 100)  # a complete injection has 12 to 40 operations
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98, 1.0)
_NODES = (1, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10000)

# omits an unused `_created` series per metric
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


Collector = TypeVar("Collector", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
ServerName = Literal["webhook", "extender"]
_KINDS: Mapping[type, str] = {
    prometheus_client.Counter: "counter",
    prometheus_client.Gauge: "gauge",
    prometheus_client.Histogram: "histogram",
}


class Owner(Protocol):
    """A class with rows as attributes."""

    def collector(self, row: "Row[Any]") -> Any:
        """Return the collector of a row."""


class Row(Generic[Collector]):
    """A metric, implemented as a descriptor so that `metrics.policy_valid` is typed and a metric is one row."""

    def __init__(
        self,
        kind: type[Collector],
        name: str,
        text: str,
        labels: Sequence[str],
        only: ServerName | None,
        **options: Any,
    ) -> None:
        self.kind: type[Collector] = kind
        self.name, self.text, self.labels = name, text, labels
        self.only, self.options = only, options

    @property
    def full_name(self) -> str:
        """Return the name in queries: the client appends _total to the name of a counter."""
        return PREFIX + self.name + ("_total" if self.kind is prometheus_client.Counter else "")

    @property
    def type_name(self) -> str:
        """Return the type as the exposition format names it."""
        return _KINDS[self.kind]

    def build(self, target: registry.CollectorRegistry | None) -> Collector:
        """Return a collector of this row, registered with `into` if that is not None."""
        name = PREFIX + self.name
        return self.kind(name, self.text, self.labels, registry=target, **self.options)

    @overload
    def __get__(self, owner: None, kind: type) -> "Row[Collector]": ...
    @overload
    def __get__(self, owner: Owner, kind: type) -> Collector: ...
    def __get__(self, owner: Owner | None, kind: type) -> "Row[Collector] | Collector":
        return self if owner is None else cast("Collector", owner.collector(self))


def counter(name: str, text: str, *labels: str, only: ServerName | None = None) -> Row[prometheus_client.Counter]:
    """Return the row of a counter."""
    return Row(prometheus_client.Counter, name, text, labels, only)


def gauge(name: str, text: str, *labels: str, only: ServerName | None = None) -> Row[prometheus_client.Gauge]:
    """Return the row of a gauge."""
    return Row(prometheus_client.Gauge, name, text, labels, only)


def histogram(
    name: str, text: str, *labels: str, buckets: Sequence[float], only: ServerName | None = None
) -> Row[prometheus_client.Histogram]:
    """Return the row of a histogram."""
    return Row(prometheus_client.Histogram, name, text, labels, only, buckets=buckets)


class Metrics:
    """The metrics of one server. A row with `only` is exposed by that server alone; in the other it is a no-op."""

    # --- every server ---------------------------------------------------------------------------------
    build_info = gauge("build_info", "Always 1; the labels identify the running version.", "version", "server")
    http_rejected = counter("http_rejected", "Requests rejected before they reached a handler.", "code")
    connections = gauge("connections", "Open connections on the service port and on --volcano-listen.")
    event_loop_lag_seconds = gauge("event_loop_lag_seconds", "Longest delay of the event loop in the last 30 seconds.")
    certificate_expiry = gauge("certificate_expiry_timestamp_seconds", "Time at which the serving certificate expires.")
    certificate_seconds_left = gauge(
        "certificate_seconds_left", "Time until the serving certificate expires; +Inf without one."
    )
    certificate_lifetime_seconds = gauge(
        "certificate_lifetime_seconds", "Validity period of the serving certificate; 0 without one."
    )
    policy_valid = gauge("policy_valid", "1 if the newest policy is in force, 0 if it is invalid and an older one is.")
    policy_generation = gauge("policy_generation", "Number of valid policies loaded since the start.")
    policy_info = gauge("policy_info", "Always 1; the label is the digest of the policy in force.", "digest")
    snapshot_generation = gauge("snapshot_generation", "Number of valid snapshot files loaded since the start.")
    cache_age_seconds = gauge("cache_age_seconds", "Time since the last contact with the source of a cache.", "kind")
    cache_objects = gauge("cache_objects", "Objects in a cache.", "kind")
    watch_restarts = counter("watch_restarts", "Watches that were restarted.", "kind", "reason")
    watch_skipped = counter("watch_skipped", "Watched objects skipped because they could not be decoded.", "kind")
    # --- webhook --------------------------------------------------------------------------------------
    webhook_requests = counter("webhook_requests", "AdmissionReviews answered.", "path", "outcome", only="webhook")
    webhook_request_duration_seconds = histogram(
        "webhook_request_duration_seconds",
        "Time from the last byte of the request to the response.",
        "path",
        buckets=_FAST,
        only="webhook",
    )
    webhook_patch_operations = histogram(
        "webhook_patch_operations", "Number of operations in a JSON patch.", buckets=_OPERATIONS, only="webhook"
    )
    webhook_injections = counter("webhook_injections", "Opted-in pods.", "fabric", "role", "outcome", only="webhook")
    webhook_skipped = counter("webhook_skipped", "Reviewed pods that had not opted in.", only="webhook")
    webhook_workloads = counter("webhook_workloads", "Reviewed workloads.", "kind", "outcome", only="webhook")
    webhook_refusals = counter("webhook_refusals", "Rejected objects.", "fabric", "reason", only="webhook")
    webhook_warnings = counter("webhook_warnings", "Admission warnings, by reason code.", "code", only="webhook")
    webhook_events = counter("webhook_events", "Kubernetes Events by result.", "outcome", only="webhook")
    claim_templates = counter(
        "claim_templates",
        "Writes of ResourceClaimTemplates by result: `created`, `removed`, `exists` (another replica was first) or "
        "`failed`.",
        "outcome",
        only="webhook",
    )
    claim_templates_missing = gauge(
        "claim_templates_missing", "ResourceClaimTemplates that pods wait for.", only="webhook"
    )
    uninjected_pods = gauge(
        "uninjected_pods",
        "Running or pending pods that opted in but were not injected: they may use TCP.",
        "fabric",
        only="webhook",
    )
    # --- extender -------------------------------------------------------------------------------------
    leader = gauge("leader", "1 if this replica is the leader and answers schedulers, otherwise 0.", only="extender")
    leader_transitions = counter(
        "leader_transitions", "Number of times this process gained or lost leadership.", only="extender"
    )
    extender_requests = counter("extender_requests", "Scheduler requests answered.", "path", "outcome", only="extender")
    extender_request_duration_seconds = histogram(
        "extender_request_duration_seconds",
        "Time from the last byte of the request to the response.",
        "path",
        buckets=_FAST,
        only="extender",
    )
    extender_nodes = histogram(
        "extender_nodes", "Number of nodes in a scheduler request.", "verb", buckets=_NODES, only="extender"
    )
    extender_unknown_nodes = counter(
        "extender_unknown_nodes", "Nodes in scheduler requests that the cache does not contain.", only="extender"
    )
    assumed_pods = gauge(
        "assumed_pods", "Assumed pods: placed by a scheduler, binding not observed yet.", "state", only="extender"
    )
    assumed_pods_unseen = gauge(
        "assumed_pods_unseen",
        "Announced pods that the API server has not shown; they use no devices, and end after 5 s.",
        only="extender",
    )
    nodes_without_domain = gauge(
        "nodes_without_domain", "Nodes of a fabric without the label of a topology domain.", "domain", only="extender"
    )
    extender_rejected_nodes = counter(
        "extender_rejected_nodes",
        "Nodes that were filtered, or whose allocation was rejected, by reason code.",
        "code",
        only="extender",
    )
    assumed_pods_expired = counter(
        "assumed_pods_expired", "Assumed pods that expired without a binding.", only="extender"
    )
    gangs = counter("gangs", "Gangs by placement result; see `outcome`.", "outcome", only="extender")
    gangs_waiting = gauge(
        "gangs_waiting", "Gangs with at least one unbound pod that a scheduler has asked about.", only="extender"
    )
    gang_longest_wait_seconds = gauge(
        "gang_longest_wait_seconds",
        "Time since the first scheduler request for the gang that has waited longest.",
        only="extender",
    )
    gang_bandwidth_ratio = histogram(
        "gang_bandwidth_ratio",
        "Modelled bandwidth of placed gangs, relative to an ideal fabric.",
        buckets=_SHARES,
        only="extender",
    )
    gang_attained_ratio = histogram(
        "gang_attained_ratio",
        "Modelled bandwidth of placed gangs, relative to the best possible when they were planned.",
        buckets=_SHARES,
        only="extender",
    )
    rail_devices = gauge(
        "rail_devices",
        "Devices of a rail on all nodes, by state, from device plugins and from ResourceSlices. `busy` is used by a "
        "bound pod or held by a claim, `dead` is unhealthy or tainted, `unschedulable` is unused on a cordoned node. "
        "`missing` counts nodes that have no device of the rail, but of others.",
        "fabric",
        "rail",
        "state",
        only="extender",
    )
    overcommitted_devices = gauge(
        "overcommitted_devices",
        "Devices requested by bound pods beyond the allocatable devices of their nodes.",
        "fabric",
        "rail",
        only="extender",
    )
    unknown_selectors = gauge(
        "unknown_selectors",
        "CEL expressions of DeviceClasses, of the policy and of claims of which it is not known which devices they "
        "select: `unknown` (railwright cannot evaluate them as Kubernetes does), `fails` (Kubernetes cannot evaluate "
        "them for a device either), and evaluations that are `pending`.",
        "state",
        only="extender",
    )
    extender_notices = counter("extender_notices", "Kubernetes Events by result.", "outcome", only="extender")

    def __init__(self, server: ServerName) -> None:
        self.registry = registry.CollectorRegistry()
        rows = [row for row in vars(Metrics).values() if isinstance(row, Row)]
        self._collectors: dict[str, Any] = {
            row.name: row.build(self.registry) for row in rows if row.only in (None, server)
        }
        self._requests = self.webhook_requests if server == "webhook" else self.extender_requests
        self._durations = (
            self.webhook_request_duration_seconds if server == "webhook" else self.extender_request_duration_seconds
        )
        self._request_counters: dict[
            tuple[str, str], tuple[prometheus_client.Counter, prometheus_client.Histogram]
        ] = {}
        self._injection_counters: dict[tuple[str, str, str], prometheus_client.Counter] = {}
        self._uninjected: set[str] = set()
        self.show_certificate(math.inf, math.inf, 0.0)  # without a certificate nothing expires, and no alert may fire
        self.leader.set(1)  # a replica without leader election always answers
        self.build_info.labels(version.VERSION, server).set(1)
        prometheus_client.ProcessCollector(registry=self.registry)

    def collector(self, row: Row[Any]) -> Any:
        """Return the collector of a row. Rows of the other server get a collector that no registry exposes."""
        if row.name not in self._collectors:
            self._collectors[row.name] = row.build(None)
        return self._collectors[row.name]

    def count_request(self, path: str, outcome: str, seconds: float) -> None:
        """Count a request of this server by route and result."""
        request = self._request_counters.get((path, outcome))
        if request is None:  # cached, because a lookup costs more than counting
            request = self._requests.labels(path, outcome), self._durations.labels(path)
            self._request_counters[path, outcome] = request
        request[0].inc()
        request[1].observe(seconds)

    def count_injection(self, fabric: str, role: str, outcome: str) -> None:
        """Count an opted-in pod. `fabric` is a name in the policy or `unknown`, which bounds the number of series."""
        injection = self._injection_counters.get((fabric, role, outcome))
        if injection is None:  # cached, because a lookup takes four times as long as counting
            injection = self._injection_counters[fabric, role, outcome] = self.webhook_injections.labels(
                fabric, role, outcome
            )
        injection.inc()

    def show_certificate(self, ends: float, left: float, lifetime: float) -> None:
        """Set the gauges of the serving certificate: a Unix time, and two durations in seconds."""
        self.certificate_expiry.set(ends)
        self.certificate_seconds_left.set(left)
        self.certificate_lifetime_seconds.set(lifetime)

    def show_uninjected(self, pods: Mapping[str, int]) -> None:
        """Set the number of pods without injection by fabric; fabrics that are no longer in the policy are set to 0."""
        for fabric in self._uninjected - pods.keys():
            self.uninjected_pods.labels(fabric).set(0)
        self._uninjected |= pods.keys()
        for fabric, count in pods.items():
            self.uninjected_pods.labels(fabric).set(count)

    def show_policy(self, digest: str) -> None:
        """Expose `digest` in policy_info, and no older one."""
        self.policy_info.clear()
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
        """Set the gauges of the policy and of the caches: (kind, age in seconds, objects).

        None leaves a gauge unset.
        """
        self.policy_valid.set(policy_valid)
        self.policy_generation.set(policy_generation)
        if policy_digest is not None:
            self.show_policy(policy_digest)
        if snapshot_generation is not None:
            self.snapshot_generation.set(snapshot_generation)
        for kind, age, objects in caches:
            self.cache_age_seconds.labels(kind).set(age)
            self.cache_objects.labels(kind).set(objects)

    def format_exposition(self) -> bytes:
        """Return the text of /metrics."""
        return exposition.generate_latest(self.registry)
