"""The webhook's caches of claim templates, and of the pods that wait for templates or hold their devices.

Not thread-safe: used by one event loop.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache, names, views
from railwright.fabric.claims import objects, own_claims

Key = tuple[str, str]  # namespace, name
_FINISHED = frozenset({"Succeeded", "Failed"})
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
        key = _get_key(obj.metadata)
        if template := self.own.pop(key, None):
            self._removed.add(key, (template.rails, self._clock()))
        elif self.classes.pop(key, None) is not None:
            self.version += 1
        self.on_change()

    def _store(self, template: objects.ResourceClaimTemplate) -> bool:
        """Store a template. Return True for one of railwright's."""
        metadata, key = template.metadata, _get_key(template.metadata)
        if metadata.labels.get(names.MANAGED_BY) != names.OWNER or not own_claims.is_own_name(metadata.name):
            self.classes[key] = template.device_classes
            return False
        self.own[key] = OwnTemplate(metadata.uid, metadata.labels.get(names.FABRIC, ""), read_rails(template))
        return True


class ComputeDomains:
    """ComputeDomains that railwright created: their UIDs."""

    def __init__(self) -> None:
        self.own: dict[Key, str] = {}

    def replace(self, objects_listed: Sequence[views.ComputeDomain]) -> None:
        """Replace all ComputeDomains."""
        self.own.clear()
        for domain in objects_listed:
            self.upsert(domain)

    def upsert(self, obj: views.ComputeDomain) -> None:
        """Add or update a ComputeDomain."""
        metadata = obj.metadata
        if metadata.labels.get(names.MANAGED_BY) == names.OWNER and own_claims.is_channel(metadata.name):
            self.own[_get_key(metadata)] = metadata.uid

    def remove(self, obj: views.ComputeDomain) -> None:
        """Remove a ComputeDomain."""
        self.own.pop(_get_key(obj.metadata), None)


class ClaimingPods:
    """Pods that name templates of railwright and are not finished, by template."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._keys_of: dict[Key, tuple[Key, ...]] = {}  # pod -> its templates
        self._pods_of: dict[Key, dict[Key, views.Pod | None]] = {}  # template -> pods; None: the pod is bound

    @property
    def templates(self) -> Collection[Key]:
        """Return the templates that pods name."""
        return self._pods_of.keys()

    def count_waiting(self, template: Key) -> int:
        """Return the number of pods without a node that name a template."""
        return sum(pod is not None for pod in self._pods_of.get(template, _NO_PODS).values())

    def find_waiting(self, template: Key) -> views.Pod | None:
        """Return a pod without a node that names a template, or None."""
        return next((pod for pod in self._pods_of.get(template, _NO_PODS).values() if pod is not None), None)

    def replace(self, pods: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        self._keys_of.clear()
        self._pods_of.clear()
        for pod in pods:
            self._store(pod)
        self.on_change()

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod."""
        key = _get_key(obj.metadata)
        if obj.spec.resource_claims or key in self._keys_of:
            self._forget(key)
            self._store(obj)
            self.on_change()

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._forget(_get_key(obj.metadata))

    def _store(self, pod: views.Pod) -> None:
        if pod.status.phase in _FINISHED:
            return
        key = _get_key(pod.metadata)
        if named := own_claims.list_templates(pod):
            templates = self._keys_of[key] = tuple((pod.metadata.namespace, template) for template in named)
            for template in templates:
                self._pods_of.setdefault(template, {})[key] = None if pod.spec.node_name else pod

    def _forget(self, key: Key) -> None:
        for template in self._keys_of.pop(key, ()):
            pods = self._pods_of[template]
            del pods[key]
            if not pods:
                del self._pods_of[template]


def read_rails(template: objects.ResourceClaimTemplate) -> tuple[str, ...]:
    """Return the rails that railwright chose for a template."""
    rails = template.metadata.annotations.get(names.RAILS, "").split(",", _MAX_RAILS)[:_MAX_RAILS]
    return tuple([name for name in rails if name])


def _get_key(metadata: views.ObjectMeta) -> Key:
    return (metadata.namespace, metadata.name)


_NO_PODS: Mapping[Key, views.Pod | None] = {}
