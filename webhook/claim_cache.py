"""The webhook's caches of claim templates, and of the pods and Kueue's Workloads that name them.

Not thread-safe: used by one event loop.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from railwright.fabric import bounded_cache, kueue, names, views
from railwright.fabric.claims import claim_templates, objects

Key = tuple[str, str]  # namespace, name
T = TypeVar("T", views.Pod, kueue.Workload)
_MAX_REMOVED = 1024  # templates whose rails are remembered after their removal
_MAX_RAILS = 1024  # read of a template: anybody who can create templates can write its annotation
_REMEMBERED_SECONDS = 60.0  # longer than a pod stays unobserved


class OwnTemplate(msgspec.Struct, frozen=True):
    """A template that railwright wrote. `rails` are those of its pods, () if the scheduler chooses them."""

    uid: str
    fabric: str
    rails: tuple[str, ...]


class ClaimTemplates:
    """ResourceClaimTemplates: those that railwright wrote, and the DeviceClasses of all others.

    `version` grows with every change of the others.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.own: dict[Key, OwnTemplate] = {}
        self.classes: dict[Key, frozenset[str]] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        self._clock = clock
        # rails of own templates that are gone, with the time
        self._removed: bounded_cache.BoundedCache[Key, tuple[tuple[str, ...], float]]
        self._removed = bounded_cache.BoundedCache(_MAX_REMOVED)

    def __contains__(self, key: Key) -> bool:
        return key in self.own or key in self.classes

    def find_rails(self, key: Key) -> tuple[str, ...]:
        """Return the rails of an own template that exists, or that was removed a moment ago; () if there is none.

        Pods may have claims of a template that was just removed. The others of their gang then need the same rails.
        """
        template = self.own.get(key)
        if template is not None:
            return template.rails
        rails, removed_at = self._removed.get(key) or ((), 0.0)
        return rails if self._clock() - removed_at < _REMEMBERED_SECONDS else ()

    def replace(self, objects_listed: Sequence[objects.ResourceClaimTemplate]) -> None:
        """Replace all templates."""
        before = self.own
        self.own, self.classes = {}, {}
        for template in objects_listed:
            self._store(template)
        for key in before.keys() - self.own.keys():
            self._removed.add(key, (before[key].rails, self._clock()))
        self.version += 1
        self.on_change()

    def upsert(self, obj: objects.ResourceClaimTemplate) -> None:
        """Add or update a template."""
        if not self._store(obj):
            self.version += 1
        self.on_change()

    def remove(self, obj: objects.ResourceClaimTemplate) -> None:
        """Remove a template."""
        key = obj.metadata.key
        if template := self.own.pop(key, None):
            self._removed.add(key, (template.rails, self._clock()))
        elif self.classes.pop(key, None) is not None:
            self.version += 1
        self.on_change()

    def _store(self, template: objects.ResourceClaimTemplate) -> bool:
        """Store a template. Return True for one of railwright's."""
        metadata, key = template.metadata, template.metadata.key
        if metadata.labels.get(names.MANAGED_BY) != names.OWNER or not claim_templates.is_own_name(metadata.name):
            self.classes[key] = template.device_classes
            return False
        self.own[key] = OwnTemplate(metadata.uid, metadata.labels.get(names.FABRIC, ""), read_rails(template))
        return True


class Claimants(Generic[T]):
    """Objects whose pods name templates of railwright, by template. `list_pods` returns the pods that an object has or
    will have; none if it is finished. A pod waits for its templates until it has a node.
    """

    def __init__(self, list_pods: Callable[[T], Iterable[views.Pod]]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._list_pods: Callable[[T], Iterable[views.Pod]] = list_pods
        self._keys_of: dict[Key, tuple[Key, ...]] = {}  # object -> its templates
        self._pods_of: dict[Key, dict[Key, views.Pod | None]] = {}  # template -> pods by object; None: waits no more

    @property
    def templates(self) -> Collection[Key]:
        """Return the templates that pods name."""
        return self._pods_of.keys()

    def count_waiting(self, template: Key) -> int:
        """Return the number of objects with a waiting pod that names a template."""
        return sum(pod is not None for pod in self._pods_of.get(template, _NO_PODS).values())

    def find_waiting(self, template: Key) -> views.Pod | None:
        """Return a waiting pod that names a template, or None."""
        return next((pod for pod in self._pods_of.get(template, _NO_PODS).values() if pod is not None), None)

    def replace(self, objects_listed: Sequence[T]) -> None:
        """Replace all objects."""
        self._keys_of.clear()
        self._pods_of.clear()
        for obj in objects_listed:
            self._store(obj)
        self.on_change()

    def upsert(self, obj: T) -> None:
        """Add or update an object."""
        was_known = self._forget(obj)
        if self._store(obj) or was_known:
            self.on_change()

    def remove(self, obj: T) -> None:
        """Remove an object."""
        self._forget(obj)

    def _store(self, obj: T) -> bool:
        """Store an object. Return False if its pods name no template of railwright."""
        pods = {
            (pod.metadata.namespace, template): None if pod.spec.node_name else pod
            for pod in self._list_pods(obj)
            for template in claim_templates.list_templates(pod)
        }
        key = obj.metadata.key
        if pods:
            self._keys_of[key] = tuple(pods)
        for template, pod in pods.items():
            self._pods_of.setdefault(template, {})[key] = pod
        return bool(pods)

    def _forget(self, obj: T) -> bool:
        """Remove an object. Return False if it was not stored."""
        key = obj.metadata.key
        templates = self._keys_of.pop(key, ())
        for template in templates:
            pods = self._pods_of[template]
            del pods[key]
            if not pods:
                del self._pods_of[template]
        return bool(templates)


def list_pod(pod: views.Pod) -> Iterable[views.Pod]:
    """Return the pod, unless it is finished."""
    return () if pod.status.has_ended else (pod,)


def read_rails(template: objects.ResourceClaimTemplate) -> tuple[str, ...]:
    """Return the rails that railwright chose for a template."""
    rails = template.metadata.annotations.get(names.RAILS, "").split(",", _MAX_RAILS)[:_MAX_RAILS]
    return tuple([name for name in rails if name])


_NO_PODS: Mapping[Key, views.Pod | None] = {}
