"""The record of a gang's topology: an annotation of its pod templates, and so of its pods (docs/interface.md 5.2)."""

import functools

import msgspec

from railwright.fabric import names, views
from railwright.fabric.reasons.reason import RecordedReason

JOB_SCHEDULING = "/spec/scheduling"  # in `fields`: of a Job of Kubernetes
_MAX_TEXT = 2048  # characters of a record that is read; a real one has some hundred


class TopologyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the annotation `topology`. `reason` says why it was written, or why nothing was."""

    scheduler: str = ""
    mode: str = ""
    level: str = ""  # key that the fields name
    fields: tuple[str, ...] = ()  # JSON pointers of the workload's fields that were written
    annotations: tuple[str, ...] = ()  # keys that were written to this template
    reason: RecordedReason | None = None


_NO_RECORD = TopologyRecord()
_decode = msgspec.json.Decoder(TopologyRecord).decode


def read(pod: views.Pod) -> TopologyRecord:
    """Return the record of a pod or pod template; an empty one if it is absent or invalid."""
    text = pod.metadata.annotations.get(names.TOPOLOGY, "")
    return _read(text) if 0 < len(text) <= _MAX_TEXT else _NO_RECORD


@functools.lru_cache(maxsize=256)  # the pods of a gang have one text
def _read(text: str) -> TopologyRecord:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return _NO_RECORD
