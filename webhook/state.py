"""The webhook's caches of the cluster: sinks that sources feed, and the facts that handlers decide on.

Decides which parts of each object are stored. Not thread-safe: used by one event loop. Handlers read without waiting.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import hypernodes, interning, names, node_views, quantity, views
from railwright.fabric.injection import accelerators, facts
from webhook import claim_cache, devices, uninjected

Key = tuple[str, str]  # namespace, name


class Namespaces:
    """Labels of namespaces."""

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}

    def replace(self, objects: Sequence[views.Namespace]) -> None:
        """Replace all namespaces."""
        self.labels = {namespace.metadata.name: namespace.metadata.labels for namespace in objects}

    def upsert(self, obj: views.Namespace) -> None:
        """Add or update a namespace."""
        self.labels[obj.metadata.name] = obj.metadata.labels

    def remove(self, obj: views.Namespace) -> None:
        """Remove a namespace."""
        self.labels.pop(obj.metadata.name, None)


class Networks:
    """The resource of each NetworkAttachmentDefinition; None until the first full list.

    `version` grows with every change.
    """

    def __init__(self) -> None:
        self.resources: dict[Key, str | None] | None = None
        self.version = 0

    def replace(self, objects: Sequence[views.NetworkAttachmentDefinition]) -> None:
        """Replace all networks."""
        self.resources = {_get_key(network.metadata): _get_resource(network) for network in objects}
        self.version += 1

    def upsert(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Add or update a network."""
        if self.resources is not None:
            self.resources[_get_key(obj.metadata)] = _get_resource(obj)
            self.version += 1

    def remove(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Remove a network."""
        if self.resources is not None:
            self.resources.pop(_get_key(obj.metadata), None)
            self.version += 1


class Nodes:
    """Nodes by name, and the resources that at least one node offers, which are None until the first full list.

    `version` grows when the offered resources change. Heartbeats do not change them.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, node_views.Node] = {}
        self.offered: frozenset[str] | None = None
        self.version = 0
        self._node_counts: Counter[str] = Counter()  # number of nodes by resource
        self._resources: dict[str, frozenset[str]] = {}  # by node
        self._interner = interning.StringInterner()

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
        self._resources = {node.metadata.name: _list_resources(node) for node in objects}
        self._node_counts = Counter(resource for resources in self._resources.values() for resource in resources)
        self._update_offered()

    def upsert(self, obj: node_views.Node) -> None:
        """Add or update a node. Most updates are heartbeats with unchanged resources."""
        self.by_name[obj.metadata.name] = obj
        self._set_resources(obj.metadata.name, _list_resources(obj))

    def remove(self, obj: node_views.Node) -> None:
        """Remove a node."""
        self.by_name.pop(obj.metadata.name, None)
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


class HyperNodes:
    """Volcano's HyperNodes, which define the domains of nodes under the preset `volcano`."""

    def __init__(self) -> None:
        self.tree = hypernodes.Tree()

    def replace(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """Replace all HyperNodes."""
        self.tree.replace(objects)

    def upsert(self, obj: hypernodes.HyperNode) -> None:
        """Add or update a HyperNode."""
        self.tree.upsert(obj)

    def remove(self, obj: hypernodes.HyperNode) -> None:
        """Remove a HyperNode."""
        self.tree.remove(obj.metadata.name)


class Pods:
    """Pending pods that may have opted in, and the uids of all other pods.

    Of a bound pod only the uid is stored, because its binding never changes.
    """

    def __init__(self) -> None:
        self.uninjected = uninjected.Uninjected()
        self._pending: dict[Key, Pending] = {}
        self._other_uids: dict[Key, str] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        before = self._pending
        self._pending, self._other_uids = {}, {}
        self.uninjected.clear()
        for pod in objects:
            self._store(pod, before.get(_get_key(pod.metadata)))
        self._wake_waiters()

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod."""
        self._store(obj, self._pending.get(_get_key(obj.metadata)))
        self._wake_waiters()

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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.has_pod(namespace, name, uid):
                    await self._changed.wait()
        return self.has_pod(namespace, name, uid)

    def _store(self, pod: views.Pod, before: "Pending | None") -> None:
        key = _get_key(pod.metadata)
        self.uninjected.upsert(pod)
        if not pod.spec.node_name and _may_opt_in(pod):
            self._pending[key] = Pending(pod, _collect_outdated(pod, before))
            self._other_uids.pop(key, None)
        else:
            self._other_uids[key] = pod.metadata.uid
            self._pending.pop(key, None)

    def _wake_waiters(self) -> None:
        """Wake all current waiters. Later waiters wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()


class Pending(msgspec.Struct, frozen=True):
    """A pod without a node. `outdated` maps annotations to values they had before they were changed or removed."""

    pod: views.Pod
    outdated: Mapping[str, frozenset[str]] = {}


class State:
    """All caches, and the facts that an admission reads from them."""

    def __init__(self) -> None:
        self.watched = False  # True if an API server feeds the caches; a snapshot file is less complete
        self.namespaces = Namespaces()
        self.networks = Networks()
        self.nodes = Nodes()
        self.pods = Pods()
        self.hyper_nodes = HyperNodes()
        self.devices = devices.Devices()
        self.claim_templates = claim_cache.ClaimTemplates()
        self.claiming_pods = claim_cache.ClaimingPods()

    def get_node(self, name: str) -> node_views.Node | None:
        """Return a node, with the domains of its HyperNodes added to its labels."""
        node = self.nodes.by_name.get(name)
        if node is None:
            self.hyper_nodes.tree.forget(name)
            return None
        domains = self.hyper_nodes.tree.read_values(name, node.metadata.labels)
        if not domains:
            return node
        metadata = msgspec.structs.replace(node.metadata, labels_or_none={**node.metadata.labels, **domains})
        return msgspec.structs.replace(node, metadata=metadata)

    def build_facts(self, namespace: str) -> facts.ClusterFacts:
        """Return the current facts. Valid until the caller's next await, because the maps are not copied."""
        return facts.ClusterFacts(
            namespace=namespace,
            namespace_labels=self.namespaces.labels.get(namespace),
            watched=self.watched,
            networks=self.networks.resources,
            offered=self.nodes.offered,
            extended=self.devices.extended,
            claim_templates=self.claim_templates.classes,
            # none shrinks, so equal sums mean equal versions
            version=self.networks.version + self.nodes.version + self.devices.version + self.claim_templates.version,
        )


def _get_key(metadata: views.ObjectMeta) -> Key:
    return (sys.intern(metadata.namespace), metadata.name)  # one string for all pods of a namespace


def _get_resource(network: views.NetworkAttachmentDefinition) -> str | None:
    return network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None


def _list_resources(node: node_views.Node) -> frozenset[str]:
    return frozenset(name for name, amount in node.status.allocatable.items() if _is_positive(amount))


def _is_positive(amount: views.RawQuantity) -> bool:
    try:
        return quantity.parse(amount) > 0
    except quantity.InvalidQuantityError:
        return False


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
