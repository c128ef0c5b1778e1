"""The pods that opted in, with as little of each as a question about it needs.

Owns which pods those are and what is kept of them; a reducer fed by the same watch as the fleet. Where a pod is and
what it takes, the fleet knows. What admission did to them goes on to `admissions`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, views, workload
from railwright.fabric.overview import admissions
from railwright.fabric.placement import ask
from railwright.fabric.workloads import registry

_KEPT_SPECS = 4096  # different constraints; the mates of a gang have the same
_READ = (
    names.FABRIC,
    names.INJECTION,
    names.RAILS,
    *(key for framework in registry.FRAMEWORKS for key in framework.gang_annotations),
)


class Members:
    """Opted-in pods by uid and by gang. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self.admissions = admissions.Admissions()
        self.generation = 0  # grows with every change
        self._pods: dict[str, views.Pod] = {}
        self._gangs: dict[workload.GangKey, dict[str, views.Pod]] = defaultdict(dict)
        self._specs: dict[bytes, views.PodSpec] = {}

    @property
    def gangs(self) -> Mapping[workload.GangKey, Mapping[str, views.Pod]]:
        """Gang -> its opted-in pods by uid."""
        return self._gangs

    def pod(self, uid: str) -> views.Pod | None:
        """What is kept of a pod; None where it did not opt in."""
        return self._pods.get(uid)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """The full list."""
        for uid in self._pods.keys() - {pod.metadata.identity for pod in objects}:
            self._forget(uid)
        for pod in objects:
            self.upsert(pod)

    def upsert(self, obj: views.Pod) -> None:
        """A pod appeared or changed."""
        if not _opted_in(obj):
            self.remove(obj)
            return
        self.admissions.upsert(obj)
        uid = obj.metadata.identity
        kept = self._slim(obj)
        if kept == self._pods.get(uid):
            return
        self._forget(uid)
        self._pods[uid] = kept
        if gang := workload.gang_of(obj):
            self._gangs[gang][uid] = kept
        self.generation += 1

    def remove(self, obj: views.Pod) -> None:
        """A pod is gone. What admission did to it stays told."""
        self._forget(obj.metadata.identity)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self.generation += 1
        gang = workload.gang_of(pod)
        if gang in self._gangs:
            self._gangs[gang].pop(uid, None)
            if not self._gangs[gang]:
                del self._gangs[gang]

    def _slim(self, pod: views.Pod) -> views.Pod:
        meta = pod.metadata
        annotations = {key: meta.annotations[key] for key in _READ if key in meta.annotations}
        if names.INJECTION in annotations:  # kilobytes, of which a placement reads two fields
            annotations[names.INJECTION] = admissions.brief(annotations[names.INJECTION])
        return views.Pod(
            metadata=views.ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                labels_or_none=dict(meta.labels),
                annotations_or_none=annotations,
                owner_references_or_none=meta.owner_references_or_none,
            ),
            spec=self._spec(pod.spec),
        )

    def _spec(self, spec: views.PodSpec) -> views.PodSpec:
        """What of a spec places a pod, one object for all that have the same."""
        slim = ask.slim(spec)
        if len(self._specs) >= _KEPT_SPECS:
            self._specs.clear()
        return self._specs.setdefault(msgspec.json.encode(slim), slim)


def _opted_in(pod: views.Pod) -> bool:
    wanted = pod.metadata.labels.get(names.FABRIC, "")
    return wanted != names.FABRIC_NONE and bool(wanted or names.INJECTION in pod.metadata.annotations)
