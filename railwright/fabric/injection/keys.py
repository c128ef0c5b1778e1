"""Keys of railwright that have no effect where they stand: misspelt, or in the wrong place.

Owns which key belongs where, and the sentence for one that does not. Whoever writes such a key believes that it counts,
above all one that was to opt out of something. Refuses to judge values.
"""

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from railwright.fabric import names, views
from railwright.fabric.injection import model, templates

_PREFIX: Final = f"{names.DOMAIN}/"
_LABEL, _ANNOTATION = "label", "annotation"
_OF_PODS = (names.RAILS, names.CONTAINERS, names.SKIP, names.DELIVERY)  # annotations
_WRITTEN = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF)
_MEANT = {names.FABRIC: _LABEL, **dict.fromkeys(_OF_PODS, _ANNOTATION)}  # what a typo may have been meant for
_RIGHT_LABELS = frozenset({names.FABRIC})
_RIGHT_ANNOTATIONS = frozenset({*_OF_PODS, *_WRITTEN})
_MOST = 3  # sentences; the API server shows few warnings, and others have more to say
_SHOWN = 24  # characters of a value
_LONGEST = 80  # characters of a key: a valid one has 77
_CLOSE = 0.6  # of difflib's ratio: below it a suggestion is a guess


def of_pod(metadata: views.ObjectMeta) -> tuple[str, ...]:
    """The warnings about the keys of a pod, or of a pod template."""
    return _bounded(_of_pod(metadata))


def above(workload: templates.Workload, before: templates.Workload | None = None) -> Iterator[str]:
    """The warnings about the keys of a workload, and of the objects inside it that its pod templates stand in.

    What an update leaves as it was `before` is not repeated: controllers update their objects often.
    """
    known = {} if before is None else _holders(before)
    for place, (metadata, found) in _holders(workload).items():
        if place in known and _ours(known[place][0]) == _ours(metadata):
            continue
        prefix, kind = (f"{place}: ", "") if place else ("", workload.kind.name)
        yield from (prefix + each for each in _bounded(_of_workload(metadata, kind, found)))


def _ours(metadata: views.ObjectMeta) -> list[dict[str, str]]:
    written = (metadata.labels, metadata.annotations)
    return [{key: value for key, value in each.items() if key.startswith(_PREFIX)} for each in written]


def _holders(workload: templates.Workload) -> dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]]:
    """By its place: the metadata of what templates stand in, and the metadata of those templates."""
    found: dict[str, tuple[views.ObjectMeta, dict[str, views.ObjectMeta]]] = {}
    for template in workload.templates:
        for place, metadata in template.above:
            found.setdefault(place, (metadata, {}))[1][template.title] = template.pod.metadata
    return found


def _of_pod(metadata: views.ObjectMeta) -> Iterator[str]:
    for key, value in metadata.labels.items():
        if key.startswith(_PREFIX) and key not in _RIGHT_LABELS:
            yield from _wrong(metadata, _LABEL, key, value)
    for key, value in metadata.annotations.items():
        if key.startswith(_PREFIX) and key not in _RIGHT_ANNOTATIONS:
            yield from _wrong(metadata, _ANNOTATION, key, value)


def _of_workload(metadata: views.ObjectMeta, kind: str, made: Mapping[str, views.ObjectMeta]) -> Iterator[str]:
    """`made` are the metadata of the pod templates, by their place."""
    for word, written in ((_LABEL, metadata.labels), (_ANNOTATION, metadata.annotations)):
        for key, value in written.items():
            if not key.startswith(_PREFIX):
                continue
            if key in _OF_PODS:
                lacking = [place for place, each in made.items() if key not in each.annotations]
                if lacking:
                    yield _of_templates(word, key, value, kind, lacking)
            elif key not in (_RIGHT_LABELS if word == _LABEL else _WRITTEN):
                yield from _wrong(metadata, word, key, value)


def _of_templates(word: str, key: str, value: str, kind: str, lacking: Sequence[str]) -> str:
    of = f" of the {kind}" if kind else ""
    where = f"the pod template ({lacking[0]}.metadata)" if len(lacking) == 1 else "the pod templates it is meant for"
    return (
        f"{_named(word, key, value)}{of} has no effect: railwright reads it on pods; move it to the annotations of "
        f"{where}"
    )


def _wrong(metadata: views.ObjectMeta, word: str, key: str, value: str) -> Iterator[str]:
    """The sentence about a key that is none of its place; none where the right place says the same."""
    problem = f"{_named(word, key, value)} has no effect: "
    if key == names.UNINJECTED:
        yield f"{problem}railwright reads it as a label of the namespace; move it there"
    elif key in _WRITTEN:
        yield f"{problem}only railwright writes it, as an annotation; remove it"
    elif key in _MEANT:
        if (metadata.labels if word == _ANNOTATION else metadata.annotations).get(key) != value:
            yield f"{problem}railwright reads it as {_article(_MEANT[key])}; move it there"
    else:
        yield f"{problem}railwright knows no such key; {_suggestion(key)}"


def _suggestion(key: str) -> str:
    written = key[len(_PREFIX) : _LONGEST].casefold()
    ends = {known[len(_PREFIX) :]: known for known in _MEANT}
    near = difflib.get_close_matches(written, ends, n=1, cutoff=_CLOSE)
    near = near or [end for end in ends if end.rstrip("s") in written]
    if near:
        return f"did you mean {_MEANT[ends[near[0]]]} {ends[near[0]]}?"
    first, *others = [each[len(_PREFIX) :] for each in _OF_PODS]
    return f"it reads label {names.FABRIC} and annotations {_PREFIX}{first}, {model.listed(others)} of a pod"


def _named(word: str, key: str, value: str) -> str:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    return f"{word} {key[:_LONGEST]} {shown!r}"


def _article(word: str) -> str:
    return f"an {word}" if word == _ANNOTATION else f"a {word}"


def _bounded(sentences: Iterator[str]) -> tuple[str, ...]:
    """The first of them; a pod may hold thousands of such keys, and the others are not looked at."""
    found = tuple(itertools.islice(sentences, _MOST + 1))
    if len(found) <= _MOST:
        return found
    return (*found[:_MOST], f"more keys of {names.DOMAIN} have no effect; correct these first")
