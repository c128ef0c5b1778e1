"""Writes the injection record (docs/interface.md 5), and limits the size of a pod's annotations (1.5).

The record depends only on the injected pod, so that planning it again gives the same text. A value that a user wrote
there is ignored.
"""

from collections.abc import Mapping

import msgspec

from railwright.fabric import intent, names, version, views
from railwright.fabric.injection import context, drafts
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_OWN_ANNOTATIONS = (names.INJECTION, names.NCCL_CONF)  # a user's values are replaced
MAX_ANNOTATIONS = 256 * 1024  # bytes of all keys and values (apimachinery TotalAnnotationSizeLimitB)


def check_size(pod: views.Pod) -> None:
    """Raise RefusedError if the user's annotations already exceed the limit, before they are parsed."""
    size = _measure({key: value for key, value in pod.metadata.annotations.items() if key not in _OWN_ANNOTATIONS})
    if size > MAX_ANNOTATIONS:
        raise reasons.RefusedError(
            "too-large", f"annotations are {size} bytes; the limit is {MAX_ANNOTATIONS}: remove some of them"
        )


def write(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Write the record into a draft with all other edits. Raises RefusedError if the other annotations do not fit."""
    text = _format_record(draft, ctx)
    annotations = draft.pod.metadata.annotations
    size = _measure({key: value for key, value in annotations.items() if key != names.INJECTION})
    if size > MAX_ANNOTATIONS and draft.annotation_keys:
        raise reasons.RefusedError(
            "too-large",
            f"annotations would be {size} bytes with {', '.join(draft.annotation_keys)}; the limit is "
            f"{MAX_ANNOTATIONS}: remove some of the pod's own",
        )
    if size + _measure({names.INJECTION: text}) > MAX_ANNOTATIONS:
        full = reasons.Reason(
            AdmissionCode.ANNOTATIONS_FULL,
            f"annotation {names.INJECTION} is left out: the pod's annotations are at their limit of 256 KiB",
            fix="shorten some of them",
        )
        draft.warn(full)
        text = ""  # removes a record that a user may have forged
    if annotations.get(names.INJECTION, "") != text:
        draft.set_annotation(names.INJECTION, text, drafts.Cause("", "the record of this injection"))


def _format_record(draft: drafts.Draft, ctx: context.InjectionContext) -> str:
    record = intent.Record(
        version=version.VERSION,
        policy=ctx.policy.digest,
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=tuple([draft.pod.spec.containers[index].name for index in ctx.targets]) if ctx.role.rails else (),
        rails=ctx.selected.names,
        added=tuple(draft.entries),
        user_values=draft.user_values,
        skipped=draft.skipped,
        reasons={entry: code for entry, code in draft.entries.items() if code is not None},
    )
    return msgspec.json.encode(record).decode()


def _measure(annotations: Mapping[str, str]) -> int:
    """Return the bytes of keys and values in UTF-8, as the API server counts them against MAX_ANNOTATIONS."""
    return sum([len(text.encode(errors="replace")) for pair in annotations.items() for text in pair])
