"""The extender's state: the cluster state from watches, and the assumed pods from schedulers.

A pod that is observed bound or deleted confirms its assumption: from then on the cluster state counts it.
`list_watches` has the kinds that placement needs, watched or read from a snapshot, each with its sink.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from railwright.cluster import resources, sinks, sources
from railwright.fabric import names, scheduling_views, views
from railwright.fabric.claims import inventory
from railwright.fabric.claims import objects as claims
from railwright.fabric.placement.state import assumed_pods, cluster_state, rail_reports
from railwright.fabric.policy import claimed_rails, model
from railwright.fabric.workloads import membership

_RECENT_SECONDS = 1.0  # a scheduler's snapshot is milliseconds old, more where its watch is late
_MAX_WAITING = 1000  # pods that wait at once and are explained
_MAX_DUE = 10  # pods looked at at once; each takes a few milliseconds in a large cluster
_GATED = "SchedulingGated"  # reason of a condition (k8s.io/api/core/v1, PodReasonSchedulingGated)
_MAX_RECENT = 10_000  # bindings; kube-scheduler and Volcano write some hundreds in a second


class RecentBindings:
    """The bindings observed in the last second, which schedulers other than their own may not know yet."""

    def __init__(self) -> None:
        self._bindings: deque[tuple[float, str, str]] = deque(maxlen=_MAX_RECENT)  # time, node, scheduler

    def record(self, node: str, scheduler: str, now: float) -> None:
        """Record a binding."""
        self._bindings.append((now, node, scheduler))

    def list_nodes(self, now: float, *, except_scheduler: str) -> frozenset[str]:
        """Return the nodes to which other schedulers have just bound a pod."""
        while self._bindings and now - self._bindings[0][0] > _RECENT_SECONDS:
            self._bindings.popleft()
        return frozenset(node for _, node, scheduler in self._bindings if scheduler != except_scheduler)


class WaitingPods:
    """The pods with claims, a fabric or a record of injection that are not bound and not held back by a gate.

    They are explained although no scheduler asks about them: it asks about nodes that its own plugins accept. These
    count GPUs, rails and devices of claims themselves, so that a gang that waits for its devices may never be asked
    about.
    """

    def __init__(self) -> None:
        self._pods: dict[str, views.Pod] = {}
        self._since: dict[str, float] = {}  # when a pod was seen first, or listed as due

    def upsert(self, uid: str, pod: views.Pod) -> None:
        """Add a pod if it waits and may use a fabric; otherwise remove it."""
        if not _is_waiting(pod) or (uid not in self._pods and len(self._pods) >= _MAX_WAITING):
            self.remove(uid)
        else:
            self._pods[uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a pod."""
        if self._pods.pop(uid, None) is not None:
            self._since.pop(uid, None)

    def retain(self, uids: set[str]) -> None:
        """Remove all other pods."""
        for uid in self._pods.keys() - uids:
            self.remove(uid)

    def list_gangs(self, cluster: cluster_state.ClusterState) -> Sequence[views.Pod]:
        """Return one pod of each gang that waits."""
        gangs = {cluster.pods[uid].gang or uid: pod for uid, pod in self._pods.items() if uid in cluster.pods}
        return list(gangs.values())

    def list_due(self, now: float, seconds: float) -> Sequence[views.Pod]:
        """Return at most _MAX_DUE waiting pods that were not returned for `seconds`. Call it about once a second."""
        since = self._since
        due = [pod for uid, pod in self._pods.items() if now - since.setdefault(uid, now) >= seconds][:_MAX_DUE]
        since.update((pod.metadata.identity, now) for pod in due)
        return due


def _is_waiting(pod: views.Pod) -> bool:
    if pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    uses_fabric = names.FABRIC in pod.metadata.labels or names.INJECTION in pod.metadata.annotations
    if not (uses_fabric or pod.spec.resource_claims):
        return False
    return all(condition.reason != _GATED for condition in pod.status.conditions or ())


class State:
    """The cluster state and the assumed pods of this process."""

    def __init__(self, *, assume_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.cluster = cluster_state.ClusterState(clock)
        self.recent_bindings = RecentBindings()
        self.assumed = assumed_pods.AssumedPods(assume_seconds=assume_seconds)
        self.waiting = WaitingPods()
        self.pools: dict[tuple[str, str], str] = {}  # network (namespace, name) -> its resource
        self._policy: model.Policy | None = None

    def apply_policy(self, policy: model.Policy | None) -> None:
        """Count devices of claims by the rails of a policy, and read reports by it. Without one the last one stays."""
        if policy is not None:
            self._policy = policy
            named = policy.compile_once(claimed_rails.list_claim_resources)
            self.cluster.apply_health_policy(rail_reports.HealthPolicy(policy.document, self.pools), named)

    def update_health_policy(self) -> None:
        """Read reports about rails by the policy and the resources of networks."""
        if self._policy is not None:
            self.cluster.apply_health_policy(rail_reports.HealthPolicy(self._policy.document, self.pools))

    def expire(self) -> int:
        """End what counts for a time only: reports about rails, and assumed pods. Return the number of the latter."""
        self.cluster.expire_reports()
        return len(self.assumed.expire(self.clock()))


class Pods:
    """Adds pods to the cluster state, and confirms assumed pods that are bound or deleted."""

    def __init__(self, state: State) -> None:
        self._cluster = state.cluster
        self._assumed = state.assumed
        self._waiting = state.waiting
        self._recent, self._clock = state.recent_bindings, state.clock

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all objects."""
        before = set(self._cluster.pods)
        self._cluster.replace_pods(objects)
        self._waiting.retain({pod.metadata.identity for pod in objects})
        for pod in objects:
            self._waiting.upsert(pod.metadata.identity, pod)
        for assumed_pod in list(self._assumed):
            known = self._cluster.pods.get(assumed_pod.uid)
            # a pod not observed before may be newer than the list
            if known.node if known else assumed_pod.uid in before:
                self._assumed.forget(assumed_pod.uid)
            elif known:
                self._assumed.see(known.uid, known.requests)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod. Confirm its assumption once it is bound or ended."""
        uid, pods = obj.metadata.identity, self._cluster.pods
        before = pods.get(uid)
        self._cluster.upsert_pod(obj)
        self._waiting.upsert(uid, obj)
        pod = pods.get(uid)
        if pod is not None and not pod.node:
            self._assumed.see(uid, pod.requests)
            return
        self._assumed.forget(uid)
        if pod is not None and not (before is not None and before.node):
            self._recent.record(pod.node, pod.scheduler, self._clock())

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._cluster.remove_pod(obj.metadata.identity)
        self._waiting.remove(obj.metadata.identity)
        self._assumed.forget(obj.metadata.identity)


class Claims:
    """Adds ResourceClaims to the cluster state. The devices of assumed pods may then count by their claims."""

    def __init__(self, state: State) -> None:
        self._cluster = state.cluster
        self._assumed = state.assumed

    def replace(self, objects: Sequence[claims.ResourceClaim]) -> None:
        """Replace all objects."""
        self._cluster.replace_claims(objects)
        self._assumed.record_changes([pod.uid for pod in self._assumed])

    def upsert(self, obj: claims.ResourceClaim) -> None:
        """Add or update a claim."""
        self._assumed.record_changes(self._cluster.upsert_claim(obj))

    def remove(self, obj: claims.ResourceClaim) -> None:
        """Remove a claim."""
        self._assumed.record_changes(self._cluster.remove_claim(obj))


class Networks:
    """Stores the device pool of each network."""

    def __init__(self, state: State) -> None:
        self._pools, self._update = state.pools, state.update_health_policy

    def replace(self, objects: Sequence[views.NetworkAttachmentDefinition]) -> None:
        """Replace all objects."""
        self._pools.clear()
        for network in objects:
            self._set(network, network.metadata.annotations.get(names.NAD_RESOURCE_NAME))
        self._update()

    def upsert(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Add or update a network."""
        self._set(obj, obj.metadata.annotations.get(names.NAD_RESOURCE_NAME))
        self._update()

    def remove(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Remove a network."""
        self._set(obj, None)
        self._update()

    def _set(self, network: views.NetworkAttachmentDefinition, resource: str | None) -> None:
        key = network.metadata.namespace, network.metadata.name
        self._pools.pop(key, None)
        if resource:
            self._pools[key] = resource


# --- what is watched ------------------------------------------------------------------------------------------

_Row = tuple[resources.Kind, sinks.Sink[Any]]


def list_watches(
    state: State, *, pods: sinks.Sink[Any] | None = None, nodes: sinks.Sink[Any] | None = None
) -> list[sources.WatchSpec]:
    """Return a watch for each kind. `pods` and `nodes` are second sinks of these kinds."""
    cluster, state_pods = state.cluster, Pods(state)
    state_nodes: sinks.Sink[Any] = sinks.Functions(
        cluster.replace_nodes, cluster.upsert_node, lambda node: cluster.remove_node(node.metadata.name)
    )
    table: list[_Row] = [
        (resources.NODES, state_nodes if nodes is None else sinks.Several(state_nodes, nodes)),
        (resources.PLACED_PODS, state_pods if pods is None else sinks.Several(state_pods, pods)),
        (resources.NADS, Networks(state)),
        (
            resources.HYPER_NODES,
            sinks.Functions(cluster.replace_hyper_nodes, cluster.upsert_hyper_node, cluster.remove_hyper_node),
        ),
        (
            resources.NODE_TOPOLOGIES,
            sinks.Functions(
                cluster.replace_topologies,
                cluster.upsert_topology,
                lambda report: cluster.remove_topology(report.metadata.name),
            ),
        ),
    ]
    table += _list_device_watches(state)
    table += [
        (
            resources.GANG_SIZES[kind.name],
            sinks.Functions(
                functools.partial(cluster.replace_sizes, kind),
                functools.partial(cluster.upsert_size, kind),
                functools.partial(cluster.remove_size, kind),
            ),
        )
        for kind in membership.SIZE_KINDS
    ]
    excerpts: dict[resources.Kind, Callable[[Any], Any]] = {
        resources.PLACED_PODS: scheduling_views.complete,
        resources.RESOURCE_SLICES: cluster.claimed.inventory.offered.share,
    }
    large = (resources.NODES, resources.PLACED_PODS)  # applied gradually: a partial cluster state is still consistent
    return [
        sources.WatchSpec(
            kind=kind,
            sink=sink,
            excerpt=excerpts.get(kind, sources.return_whole),
            gradual=kind in large,
        )
        for kind, sink in table
    ]


def _list_device_watches(state: State) -> list[_Row]:
    """Return the kinds of Dynamic Resource Allocation."""
    known, claims = state.cluster.claimed.inventory, Claims(state)

    def change_templates(change: Callable[[inventory.Inventory], set[str]]) -> None:
        state.assumed.record_changes(state.cluster.change_templates(change))  # their devices may count by their claims

    def build_sink(
        sink: inventory.Sink[Any, Any], follow: Callable[[Callable[[inventory.Inventory], set[str]]], None]
    ) -> sinks.Functions[Any]:
        def wrap(apply: Callable[[Any], set[str]]) -> Callable[[Any], None]:
            return lambda changed: follow(lambda _: apply(changed))

        return sinks.Functions(*map(wrap, (sink.replace, sink.upsert, sink.remove)))

    return [
        (resources.DEVICE_CLASSES, build_sink(known.class_sink, state.cluster.change_devices)),
        (resources.RESOURCE_SLICES, build_sink(known.slice_sink, state.cluster.change_devices)),
        (resources.DEVICE_TAINT_RULES, build_sink(known.taint_rule_sink, state.cluster.change_devices)),
        (resources.CLAIM_TEMPLATES, build_sink(known.template_sink, change_templates)),
        (resources.RESOURCE_CLAIMS, claims),
    ]
