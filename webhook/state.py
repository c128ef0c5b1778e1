"""What this server knows of the cluster: reducers that sources feed, and the facts handlers decide on.

Owns which excerpt of each object is kept. One event loop owns it; handlers read it without waiting. Refuses to know
where objects come from.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import hypernodes, names, quantity, views, words
from railwright.fabric.injection import accelerators, facts
from webhook import uninjected

Key = tuple[str, str]  # namespace, name


class Namespaces:
    """Labels of namespaces."""

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}

    def replace(self, objects: Sequence[views.Namespace]) -> None:
        """The full list."""
        self.labels = {each.metadata.name: each.metadata.labels for each in objects}

    def upsert(self, obj: views.Namespace) -> None:
        """One appeared or changed."""
        self.labels[obj.metadata.name] = obj.metadata.labels

    def remove(self, obj: views.Namespace) -> None:
        """One is gone."""
        self.labels.pop(obj.metadata.name, None)


class Networks:
    """The resource each NetworkAttachmentDefinition draws on; None until a source has told all of them.

    `version` grows with every change that somebody could notice.
    """

    def __init__(self) -> None:
        self.resources: dict[Key, str | None] | None = None
        self.version = 0

    def replace(self, objects: Sequence[views.NetworkAttachmentDefinition]) -> None:
        """The full list."""
        self.resources = {_key(each.metadata): _resource(each) for each in objects}
        self.version += 1

    def upsert(self, obj: views.NetworkAttachmentDefinition) -> None:
        """One appeared or changed."""
        if self.resources is not None:
            self.resources[_key(obj.metadata)] = _resource(obj)
            self.version += 1

    def remove(self, obj: views.NetworkAttachmentDefinition) -> None:
        """One is gone."""
        if self.resources is not None:
            self.resources.pop(_key(obj.metadata), None)
            self.version += 1


class Nodes:
    """Nodes by name, and which resources some of them offers; None until a source has told all of them.

    `version` grows when what is offered changes, which is seldom: a heartbeat is no change.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, views.Node] = {}
        self.offered: frozenset[str] | None = None
        self.version = 0
        self._counts: Counter[str] = Counter()
        self._of: dict[str, frozenset[str]] = {}
        self._words = words.Words()

    def excerpt(self, node: views.Node) -> views.Node:
        """The node, its labels and amounts in the words of the other nodes: most say the same of themselves."""
        shared = self._words.all_of
        metadata = msgspec.structs.replace(node.metadata, labels_or_none=shared(node.metadata.labels))
        status = msgspec.structs.replace(
            node.status,
            allocatable_or_none=shared(node.status.allocatable),
            capacity_or_none=shared(node.status.capacity),
        )
        return msgspec.structs.replace(node, metadata=metadata, status=status)

    def replace(self, objects: Sequence[views.Node]) -> None:
        """The full list."""
        self.by_name = {each.metadata.name: each for each in objects}
        self._of = {each.metadata.name: _offers(each) for each in objects}
        self._counts = Counter(resource for offers in self._of.values() for resource in offers)
        self._show()

    def upsert(self, obj: views.Node) -> None:
        """One appeared or changed; most changes are heartbeats, which offer what was offered before."""
        self.by_name[obj.metadata.name] = obj
        self._offer(obj.metadata.name, _offers(obj))

    def remove(self, obj: views.Node) -> None:
        """One is gone."""
        self.by_name.pop(obj.metadata.name, None)
        self._offer(obj.metadata.name, frozenset())

    def _offer(self, name: str, offers: frozenset[str]) -> None:
        before = self._of.get(name, frozenset())
        if offers == before:
            return
        self._of[name] = offers
        if not offers:
            del self._of[name]
        self._counts.update(offers - before)
        self._counts.subtract(before - offers)
        self._counts = +self._counts  # drops those nobody offers any more
        if self.offered is not None:
            self._show()

    def _show(self) -> None:
        offered = frozenset(self._counts)
        if offered != self.offered:
            self.offered = offered
            self.version += 1


class HyperNodes:
    """Volcano's HyperNodes, which name the domains of nodes under the preset `volcano`."""

    def __init__(self) -> None:
        self.tree = hypernodes.Tree()

    def replace(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """The full list."""
        self.tree.replace(objects)

    def upsert(self, obj: hypernodes.HyperNode) -> None:
        """One appeared or changed."""
        self.tree.upsert(obj)

    def remove(self, obj: hypernodes.HyperNode) -> None:
        """One is gone."""
        self.tree.remove(obj.metadata.name)


class Pods:
    """Pods that may have opted in and await a node, and the uids of all others; whoever waits is told of news.

    A bound pod is bound for good, so that nothing but its uid is kept: of a large cluster only the pending pods.
    """

    def __init__(self) -> None:
        self.uninjected = uninjected.Uninjected()
        self._pending: dict[Key, Pending] = {}
        self._others: dict[Key, str] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._pending)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """The full list."""
        before = self._pending
        self._pending, self._others = {}, {}
        self.uninjected.clear()
        for each in objects:
            self._take(each, before.get(_key(each.metadata)))
        self._tell()

    def upsert(self, obj: views.Pod) -> None:
        """One appeared or changed."""
        self._take(obj, self._pending.get(_key(obj.metadata)))
        self._tell()

    def remove(self, obj: views.Pod) -> None:
        """One is gone."""
        self._pending.pop(_key(obj.metadata), None)
        self._others.pop(_key(obj.metadata), None)
        self.uninjected.forget(*_key(obj.metadata))

    def find(self, namespace: str, name: str, uid: str) -> "Pending | None":
        """A pod that may have opted in. With a uid, a pod of the same name that was there before is not it."""
        found = self._pending.get((namespace, name))
        return found if found is not None and uid in {"", found.pod.metadata.uid} else None

    def knows(self, namespace: str, name: str, uid: str) -> bool:
        """True when a source has told of this very pod."""
        known = self._others.get((namespace, name))
        return (known is not None and uid in {"", known}) or self.find(namespace, name, uid) is not None

    async def wait(self, namespace: str, name: str, uid: str, seconds: float) -> bool:
        """Wait until the pod is known; False if it was not within that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.knows(namespace, name, uid):
                    await self._news.wait()
        return self.knows(namespace, name, uid)

    def _take(self, pod: views.Pod, before: "Pending | None") -> None:
        key = _key(pod.metadata)
        self.uninjected.see(pod)
        if not pod.spec.node_name and _may_opt_in(pod):
            self._pending[key] = Pending(pod, _outdated(pod, before))
            self._others.pop(key, None)
        else:
            self._others[key] = pod.metadata.uid
            self._pending.pop(key, None)

    def _tell(self) -> None:
        """Wake all who wait now; who comes later waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()


class Pending(msgspec.Struct, frozen=True):
    """A pod that awaits a node. `outdated`: values its annotations had before they were changed or removed."""

    pod: views.Pod
    outdated: Mapping[str, frozenset[str]] = {}


class State:
    """All reducers, and the excerpt of them that one admission decides on."""

    def __init__(self) -> None:
        self.watched = False  # True where a cluster feeds it, which has more to tell than a file
        self.namespaces = Namespaces()
        self.networks = Networks()
        self.nodes = Nodes()
        self.pods = Pods()
        self.hyper_nodes = HyperNodes()

    def node(self, name: str) -> views.Node | None:
        """A node, with the domains its HyperNodes give it among its labels."""
        found = self.nodes.by_name.get(name)
        if found is None:
            self.hyper_nodes.tree.forget(name)
            return None
        domains = self.hyper_nodes.tree.values(name, found.metadata.labels)
        if not domains:
            return found
        metadata = msgspec.structs.replace(found.metadata, labels_or_none={**found.metadata.labels, **domains})
        return msgspec.structs.replace(found, metadata=metadata)

    def facts(self, namespace: str) -> facts.Facts:
        """What is known now. Valid until the caller next waits: the maps in it are the caches themselves."""
        return facts.Facts(
            namespace=namespace,
            namespace_labels=self.namespaces.labels.get(namespace),
            watched=self.watched,
            networks=self.networks.resources,
            offered=self.nodes.offered,
            version=self.networks.version + self.nodes.version,  # each only grows, so equal sums are one state
        )


def _key(metadata: views.ObjectMeta) -> Key:
    return (sys.intern(metadata.namespace), metadata.name)  # one text for all pods of a namespace


def _resource(network: views.NetworkAttachmentDefinition) -> str | None:
    return network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None


def _offers(node: views.Node) -> frozenset[str]:
    return frozenset(name for name, amount in node.status.allocatable.items() if _positive(amount))


def _positive(amount: views.Written) -> bool:
    try:
        return quantity.parse(amount) > 0
    except quantity.InvalidQuantityError:
        return False


def _may_opt_in(pod: views.Pod) -> bool:
    """True where a label or a namespace's label may have opted the pod in. A record need not be there (ruling 5)."""
    return (
        names.FABRIC in pod.metadata.labels
        or names.INJECTION in pod.metadata.annotations
        or any(map(accelerators.extended, pod.spec.containers))
    )


def _outdated(pod: views.Pod, before: Pending | None) -> Mapping[str, frozenset[str]]:
    if before is None or before.pod.metadata.uid != pod.metadata.uid:
        return {}
    now, then = pod.metadata.annotations, before.pod.metadata.annotations
    if now == then:
        return before.outdated
    changed = {key: frozenset({value}) for key, value in then.items() if now.get(key) != value}
    return {key: before.outdated.get(key, _NONE) | changed.get(key, _NONE) for key in {**before.outdated, **changed}}


_NONE: frozenset[str] = frozenset()
