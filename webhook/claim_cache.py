"""The webhook's caches of claim templates, and of the pods that name them.

Not thread-safe: used by one event loop.
"""

from collections.abc import Callable, Sequence

from railwright.fabric import views
from railwright.fabric.claims import claim_templates, objects

Key = tuple[str, str]  # namespace, name


class ClaimTemplates:
    """ResourceClaimTemplates: those with a name of railwright and its content, and the DeviceClasses of all others.

    `version` grows with every change of the others.
    """

    def __init__(self) -> None:
        self.own: set[Key] = set()
        self.classes: dict[Key, frozenset[str]] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, objects_listed: Sequence[objects.ResourceClaimTemplate]) -> None:
        """Replace all templates."""
        self.own, self.classes = set(), {}
        self.version += 1
        for template in objects_listed:
            self._store(template)
        self.on_change()

    def upsert(self, obj: objects.ResourceClaimTemplate) -> None:
        """Add or update a template."""
        self._forget(obj.metadata.key)
        self._store(obj)
        self.on_change()

    def remove(self, obj: objects.ResourceClaimTemplate) -> None:
        """Remove a template."""
        self._forget(obj.metadata.key)
        self.on_change()

    def _store(self, template: objects.ResourceClaimTemplate) -> None:
        key = template.metadata.key
        if claim_templates.has_content_of_name(template.metadata.name, template.spec.spec.devices):
            self.own.add(key)
        else:
            self.classes[key] = template.device_classes
            self.version += 1

    def _forget(self, key: Key) -> None:
        self.own.discard(key)
        self.version += self.classes.pop(key, None) is not None


class WaitingPods:
    """Pods that wait for a node and name templates of railwright: `by_template` has them by template and by pod."""

    def __init__(self) -> None:
        self.by_template: dict[Key, dict[Key, views.Pod]] = {}
        self._templates_by_pod: dict[Key, Sequence[Key]] = {}
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, objects_listed: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        self.by_template.clear()
        self._templates_by_pod.clear()
        for pod in objects_listed:
            self.upsert(pod)
        self.on_change()

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod."""
        self.remove(obj)
        templates = list_templates(obj)
        if templates and not obj.spec.node_name and not obj.status.has_ended:
            self._templates_by_pod[obj.metadata.key] = templates
            for template in templates:
                self.by_template.setdefault(template, {})[obj.metadata.key] = obj
            self.on_change()

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod, of which only the metadata is read: a deletion has no more."""
        for template in self._templates_by_pod.pop(obj.metadata.key, ()):
            pods = self.by_template[template]
            pods.pop(obj.metadata.key, None)
            if not pods:
                del self.by_template[template]


def list_templates(pod: views.Pod) -> Sequence[Key]:
    """Return the templates of railwright that a pod names."""
    return [(pod.metadata.namespace, claim.template) for claim in claim_templates.list_claims(pod)]
