"""Reduces opted-in pods to the fields that scheduling requests and explanations read."""

import msgspec

from railwright.fabric import bounded_cache, intent, names, views
from railwright.fabric.workloads import registry

_MAX_RECORD = 500  # characters of a record that cannot be read
_MAX_SPECS = 4096  # distinct scheduling constraints; all pods of a gang share one
_ANNOTATIONS = (  # that placement reads
    names.FABRIC,
    names.INJECTION,
    names.RAILS,
    *(key for framework in registry.FRAMEWORKS for key in framework.gang_annotations),
)


class PodReducer:
    """Reduces pods. Those with equal specs share one."""

    def __init__(self) -> None:
        self._specs = bounded_cache.BoundedCache[bytes, views.PodSpec](_MAX_SPECS)

    def reduce(self, pod: views.Pod) -> views.Pod | None:
        """Return a pod with only the fields that placement reads; None if it did not opt in."""
        if not intent.is_opted_in(pod):
            return None
        meta, slim = pod.metadata, _trim_spec(pod.spec)
        annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
        if names.INJECTION in annotations:  # kilobytes, of which placement reads two fields
            annotations[names.INJECTION] = _shorten_record(annotations[names.INJECTION])
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
            spec=self._specs.find(msgspec.json.encode(slim), lambda: slim),
        )


def _shorten_record(record: str) -> str:
    """Return an injection record with only the fields that placement reads; an unreadable one is truncated."""
    try:
        fields = intent.decode_record(record)
    except intent.InvalidRecordError:
        return record[:_MAX_RECORD]
    return msgspec.json.encode({"fabric": fields.fabric, "rails": fields.rails}).decode()


def _trim_spec(spec: views.PodSpec) -> views.PodSpec:
    """Return a copy of the spec with scheduling fields only. Containers and volumes may be megabytes."""
    return views.PodSpec(
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        resource_claims=spec.resource_claims,
        scheduler_name=spec.scheduler_name,
        scheduling_group=spec.scheduling_group,
    )
