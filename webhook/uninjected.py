"""Counts running or pending pods that opted in but have no injection record, by fabric.

Such pods were created before railwright was installed, or while the webhook configuration was missing or let pods pass.
The watch keeps the count current. `railwright.fabric.injection.missed` decides which pods count.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from railwright.fabric import intent, names, views
from railwright.fabric.injection import missed
from railwright.fabric.policy import model

Key = tuple[str, str]  # namespace, name
GetLabels = Callable[[str], Mapping[str, str] | None]
"""Returns the labels of a namespace, or None if it is unknown."""

UNKNOWN = "unknown"  # replaces labels that are no fabric of the policy, to bound the metric's label values
_NO_NAMESPACES: frozenset[str] = frozenset()


class _Candidate(NamedTuple):
    """The fields of a pod that decide whether it opted in, given its namespace's labels and the policy."""

    namespace: str
    label: str | None
    requested: frozenset[str] = frozenset()  # missed.list_requested; read only if the pod has no label of its own


class Uninjected:
    """Pods without an injection record, by namespace and label, whether or not their namespace opted in."""

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
        self, policy: model.Policy | None, get_labels: GetLabels, excluded: Collection[str] = missed.ALWAYS_EXCLUDED
    ) -> Mapping[str, int]:
        """Return the number of pods for every fabric of the policy, and for UNKNOWN. Fabrics in audit mode have none.

        `excluded` are the namespaces that the webhook is not called for.
        """
        document = policy.document if policy else None
        pods_by_fabric = dict.fromkeys((*(document.fabrics if document else ()), UNKNOWN), 0)
        accelerators = document.accelerators if document else None
        for candidate, pods in self._counts.items():
            if candidate.namespace not in excluded:
                namespace_labels = get_labels(candidate.namespace)
                label = missed.resolve_label(candidate.label, candidate.requested, namespace_labels, accelerators)
                if label is not None and not missed.is_in_audit(label, document):
                    pods_by_fabric[_get_fabric(label, document)] += pods
        return pods_by_fabric


def _build_candidate(pod: views.Pod) -> _Candidate | None:
    """Return the pod's candidate. None unless the pod may have opted in and has no record."""
    if not missed.lacks_injection(pod, _NO_NAMESPACES):
        return None
    label = pod.metadata.labels.get(names.FABRIC)
    if label is not None:
        return None if label == names.FABRIC_NONE else _Candidate(pod.metadata.namespace, label)
    requested = missed.list_requested(pod)
    return _Candidate(pod.metadata.namespace, None, requested) if requested else None


def _get_fabric(label: str, document: model.FabricPolicy | None) -> str:
    if document is None:
        return UNKNOWN
    name = intent.resolve_default(label, document)
    return name if name in document.fabrics else UNKNOWN
