"""Keeps what scheduling requests and explanations read of opted-in pods: a sink of pods, beside the cluster state.

The cluster state knows nodes and resources of all pods.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache, intent, names, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.workloads import membership, registry

_MAX_RECORD = 500  # characters of a record that cannot be read
_MAX_SPECS = 4096  # distinct scheduling constraints; all pods of a gang share one
_ANNOTATIONS = (  # that placement reads
    names.FABRIC,
    names.INJECTION,
    names.RAILS,
    *(key for framework in registry.FRAMEWORKS for key in framework.gang_annotations),
)


class OptedInPods:
    """Opted-in pods by uid and by gang. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self.generation = 0  # increases with every change
        self._pods: dict[str, views.Pod] = {}
        self._gangs: dict[membership.GangKey, dict[str, views.Pod]] = defaultdict(dict)
        self._specs = bounded_cache.BoundedCache[bytes, views.PodSpec](_MAX_SPECS)

    @property
    def gangs(self) -> Mapping[membership.GangKey, Mapping[str, views.Pod]]:
        """Return the opted-in pods of each gang by uid."""
        return self._gangs

    def get_pod(self, uid: str) -> views.Pod | None:
        """Return the reduced pod; None if it did not opt in."""
        return self._pods.get(uid)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Apply the full list of pods."""
        for uid in self._pods.keys() - {pod.metadata.identity for pod in objects}:
            self._forget(uid)
        for pod in objects:
            self.upsert(pod)

    def upsert(self, obj: views.Pod) -> None:
        """Store a pod, or remove it if it is not opted in."""
        if not intent.is_opted_in(obj):
            self.remove(obj)
            return
        uid = obj.metadata.identity
        reduced = self._reduce(obj)
        if reduced == self._pods.get(uid):
            return
        self._forget(uid)
        self._pods[uid] = reduced
        if gang := membership.find_gang(obj):
            self._gangs[gang][uid] = reduced
        self.generation += 1

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._forget(obj.metadata.identity)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self.generation += 1
        if gang := membership.find_gang(pod):
            self._gangs[gang].pop(uid)
            if not self._gangs[gang]:
                del self._gangs[gang]

    def _reduce(self, pod: views.Pod) -> views.Pod:
        meta, slim = pod.metadata, scheduling_request.trim_spec(pod.spec)
        annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
        if names.INJECTION in annotations:  # kilobytes, of which placement reads two fields
            annotations[names.INJECTION] = shorten_record(annotations[names.INJECTION])
        return views.Pod(
            metadata=views.ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                creation_timestamp=meta.creation_timestamp,
                labels_or_none=dict(meta.labels),
                annotations_or_none=annotations,
                owner_references_or_none=meta.owner_references_or_none,
            ),
            spec=self._specs.find(msgspec.json.encode(slim), lambda: slim),  # pods with equal ones share one object
        )


def shorten_record(record: str) -> str:
    """Return an injection record with only the fields that placement reads; an unreadable one is truncated."""
    try:
        fields = intent.decode_record(record)
    except intent.InvalidRecordError:
        return record[:_MAX_RECORD]
    return msgspec.json.encode({"fabric": fields.fabric, "rails": fields.rails}).decode()
