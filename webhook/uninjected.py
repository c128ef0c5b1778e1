"""Live pods that opted in and carry no record of an injection: what this whole project is there to prevent.

Owns the count, by fabric. They come from times without us: created before the installation, while the webhook's
configuration was deleted or let pods pass, or in a namespace that it does not cover. Knows no metric and no sentence.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fabric import names, views
from fabric.injection import accelerators
from fabric.policy import model

Key = tuple[str, str]  # namespace, name
LabelsOf = Callable[[str], Mapping[str, str] | None]
"""The labels of a namespace; None where it is not known."""

UNKNOWN = "unknown"  # a label that names no fabric of the policy: no label of a metric
_ENDED = frozenset({"Succeeded", "Failed"})
_NO_LABEL = ""  # the namespace's label decides, as it is when somebody counts


class _Candidate(NamedTuple):
    namespace: str
    label: str
    asked: frozenset[str] = frozenset()  # extended resources, one of which may be an accelerator; where no label is


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
        of = _candidate(pod)
        key = pod.metadata.namespace, pod.metadata.name
        self.forget(*key)
        if of is not None:
            self._of[key] = of = _shared(of)
            self._counts[of] += 1

    def forget(self, namespace: str, name: str) -> None:
        """A pod is gone."""
        if (of := self._of.pop((namespace, name), None)) is not None:
            self._counts[of] -= 1
            if not self._counts[of]:
                del self._counts[of]

    def count(self, policy: model.Policy | None, labels_of: LabelsOf) -> Mapping[str, int]:
        """How many by fabric: every fabric of the policy, 0 among the numbers, and UNKNOWN for any other label."""
        document = policy.document if policy else None
        found = dict.fromkeys((*(document.fabrics if document else ()), UNKNOWN), 0)
        for of, pods in self._counts.items():
            if not of.label and document and of.asked.isdisjoint(document.accelerators):
                continue  # its namespace's label is not about it (ruling 2)
            label = of.label or (labels_of(of.namespace) or {}).get(names.FABRIC, names.FABRIC_NONE)
            if label != names.FABRIC_NONE:
                found[_fabric(label, document)] += pods
        return found


@functools.lru_cache(maxsize=4096)
def _shared(of: _Candidate) -> _Candidate:
    """One object for all equal ones: there may be as many as pods."""
    return of


def _candidate(pod: views.Pod) -> _Candidate | None:
    """What may opt the pod in; None where nothing does, where it is well, or has ended."""
    if pod.status.phase in _ENDED or names.INJECTION in pod.metadata.annotations:
        return None
    label = pod.metadata.labels.get(names.FABRIC)
    if label is not None:
        return _Candidate(pod.metadata.namespace, label or UNKNOWN)
    asked = frozenset(name for each in pod.spec.containers for name in accelerators.asked(each))
    return _Candidate(pod.metadata.namespace, _NO_LABEL, asked) if asked else None


def _fabric(label: str, document: model.FabricPolicy | None) -> str:
    if document is None:
        return UNKNOWN
    if label == names.FABRIC_DEFAULT and label not in document.fabrics:
        label = document.default_fabric or UNKNOWN
    return label if label in document.fabrics else UNKNOWN
