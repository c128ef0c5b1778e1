"""Warns of railwright's keys that have no effect: misspelt, or in the wrong place.

An author of such a key expects an effect, for example an opt-out. Values are not checked here.
"""

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from railwright.fabric import names, text, views
from railwright.fabric.injection import templates

_PREFIX: Final = f"{names.DOMAIN}/"
_LABEL, _ANNOTATION = "label", "annotation"
_POD_KEYS = (names.RAILS, names.CONTAINERS, names.SKIP, names.DELIVERY)  # annotations that users write
_OWN_KEYS = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF)
_TYPE_BY_KEY = {names.FABRIC: _LABEL, **dict.fromkeys(_POD_KEYS, _ANNOTATION)}  # candidates for a misspelt key
_VALID_LABELS = frozenset({names.FABRIC})
_VALID_ANNOTATIONS = frozenset({*_POD_KEYS, *_OWN_KEYS})
_MAX_WARNINGS = 3  # the API server limits the total length of warnings
_MAX_VALUE = 24  # characters of a value in a warning
_MAX_KEY = 80  # characters of a key in a warning: a valid key of this prefix has at most 77
_MIN_SIMILARITY = 0.6  # difflib's ratio


def check_pod(metadata: views.ObjectMeta) -> tuple[str, ...]:
    """Return warnings about the keys of a pod or of a pod template."""
    return _limit(_check_pod(metadata))


def above(workload: templates.Workload, before: templates.Workload | None = None) -> Iterator[str]:
    """Yield warnings about the keys of a workload, and of the objects in it that contain pod templates.

    Keys that an update does not change are not reported again: controllers update their objects often.
    """
    previous = {} if before is None else _group_by_parent(before)
    for parent, (metadata, template_metadata) in _group_by_parent(workload).items():
        if parent in previous and _select_own_keys(previous[parent][0]) == _select_own_keys(metadata):
            continue
        prefix, kind = (f"{parent}: ", "") if parent else ("", workload.kind.name)
        yield from (prefix + warning for warning in _limit(_check_workload(metadata, kind, template_metadata)))


def _select_own_keys(metadata: views.ObjectMeta) -> list[dict[str, str]]:
    maps = (metadata.labels, metadata.annotations)
    return [{key: value for key, value in keys.items() if key.startswith(_PREFIX)} for keys in maps]


def _group_by_parent(workload: templates.Workload) -> dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]]:
    """Return the metadata of each object that contains templates, with the metadata of those templates, by path."""
    parents: dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]] = {}
    for template in workload.templates:
        for parent, metadata in template.above:
            parents.setdefault(parent, (metadata, {}))[1][template.title] = template.pod.metadata
    return parents


def _check_pod(metadata: views.ObjectMeta) -> Iterator[str]:
    for key, value in metadata.labels.items():
        if key.startswith(_PREFIX) and key not in _VALID_LABELS:
            yield from _explain_wrong_key(metadata, _LABEL, key, value)
    for key, value in metadata.annotations.items():
        if key.startswith(_PREFIX) and key not in _VALID_ANNOTATIONS:
            yield from _explain_wrong_key(metadata, _ANNOTATION, key, value)


def _check_workload(
    metadata: views.ObjectMeta, kind: str, template_metadata: Mapping[str, views.ObjectMeta]
) -> Iterator[str]:
    """Yield warnings about one object. `template_metadata` is the metadata of its pod templates by path."""
    for key_type, keys in ((_LABEL, metadata.labels), (_ANNOTATION, metadata.annotations)):
        for key, value in keys.items():
            if not key.startswith(_PREFIX):
                continue
            if key in _POD_KEYS:
                template_paths = [
                    path for path, template in template_metadata.items() if key not in template.annotations
                ]
                if template_paths:
                    yield _explain_move_to_templates(key_type, key, value, kind, template_paths)
            elif key not in (_VALID_LABELS if key_type == _LABEL else _OWN_KEYS):
                yield from _explain_wrong_key(metadata, key_type, key, value)


def _explain_move_to_templates(key_type: str, key: str, value: str, kind: str, template_paths: Sequence[str]) -> str:
    owner = f" of the {kind}" if kind else ""
    destination = (
        f"the pod template ({template_paths[0]}.metadata)"
        if len(template_paths) == 1
        else "the pod templates it is meant for"
    )
    return (
        f"{_format_key(key_type, key, value)}{owner} has no effect: railwright reads it on pods; move it to the "
        f"annotations of {destination}"
    )


def _explain_wrong_key(metadata: views.ObjectMeta, key_type: str, key: str, value: str) -> Iterator[str]:
    """Yield the warning about a key in the wrong place, unless the right place has the same value."""
    problem = f"{_format_key(key_type, key, value)} has no effect: "
    if key == names.UNINJECTED:
        yield f"{problem}railwright reads it as a label of the namespace; move it there"
    elif key in _OWN_KEYS:
        yield f"{problem}only railwright writes it, as an annotation; remove it"
    elif key in _TYPE_BY_KEY:
        if (metadata.labels if key_type == _ANNOTATION else metadata.annotations).get(key) != value:
            yield f"{problem}railwright reads it as {_add_article(_TYPE_BY_KEY[key])}; move it there"
    else:
        yield f"{problem}railwright has no such key; {_suggest_key(key)}"


def _suggest_key(key: str) -> str:
    key_end = key[len(_PREFIX) : _MAX_KEY].casefold()
    key_by_end = {candidate[len(_PREFIX) :]: candidate for candidate in _TYPE_BY_KEY}
    matches = difflib.get_close_matches(key_end, key_by_end, n=1, cutoff=_MIN_SIMILARITY)
    matches = matches or [end for end in key_by_end if end.rstrip("s") in key_end]
    if matches:
        return f"did you mean {_TYPE_BY_KEY[key_by_end[matches[0]]]} {key_by_end[matches[0]]}?"
    first, *others = [pod_key[len(_PREFIX) :] for pod_key in _POD_KEYS]
    return f"it reads label {names.FABRIC} and annotations {_PREFIX}{first}, {', '.join(others)} of a pod"


def _format_key(key_type: str, key: str, value: str) -> str:
    displayed = text.abbreviate(value, _MAX_VALUE)
    return f"{key_type} {key[:_MAX_KEY]} {displayed!r}"


def _add_article(key_type: str) -> str:
    return f"an {key_type}" if key_type == _ANNOTATION else f"a {key_type}"


def _limit(warnings: Iterator[str]) -> tuple[str, ...]:
    """Return the first warnings. A pod may have thousands of such keys, and the others are not checked."""
    first_warnings = tuple(itertools.islice(warnings, _MAX_WARNINGS + 1))
    if len(first_warnings) <= _MAX_WARNINGS:
        return first_warnings
    return (*first_warnings[:_MAX_WARNINGS], f"more keys of {names.DOMAIN} have no effect; correct these first")
