"""The webhook's caches of the cluster: sinks that sources feed, and the facts that handlers decide on.

Decides which parts of each object are stored. Not thread-safe: used by one event loop. Handlers read without waiting.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from railwright.cluster import sinks
from railwright.fabric import bounded_cache, hypernodes, intent, kueue, names, node_views, quantity, resources, views
from railwright.fabric.gang_topology import requests, writings
from railwright.fabric.injection import accelerators, facts, opt_in
from railwright.fabric.policy import model
from railwright.fabric.workloads import grove
from webhook import claim_cache, devices

Key = tuple[str, str]  # namespace, name
T = TypeVar("T")
V = TypeVar("V")


class Values(Generic[T, V]):
    """A value of each object of one kind, by key; None until the first full list.

    `version` grows with every change.
    """

    def __init__(self, get_key: Callable[[T], Any], read: Callable[[T], V]) -> None:
        self.by_key: dict[Any, V] | None = None
        self.version = 0
        self._get_key, self._read = get_key, read

    def replace(self, objects: Sequence[T]) -> None:
        """Replace all objects."""
        self.by_key = {self._get_key(obj): self._read(obj) for obj in objects}
        self.version += 1

    def upsert(self, obj: T) -> None:
        """Add or update an object."""
        if self.by_key is not None:
            self.by_key[self._get_key(obj)] = self._read(obj)
            self.version += 1

    def remove(self, obj: T) -> None:
        """Remove an object."""
        if self.by_key is not None:
            self.by_key.pop(self._get_key(obj), None)
            self.version += 1


class Nodes:
    """Nodes by name, and the resources that at least one node offers, which are None until the first full list.

    `version` grows when the offered resources change, `node_version` when anything does that decides which pods fit a
    node. Heartbeats do not change them.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, node_views.Node] = {}
        self.offered: frozenset[str] | None = None
        self.version = self.node_version = 0
        self._node_counts: Counter[str] = Counter()  # number of nodes by resource
        self._resources: dict[str, frozenset[str]] = {}  # by node
        self._interner = bounded_cache.StringInterner()

    def excerpt(self, node: node_views.Node) -> node_views.Node:
        """Return the node with labels and quantities interned, because most nodes share them."""
        intern = self._interner.intern_mapping
        metadata = msgspec.structs.replace(node.metadata, labels_or_none=intern(node.metadata.labels))
        status = msgspec.structs.replace(
            node.status,
            allocatable_or_none=intern(node.status.allocatable),
            capacity_or_none=intern(node.status.capacity),
        )
        return msgspec.structs.replace(node, metadata=metadata, status=status)

    def replace(self, objects: Sequence[node_views.Node]) -> None:
        """Replace all nodes."""
        self.by_name = {node.metadata.name: node for node in objects}
        self.node_version += 1
        self._resources = {node.metadata.name: _list_resources(node) for node in objects}
        self._node_counts = Counter(resource for resources in self._resources.values() for resource in resources)
        self._update_offered()

    def upsert(self, obj: node_views.Node) -> None:
        """Add or update a node. Most updates are heartbeats with unchanged resources."""
        before = self.by_name.get(obj.metadata.name)
        self.node_version += before is None or _list_properties(before) != _list_properties(obj)
        self.by_name[obj.metadata.name] = obj
        self._set_resources(obj.metadata.name, _list_resources(obj))

    def remove(self, obj: node_views.Node) -> None:
        """Remove a node."""
        self.by_name.pop(obj.metadata.name, None)
        self.node_version += 1
        self._set_resources(obj.metadata.name, frozenset())

    def _set_resources(self, name: str, resources: frozenset[str]) -> None:
        before = self._resources.get(name, frozenset())
        if resources == before:
            return
        self._resources[name] = resources
        if not resources:
            del self._resources[name]
        self._node_counts.update(resources - before)
        self._node_counts.subtract(before - resources)
        self._node_counts = +self._node_counts  # drops resources that no node offers any more
        if self.offered is not None:
            self._update_offered()

    def _update_offered(self) -> None:
        offered = frozenset(self._node_counts)
        if offered != self.offered:
            self.offered = offered
            self.version += 1


GetLabels = Callable[[str], Mapping[str, str] | None]
"""Returns the labels of a namespace, or None if it is unknown."""

UNKNOWN = "unknown"  # replaces labels that are no fabric of the policy, to bound the metric's label values
_NO_NAMESPACES: frozenset[str] = frozenset()


class _Candidate(NamedTuple):
    """The fields of a pod that decide whether it opted in, given its namespace's labels and the policy."""

    namespace: str
    label: str | None
    requested: frozenset[str] = frozenset()  # by its app containers; read only if the pod has no label of its own


class Uninjected:
    """Pods without an injection record, by namespace and label, whether or not their namespace opted in.

    Such pods were created before railwright was installed, or while the webhook configuration was missing or let pods
    pass. `railwright.fabric.injection.opt_in` decides which pods count.
    """

    def __init__(self) -> None:
        self._candidates: dict[Key, _Candidate] = {}
        self._counts: Counter[_Candidate] = Counter()
        self._shared: dict[_Candidate, _Candidate] = {}  # one object for all equal candidates, to save memory

    def clear(self) -> None:
        """Remove all pods, before a full list is added."""
        self._candidates.clear()
        self._counts.clear()
        self._shared.clear()

    def upsert(self, pod: views.Pod) -> None:
        """Add or update a pod."""
        candidate = _build_candidate(pod)
        key = pod.metadata.namespace, pod.metadata.name
        self.remove(*key)
        if candidate is not None:
            self._candidates[key] = candidate = self._shared.setdefault(candidate, candidate)
            self._counts[candidate] += 1

    def remove(self, namespace: str, name: str) -> None:
        """Remove a pod."""
        if (candidate := self._candidates.pop((namespace, name), None)) is not None:
            self._counts[candidate] -= 1
            if not self._counts[candidate]:
                del self._counts[candidate], self._shared[candidate]

    def count(
        self, policy: model.Policy | None, get_labels: GetLabels, excluded: Collection[str] = opt_in.ALWAYS_EXCLUDED
    ) -> Mapping[str, int]:
        """Return the number of pods for every fabric of the policy, and for UNKNOWN. Fabrics in mode `warn` have none.

        `excluded` are the namespaces that the webhook is not called for.
        """
        document = policy.document if policy else None
        pods_by_fabric = dict.fromkeys((*(document.fabrics if document else ()), UNKNOWN), 0)
        accelerators = document.accelerators if document else None
        for candidate, pods in self._counts.items():
            if candidate.namespace not in excluded:
                namespace_labels = get_labels(candidate.namespace)
                label = opt_in.resolve_label(candidate.label, candidate.requested, namespace_labels, accelerators)
                if label is not None and opt_in.is_label_enforced(label, document):
                    pods_by_fabric[_get_fabric(label, document)] += pods
        return pods_by_fabric


def _build_candidate(pod: views.Pod) -> _Candidate | None:
    """Return the pod's candidate. None unless the pod may have opted in and has no record."""
    if not opt_in.lacks_injection(pod, _NO_NAMESPACES):
        return None
    label = pod.metadata.labels.get(names.FABRIC)
    if label is not None:
        return None if label == names.FABRIC_NONE else _Candidate(pod.metadata.namespace, label)
    requested = accelerators.list_all_requested(pod.spec.containers)
    return _Candidate(pod.metadata.namespace, None, requested) if requested else None


def _get_fabric(label: str, document: model.PolicyDocument | None) -> str:
    if document is None:
        return UNKNOWN
    name = intent.resolve_default(label, document)
    return name if name in document.fabrics else UNKNOWN


class Pods:
    """Pending pods that may have opted in, and the uids of all other pods.

    Of a bound pod only the uid is stored, because its binding never changes.
    """

    def __init__(self) -> None:
        self.uninjected = Uninjected()
        self._pending: dict[Key, Pending] = {}
        self._other_uids: dict[Key, str] = {}
        self._changes = sinks.Changes()

    def __len__(self) -> int:
        return len(self._pending)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        before = self._pending
        self._pending, self._other_uids = {}, {}
        self.uninjected.clear()
        for pod in objects:
            self._store(pod, before.get(_get_key(pod.metadata)))
        self._changes.announce()

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod."""
        self._store(obj, self._pending.get(_get_key(obj.metadata)))
        self._changes.announce()

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._pending.pop(_get_key(obj.metadata), None)
        self._other_uids.pop(_get_key(obj.metadata), None)
        self.uninjected.remove(*_get_key(obj.metadata))

    def find(self, namespace: str, name: str, uid: str) -> "Pending | None":
        """Return a pending pod that may have opted in. A non-empty uid excludes an earlier pod of the same name."""
        pending = self._pending.get((namespace, name))
        return pending if pending is not None and uid in {"", pending.pod.metadata.uid} else None

    def has_pod(self, namespace: str, name: str, uid: str) -> bool:
        """True if the cache has this pod. A non-empty uid excludes an earlier pod of the same name."""
        other_uid = self._other_uids.get((namespace, name))
        return (other_uid is not None and uid in {"", other_uid}) or self.find(namespace, name, uid) is not None

    async def wait(self, namespace: str, name: str, uid: str, seconds: float) -> bool:
        """Wait until the cache has the pod. Return False if it does not have it within that time."""
        return await self._changes.wait_until(lambda: self.has_pod(namespace, name, uid), seconds)

    def _store(self, pod: views.Pod, before: "Pending | None") -> None:
        key = _get_key(pod.metadata)
        self.uninjected.upsert(pod)
        if not pod.spec.node_name and _may_opt_in(pod):
            self._pending[key] = Pending(pod, _collect_outdated(pod, before))
            self._other_uids.pop(key, None)
        else:
            self._other_uids[key] = pod.metadata.uid
            self._pending.pop(key, None)


class Pending(msgspec.Struct, frozen=True):
    """A pod without a node. `outdated` maps annotations to values they had before they were changed or removed."""

    pod: views.Pod
    outdated: Mapping[str, frozenset[str]] = {}


_DAEMON_CONTROLLERS = frozenset({"DaemonSet", "Node"})  # a static pod is controlled by its Node
_MAX_SHARED = 4096


class DaemonPods:
    """The requests of pods of DaemonSets and of static pods by node. A gang cannot use that part of a node.

    `version` grows when those of a node change.
    """

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[Key, tuple[str, resources.FrozenAmounts]] = {}  # node and requests
        self._by_node: dict[str, resources.FrozenAmounts] = {}
        self._shared: dict[resources.FrozenAmounts, resources.FrozenAmounts] = {}  # one object for equal amounts

    def get_requests(self, node: str) -> resources.FrozenAmounts:
        """Return what these pods request on a node."""
        return self._by_node.get(node, resources.NO_AMOUNTS)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        self._pods.clear()
        self._by_node.clear()
        self._shared.clear()
        self.version += 1
        for pod in objects:
            self.upsert(pod)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod."""
        node, owner = obj.spec.node_name, obj.metadata.controller
        key = obj.metadata.key
        is_daemon = node and owner is not None and owner.kind in _DAEMON_CONTROLLERS and not obj.status.has_ended
        if not is_daemon:
            self._forget(key)
            return
        requests = resources.compute_requests(obj.spec)
        if self._pods.get(key) != (node, requests):
            self._forget(key)
            self._pods[key] = node, self._share(requests)
            self._add(node, requests, 1)

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._forget(obj.metadata.key)

    def _forget(self, key: Key) -> None:
        if (known := self._pods.pop(key, None)) is not None:
            self._add(*known, -1)

    def _add(self, node: str, requests: resources.Amounts, sign: int) -> None:
        before = self.get_requests(node)
        names = {*before, *requests}
        total = {name: before.get(name, 0) + sign * requests.get(name, 0) for name in names}
        after = resources.FrozenAmounts({name: amount for name, amount in total.items() if amount})
        if after:
            self._by_node[node] = self._share(after)
        else:
            self._by_node.pop(node, None)
        self.version += 1

    def _share(self, requests: resources.FrozenAmounts) -> resources.FrozenAmounts:
        """Return the object for these amounts: the pods of a DaemonSet have equal ones, and so have most nodes."""
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(requests, requests)


class State:
    """All caches, and the facts that an admission reads from them."""

    def __init__(self) -> None:
        self.watched = False  # True if an API server feeds the caches; a snapshot file is less complete
        self.namespaces = Values[views.Namespace, Mapping[str, str]](_get_name, lambda known: known.metadata.labels)
        self.namespaces.replace([])
        self.networks = Values[views.NetworkAttachmentDefinition, str | None](
            lambda network: network.metadata.key,
            lambda network: network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None,
        )
        self.nodes = Nodes()
        self.pods = Pods()
        self.hyper_nodes = hypernodes.Tree()  # domains of nodes under the preset `volcano`
        self.served_apis: frozenset[str] | None = None  # of those that topology requests need; None until asked
        self.daemon_pods = DaemonPods()
        self.domains = requests.Domains(
            self._list_nodes,
            lambda: self.nodes.node_version + self.hyper_nodes.version + self.daemon_pods.version,
            self.daemon_pods.get_requests,
        )
        self.devices = devices.Devices()
        self.claim_templates = claim_cache.ClaimTemplates()
        self.claiming_pods = claim_cache.Claimants(claim_cache.list_pod)
        self.local_queues = Values[kueue.LocalQueue, str](
            lambda queue: queue.metadata.key, lambda queue: queue.spec.cluster_queue
        )
        self.cluster_queues = Values[kueue.ClusterQueue, kueue.ClusterQueueSpec](_get_name, lambda queue: queue.spec)
        self.flavors = Values[kueue.ResourceFlavor, kueue.ResourceFlavorSpec](_get_name, lambda flavor: flavor.spec)
        self.topologies = Values[kueue.Topology, tuple[str, ...]](_get_name, kueue.Topology.list_labels)
        self.kai_topologies = Values[kueue.Topology, tuple[str, ...]](_get_name, kueue.Topology.list_labels)
        self.grove_topologies = Values[grove.ClusterTopologyBinding, Mapping[str, str]](
            _get_name, lambda binding: binding.list_levels(writings.KAI_NAME)
        )
        self.claiming_workloads = claim_cache.Claimants(kueue.list_pods)

    def get_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, or None if it is unknown."""
        return (self.namespaces.by_key or {}).get(namespace)

    def get_node(self, name: str) -> node_views.Node | None:
        """Return a node, with the domains of its HyperNodes added to its labels."""
        node = self.nodes.by_name.get(name)
        if node is None:
            self.hyper_nodes.forget(name)
            return None
        domains = self.hyper_nodes.read_values(name, node.metadata.labels)
        if not domains:
            return node
        metadata = msgspec.structs.replace(node.metadata, labels_or_none={**node.metadata.labels, **domains})
        return msgspec.structs.replace(node, metadata=metadata)

    def build_topology_facts(self) -> writings.ClusterFacts:
        """Return what topology requests need to know of the cluster."""
        return writings.ClusterFacts(
            domains=self.domains if self.nodes.offered is not None else None,
            list_tiers=self.hyper_nodes.list_tiers,
            served=self.served_apis,
            kueue=kueue.Queues(
                local_queues=self.local_queues.by_key,
                cluster_queues=self.cluster_queues.by_key,
                flavors=self.flavors.by_key,
                topologies=self.topologies.by_key,
            ),
            kai_topologies=self.kai_topologies.by_key,
            grove_topologies=self.grove_topologies.by_key,
        )

    def set_served_apis(self, apis: frozenset[str]) -> None:
        """Store which of the APIs that outlets name are served."""
        self.served_apis = apis

    def _list_nodes(self, keys: Sequence[str]) -> Iterable[node_views.Node]:
        """Return the nodes, with their HyperNodes if one of the domain keys is a level of these."""
        if not hypernodes.are_among(tuple(keys)):
            return self.nodes.by_name.values()
        return [node for name in self.nodes.by_name if (node := self.get_node(name)) is not None]

    def build_facts(self, namespace: str) -> facts.ClusterFacts:
        """Return the current facts. Valid until the caller's next await, because the maps are not copied."""
        return facts.ClusterFacts(
            namespace=namespace,
            namespace_labels=self.get_labels(namespace),
            watched=self.watched,
            networks=self.networks.by_key,
            offered=self.nodes.offered,
            extended=self.devices.extended,
            claim_templates=self.claim_templates.classes,
            # none shrinks, so equal sums mean equal versions
            version=self.networks.version + self.nodes.version + self.devices.version + self.claim_templates.version,
        )


def _get_key(metadata: views.BriefMeta) -> Key:
    return (sys.intern(metadata.namespace), metadata.name)  # one string for all pods of a namespace


_Named = views.Namespace | kueue.ClusterQueue | kueue.ResourceFlavor | kueue.Topology | grove.ClusterTopologyBinding


def _get_name(obj: _Named) -> str:
    return obj.metadata.name


def _list_resources(node: node_views.Node) -> frozenset[str]:
    return frozenset(name for name, amount in node.status.allocatable.items() if quantity.is_positive(amount))


def _list_properties(node: node_views.Node) -> tuple[object, ...]:
    """Return what decides which pods fit a node."""
    ready = [condition.status for condition in node.status.conditions or () if condition.type == "Ready"]
    return node.metadata.labels, node.status.allocatable, node.spec, ready


def _may_opt_in(pod: views.Pod) -> bool:
    """True if the pod's label or its namespace's label may opt it in, with or without an injection record."""
    return (
        names.FABRIC in pod.metadata.labels
        or names.INJECTION in pod.metadata.annotations
        or any(map(accelerators.may_request, pod.spec.containers))
    )


def _collect_outdated(pod: views.Pod, before: Pending | None) -> Mapping[str, frozenset[str]]:
    """Return the earlier values of annotations that have been changed or removed since the pod was first stored.

    Of a pod that changes often, only the newest are kept: its author must not fill the memory.
    """
    if before is None or before.pod.metadata.uid != pod.metadata.uid:
        return {}
    now, then = pod.metadata.annotations, before.pod.metadata.annotations
    if now == then:
        return before.outdated
    changed = {key: frozenset({value}) for key, value in then.items() if now.get(key) != value}
    outdated = {
        key: before.outdated.get(key, _NO_VALUES) | changed.get(key, _NO_VALUES)
        for key in {**before.outdated, **changed}
    }
    size = sum(len(value) for values in outdated.values() for value in values)
    return outdated if size <= _MAX_OUTDATED else changed


_NO_VALUES: frozenset[str] = frozenset()
_MAX_OUTDATED = 256 * 1024  # characters: as many as the annotations of a pod
