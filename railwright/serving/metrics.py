"""Every metric of both servers, one row each. Pods and namespaces are never labels.

Contains names, labels, help texts and buckets. Each server has its own registry, so that two servers of one process
(the demo, the tests) count separately.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

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


class Row(Generic[Collector]):
    """A metric, implemented as a descriptor: `metrics.policy_valid` is its collector, and its attribute is its name."""

    name: str
    only: ServerName | None  # the server that exposes it, None for both

    def __init__(self, kind: type[Collector], text: str, labels: Sequence[str], **options: Any) -> None:
        self.kind: type[Collector] = kind
        self.text, self.labels, self.options = text, labels, options

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.only = name, vars(owner)["only"]

    def __get__(self, owner: "Metrics", kind: type) -> Collector:
        return cast("Collector", owner.get_collector(self))

    @property
    def full_name(self) -> str:
        """Return the name in queries: the client appends _total to the name of a counter."""
        return PREFIX + self.name + ("_total" if self.kind is prometheus_client.Counter else "")

    @property
    def type_name(self) -> str:
        """Return the type as the exposition format names it."""
        return self.kind.__name__.lower()

    def build(self, target: registry.CollectorRegistry | None) -> Collector:
        """Return a collector of this row, registered with `target` if that is not None."""
        return self.kind(PREFIX + self.name, self.text, self.labels, registry=target, **self.options)


def counter(text: str, *labels: str) -> Row[prometheus_client.Counter]:
    """Return the row of a counter."""
    return Row(prometheus_client.Counter, text, labels)


def gauge(text: str, *labels: str) -> Row[prometheus_client.Gauge]:
    """Return the row of a gauge."""
    return Row(prometheus_client.Gauge, text, labels)


def histogram(text: str, *labels: str, buckets: Sequence[float]) -> Row[prometheus_client.Histogram]:
    """Return the row of a histogram."""
    return Row(prometheus_client.Histogram, text, labels, buckets=buckets)


class _Shared:
    only: ClassVar[ServerName | None] = None

    build_info = gauge("Always 1; the labels identify the running version.", "version", "server")
    http_rejected = counter("Requests rejected before they reached a handler.", "code")
    connections = gauge("Open connections on the service port and on --volcano-listen.")
    event_loop_lag_seconds = gauge("Longest delay of the event loop in the last 30 seconds.")
    certificate_expiry_timestamp_seconds = gauge("Time at which the serving certificate expires.")
    certificate_seconds_left = gauge("Time until the serving certificate expires; +Inf without one.")
    certificate_lifetime_seconds = gauge("Validity period of the serving certificate; 0 without one.")
    policy_valid = gauge("1 if the newest policy is in force, 0 if it is invalid and an older one is.")
    policy_generation = gauge("Number of valid policies loaded since the start.")
    policy_info = gauge("Always 1; the label is the digest of the policy in force.", "digest")
    snapshot_generation = gauge("Number of valid snapshot files loaded since the start.")
    cache_age_seconds = gauge("Time since the last contact with the source of a cache.", "kind")
    cache_objects = gauge("Objects in a cache.", "kind")
    watch_restarts = counter("Watches that were restarted.", "kind", "reason")
    watch_skipped = counter(
        "Watched objects skipped, or read in part, because they cannot be decoded or have too many values.", "kind"
    )


class _Webhook:
    only: ClassVar[ServerName | None] = "webhook"

    webhook_requests = counter("AdmissionReviews answered.", "path", "outcome")
    webhook_request_duration_seconds = histogram(
        "Time from the last byte of the request to the response.", "path", buckets=_FAST
    )
    webhook_patch_operations = histogram("Number of operations in a JSON patch.", buckets=_OPERATIONS)
    webhook_injections = counter("Opted-in pods.", "fabric", "role", "outcome")
    webhook_skipped = counter("Reviewed pods that had not opted in.")
    webhook_workloads = counter("Reviewed workloads.", "kind", "outcome")
    webhook_refusals = counter("Rejected objects.", "fabric", "reason")
    webhook_warnings = counter("Admission warnings, by reason code.", "code")
    webhook_events = counter("Kubernetes Events by result.", "outcome")
    claim_templates = counter(
        "Writes of ResourceClaimTemplates by result: `created`, `removed`, `exists` (another "
        "replica was first) or `failed`.",
        "outcome",
    )
    claim_templates_missing = gauge("ResourceClaimTemplates that pods and Workloads of Kueue wait for.")
    uninjected_pods = gauge("Running or pending pods that opted in but were not injected: they may use TCP.", "fabric")


class _Extender:
    only: ClassVar[ServerName | None] = "extender"

    leader = gauge("1 if this replica is the leader and answers schedulers, otherwise 0.")
    leader_transitions = counter("Number of times this process gained or lost leadership.")
    extender_requests = counter("Scheduler requests answered.", "path", "outcome")
    extender_request_duration_seconds = histogram(
        "Time from the last byte of the request to the response.", "path", buckets=_FAST
    )
    extender_nodes = histogram("Number of nodes in a scheduler request.", "verb", buckets=_NODES)
    extender_unknown_nodes = counter("Nodes in scheduler requests that the cache does not contain.")
    assumed_pods = gauge("Assumed pods: placed by a scheduler, binding not observed yet.", "state")
    assumed_pods_unseen = gauge(
        "Announced pods that the API server has not shown; they use no devices, and end after 5 s."
    )
    nodes_without_domain = gauge("Nodes of a fabric without the label of a topology domain.", "domain")
    extender_rejected_nodes = counter(
        "Nodes that were filtered, or whose allocation was rejected, by reason code.", "code"
    )
    assumed_pods_expired = counter("Assumed pods that expired without a binding.")
    gangs = counter("Gangs by placement result; see `outcome`.", "outcome")
    gangs_waiting = gauge("Gangs with at least one unbound pod that a scheduler has asked about.")
    gang_longest_wait_seconds = gauge("Time since the first scheduler request for the gang that has waited longest.")
    gang_bandwidth_ratio = histogram(
        "Modelled bandwidth of placed gangs, relative to an ideal fabric.", buckets=_SHARES
    )
    gang_attained_ratio = histogram(
        "Modelled bandwidth of placed gangs, relative to the best possible when they were planned.", buckets=_SHARES
    )
    rail_devices = gauge(
        "Devices of a rail on all nodes, by state, from device plugins and from ResourceSlices. `busy` is used by a "
        "bound pod or held by a claim, `dead` is unhealthy or tainted, `unschedulable` is unused on a cordoned node. "
        "`missing` counts nodes that have no device of the rail, but of others.",
        "fabric",
        "rail",
        "state",
    )
    overcommitted_devices = gauge(
        "Devices requested by bound pods beyond the allocatable devices of their nodes.", "fabric", "rail"
    )
    rails_reported = gauge(
        "Rails of nodes that are reported not to work, by who reports it (`health.reports` of the policy), and what "
        "follows: `exclude`, `avoid` or `ignore`.",
        "fabric",
        "source",
        "belief",
    )
    extender_notices = counter("Kubernetes Events by result.", "outcome")


ROWS: Sequence[Row[Any]] = [
    row for owner in (_Shared, _Webhook, _Extender) for row in vars(owner).values() if isinstance(row, Row)
]


class Metrics(_Shared, _Webhook, _Extender):
    """The metrics of one server. A row of the other server has a collector that no registry exposes."""

    def __init__(self, server: ServerName) -> None:
        self.registry = registry.CollectorRegistry()
        self._collectors: dict[str, Any] = {
            row.name: row.build(self.registry if row.only in (None, server) else None) for row in ROWS
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

    def get_collector(self, row: Row[Any]) -> Any:
        """Return the collector of a row."""
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
        self.certificate_expiry_timestamp_seconds.set(ends)
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
