"""The record of CONTRACT section 5: what was done, by which policy; and whether everything fits (ruling 5).

Owns the JSON and the bound of all annotations. The record is a function of the finished pod, so that planning an
injected pod again gives the same text; what a user wrote there decides nothing.
"""

import functools
from collections.abc import Iterable, Mapping

import msgspec

from railwright.fabric import names, version, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import model

_WRITTEN = (names.INJECTION, names.NCCL_CONF)  # what a user wrote there does not stay
MAX_ANNOTATIONS = 256 * 1024  # bytes of all keys and values (apimachinery TotalAnnotationSizeLimitB)


class Record(msgspec.Struct, frozen=True):
    """The annotation's content, keys in this order. `reasons` is ours: why each variable of `added`, and its source."""

    version: str
    policy: str
    fabric: str
    role: str
    containers: tuple[str, ...]
    rails: tuple[str, ...]
    added: tuple[str, ...]
    kept: Mapping[str, tuple[str, ...]]
    skipped: Mapping[str, str]
    reasons: msgspec.Raw


def check_given(pod: views.Pod) -> None:
    """Raises RefusedError where what the user wrote is beyond the limit already: nobody may make us read megabytes."""
    annotations = pod.metadata.annotations
    size = size_of(annotations) - sum(len(key) + _bytes(annotations[key]) for key in _WRITTEN if key in annotations)
    if size > MAX_ANNOTATIONS:
        raise model.RefusedError(
            "annotations", f"annotations are {size} bytes; the limit is {MAX_ANNOTATIONS}: remove some of them"
        )


def write(aim: aims.Aim, part: model.Part) -> tuple[tuple[model.SetAnnotation, ...], tuple[str, ...]]:
    """The change that writes the record, and warnings. Raises RefusedError where the rest does not fit."""
    there = aim.pod.metadata.annotations.get(names.INJECTION)
    text = _text(aim, part)
    size = _size(aim, part.changes)
    _check(size, part)
    warnings: tuple[str, ...] = ()
    if size + len(names.INJECTION) + len(text.encode()) > MAX_ANNOTATIONS:
        limit = "the pod's annotations are at their limit of 256 KiB; shorten some of them"
        warnings = (f"annotation {names.INJECTION} is left out: {limit}",)
        text = ""  # empties what a user may have forged
    if (there or "") == text:
        return (), warnings
    change = model.SetAnnotation(entry="", reason="the record of this injection", key=names.INJECTION, value=text)
    return (change,), warnings


def _text(aim: aims.Aim, part: model.Part) -> str:
    record = Record(
        version=version.VERSION,
        policy=aim.policy.digest,
        fabric=aim.fabric_name,
        role=aim.role.word,
        containers=tuple(aim.container(index).name for index in aim.targets) if aim.role.rails else (),
        rails=tuple(chosen.name for chosen in aim.rails),
        added=part.entries,
        kept=part.kept,
        skipped=part.skipped,
        reasons=_reasons(part.entries, part.reasons),
    )
    return msgspec.json.encode(record).decode()


@functools.lru_cache(maxsize=512)  # the same for all pods of a job, and a kilobyte to encode
def _reasons(entries: tuple[str, ...], known: tuple[model.Reasons, ...]) -> msgspec.Raw:
    of = {entry: reason for each in known for entry, reason in each.of.items()}
    return msgspec.Raw(msgspec.json.encode({entry: of[entry] for entry in entries if entry in of}))


def _size(aim: aims.Aim, changes: Iterable[model.AnyChange]) -> int:
    """Bytes of all annotations but the record, after the changes."""
    annotations = dict(aim.pod.metadata.annotations)
    annotations.pop(names.INJECTION, None)
    for change in changes:
        if isinstance(change, model.SetAnnotation):
            annotations[change.key] = change.value
    return size_of(annotations)


def size_of(annotations: Mapping[str, str]) -> int:
    """Bytes as the API server counts them against MAX_ANNOTATIONS."""
    return sum([_bytes(key) + _bytes(value) for key, value in annotations.items()])


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _check(size: int, part: model.Part) -> None:
    ours = [change.key for change in part.changes if isinstance(change, model.SetAnnotation)]
    if size > MAX_ANNOTATIONS and ours:
        raise model.RefusedError(
            "annotations",
            f"annotations would be {size} bytes with {model.listed(ours)}; the limit is {MAX_ANNOTATIONS}: "
            "remove some of the pod's own",
        )
