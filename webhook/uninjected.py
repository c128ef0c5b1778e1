"""Live pods that opted in and carry no record of an injection: what this whole project is there to prevent.

Owns the count by fabric, kept up with the watch; which pods count is `railwright.fabric.injection.missed`'s rule. They
come from times without us: created before the installation, or while the webhook's configuration was deleted or let
pods pass. Knows no metric and no sentence.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from railwright.fabric import names, views
from railwright.fabric.injection import missed
from railwright.fabric.policy import model

Key = tuple[str, str]  # namespace, name
LabelsOf = Callable[[str], Mapping[str, str] | None]
"""The labels of a namespace; None where it is not known."""

UNKNOWN = "unknown"  # a label that names no fabric of the policy: no label of a metric
_NOWHERE: frozenset[str] = frozenset()


class _Candidate(NamedTuple):
    """What decides, beside namespace and policy as they are when somebody counts, whether a pod opted in."""

    namespace: str
    label: str | None
    requested: frozenset[str] = frozenset()  # extended resources, read only where the pod has no label of its own


class Uninjected:
    """The pods without a record, by namespace and label; of a healthy cluster those whose namespace never opted in."""

    def __init__(self) -> None:
        self._of: dict[Key, _Candidate] = {}
        self._counts: Counter[_Candidate] = Counter()

    def clear(self) -> None:
        """Forget all: a full list follows."""
        self._of.clear()
        self._counts.clear()

    def see(self, pod: views.Pod) -> None:
        """A pod appeared or changed."""
        candidate = _candidate(pod)
        key = pod.metadata.namespace, pod.metadata.name
        self.forget(*key)
        if candidate is not None:
            self._of[key] = candidate = _shared(candidate)
            self._counts[candidate] += 1

    def forget(self, namespace: str, name: str) -> None:
        """A pod is gone."""
        if (candidate := self._of.pop((namespace, name), None)) is not None:
            self._counts[candidate] -= 1
            if not self._counts[candidate]:
                del self._counts[candidate]

    def count(
        self, policy: model.Policy | None, labels_of: LabelsOf, excluded: Collection[str] = missed.ALWAYS_EXCLUDED
    ) -> Mapping[str, int]:
        """How many by fabric: every fabric of the policy, 0 among the numbers, and UNKNOWN for any other label.

        `excluded`: the namespaces that the webhook is not called for.
        """
        document = policy.document if policy else None
        pods_by_fabric = dict.fromkeys((*(document.fabrics if document else ()), UNKNOWN), 0)
        accelerators = document.accelerators if document else None
        for candidate, pods in self._counts.items():
            if candidate.namespace not in excluded:
                namespace_labels = labels_of(candidate.namespace)
                label = missed.resolve_label(candidate.label, candidate.requested, namespace_labels, accelerators)
                if label is not None:
                    pods_by_fabric[_fabric(label, document)] += pods
        return pods_by_fabric


@functools.lru_cache(maxsize=4096)
def _shared(candidate: _Candidate) -> _Candidate:
    """One object for all equal ones: there may be as many as pods."""
    return candidate


def _candidate(pod: views.Pod) -> _Candidate | None:
    """What may opt the pod in; None where nothing does, or no record is missing on it."""
    if not missed.lacks_injection(pod, _NOWHERE):
        return None
    label = pod.metadata.labels.get(names.FABRIC)
    if label is not None:
        return None if label == names.FABRIC_NONE else _Candidate(pod.metadata.namespace, label)
    requested = missed.list_requested(pod)
    return _Candidate(pod.metadata.namespace, None, requested) if requested else None


def _fabric(label: str, document: model.FabricPolicy | None) -> str:
    if document is None:
        return UNKNOWN
    if label == names.FABRIC_DEFAULT and label not in document.fabrics:
        label = document.default_fabric or UNKNOWN
    return label if label in document.fabrics else UNKNOWN
