"""Sums the requests of the pods of DaemonSets and of static pods by node. A gang cannot use that part of a node."""

from collections.abc import Sequence

from railwright.fabric import resources, views

Key = tuple[str, str]  # namespace, name
_CONTROLLERS = frozenset({"DaemonSet", "Node"})  # a static pod is controlled by its Node


class DaemonPods:
    """The requests of such pods by node. `version` grows when those of a node change.

    Not thread-safe: used by one event loop.
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
        is_daemon = node and owner is not None and owner.kind in _CONTROLLERS and not obj.status.has_ended
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


_MAX_SHARED = 4096
