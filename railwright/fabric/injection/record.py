"""Writes the injection record (docs/interface.md 5), and limits the size of a pod's annotations (1.5).

The record depends only on the injected pod, so that planning it again gives the same text. A value that a user wrote
there is ignored.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, version, views
from railwright.fabric.injection import context, env_tables, pod_changes
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import AdmissionCode

_OWN_ANNOTATIONS = (names.INJECTION, names.NCCL_CONF)  # a user's values are replaced
MAX_ANNOTATIONS = 256 * 1024  # bytes of all keys and values (apimachinery TotalAnnotationSizeLimitB)
_MAX_CHARACTER = 4  # bytes in UTF-8
_TOO_LARGE = reasons.make(AdmissionCode.RECORD_TOO_LARGE)


def check_size(pod: views.Pod) -> None:
    """Raise RefusedError if the user's annotations already exceed the limit, before they are parsed."""
    annotations = pod.metadata.annotations
    if not _may_exceed(annotations):
        return
    size = measure(annotations) - sum(
        len(key) + _count_bytes(annotations[key]) for key in _OWN_ANNOTATIONS if key in annotations
    )
    if size > MAX_ANNOTATIONS:
        raise reasons.RefusedError(
            "annotations", f"annotations are {size} bytes; the limit is {MAX_ANNOTATIONS}: remove some of them"
        )


def write(
    pod: views.Pod, ctx: context.InjectionContext, contribution: pod_changes.Contribution
) -> tuple[tuple[pod_changes.SetAnnotation, ...], tuple[reasons.Reason, ...]]:
    """Return the change that writes the record, and warnings. `pod` has all other changes.

    Raises RefusedError if the other annotations do not fit.
    """
    text = _format_record(pod, ctx, contribution)
    annotations = pod.metadata.annotations
    warnings: tuple[reasons.Reason, ...] = ()
    if _may_exceed({**annotations, names.INJECTION: text}):
        size = measure({key: value for key, value in annotations.items() if key != names.INJECTION})
        _check_limit(size, contribution)
        if size + len(names.INJECTION) + len(text.encode()) > MAX_ANNOTATIONS:
            warnings = (_TOO_LARGE,)
            text = ""  # removes a record that a user may have forged
    if annotations.get(names.INJECTION, "") == text:
        return (), warnings
    change = pod_changes.SetAnnotation(entry="", reason="the record of this injection", key=names.INJECTION, value=text)
    return (change,), warnings


def _format_record(pod: views.Pod, ctx: context.InjectionContext, contribution: pod_changes.Contribution) -> str:
    record = intent.Record(
        version=version.VERSION,
        policy=ctx.policy.digest,
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=tuple(pod.spec.containers[index].name for index in ctx.targets) if ctx.role.rails else (),
        rails=tuple(rail.name for rail in ctx.rails),
        added=contribution.entries,
        user_values=contribution.user_values,
        skipped={entry: rendering.record(skip_reason) for entry, skip_reason in contribution.skipped.items()},
        reasons=_encode_reasons(contribution.entries, contribution.recorded),
    )
    return msgspec.json.encode(record).decode()


def _encode_reasons(entries: Sequence[str], tables: Sequence[env_tables.RecordedReasons]) -> msgspec.Raw:
    member_by_entry = {entry: member for table in tables for entry, member in table.items()}
    members = [member_by_entry[entry] for entry in entries if entry in member_by_entry]
    return msgspec.Raw(b"{" + b",".join(members) + b"}")


def _may_exceed(annotations: Mapping[str, str]) -> bool:
    """True unless the number of characters shows that the annotations are below the limit."""
    characters = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    return characters * _MAX_CHARACTER > MAX_ANNOTATIONS


def measure(annotations: Mapping[str, str]) -> int:
    """Return the bytes as the API server counts them against MAX_ANNOTATIONS."""
    return sum([_count_bytes(key) + _count_bytes(value) for key, value in annotations.items()])


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _check_limit(size: int, contribution: pod_changes.Contribution) -> None:
    own_keys = [change.key for change in contribution.changes if isinstance(change, pod_changes.SetAnnotation)]
    if size > MAX_ANNOTATIONS and own_keys:
        raise reasons.RefusedError(
            "annotations",
            f"annotations would be {size} bytes with {', '.join(own_keys)}; the limit is {MAX_ANNOTATIONS}: "
            "remove some of the pod's own",
        )
