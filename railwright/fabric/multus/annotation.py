"""Parses and extends Multus's annotation k8s.v1.cni.cncf.io/networks.

Parsing follows multus-cni pkg/k8sclient (parsePodNetworkAnnotation) and the NPWG multi-net-spec v1. Merging follows
docs/interface.md 3.1: the user's entries are never changed, and railwright's are appended.
"""

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import msgspec

from railwright.fabric.multus import comma_list, element, json_array
from railwright.fabric.multus.network_selection import InvalidNetworksError, Selection

_JSON_MARKS = frozenset('[{"')  # any of these makes Multus read the value as JSON
_MAX_CACHED_LENGTH = 2048  # characters of an annotation; results for longer ones are not cached


class Merged(msgspec.Struct, frozen=True):
    """The merged annotation: its text, all attachments in order, and the number of new ones at the end."""

    text: str
    selections: tuple[Selection, ...]
    added: int


def is_json(text: str) -> bool:
    """True if Multus reads the value as a JSON array. The test is Multus's own."""
    return not _JSON_MARKS.isdisjoint(text)


def parse(text: str, namespace: str) -> tuple[Selection, ...]:
    """Return the attachments of a pod in `namespace`, in order. Raises InvalidNetworksError."""
    if not text:
        return ()
    return _parse_cached(text, namespace) if len(text) <= _MAX_CACHED_LENGTH else _parse(text, namespace)


def _parse(text: str, namespace: str) -> tuple[Selection, ...]:
    if not text.isascii() and element.LONE_SURROGATE.search(text):
        raise InvalidNetworksError(0, "contains half of a UTF-16 surrogate pair; remove it")
    return json_array.parse(text, namespace) if is_json(text) else comma_list.parse(text, namespace)


def merge(text: str, theirs: tuple[Selection, ...], ours: tuple[Selection, ...]) -> Merged:
    """Append the entries of `ours` that the annotation does not contain already.

    `theirs` are the attachments of `text`. A user's entry replaces one of `ours` with the same network
    (docs/interface.md 3.1). A comma list becomes JSON only if a missing entry has a name that the list cannot express.
    """
    missing = _find_missing(theirs, ours)
    if not missing:
        return Merged(text, theirs, 0)
    if text and is_json(text):
        merged = json_array.append(text, missing, empty=not theirs)
    elif all(map(comma_list.fits, missing)):
        merged = ",".join([text] * bool(text) + [comma_list.format_item(selection) for selection in missing])
    else:
        own = parse(text, "")  # entries without a namespace stay without one
        merged = json_array.encode([json_array.build_item(selection) for selection in (*own, *missing)])
    return Merged(merged, theirs + missing, len(missing))


# Pods of a gang have the same value. The bounds limit the memory that users' values can take.
_parse_cached = functools.lru_cache(maxsize=512)(_parse)


def _find_missing(theirs: Sequence[Selection], ours: tuple[Selection, ...]) -> tuple[Selection, ...]:
    """Return the entries of `ours` without a partner in `theirs`.

    A partner has the same network. Those with the same interface as well are paired first.
    """
    networks = {selection.key for selection in theirs}
    if networks.isdisjoint([selection.key for selection in ours]):
        return ours
    if len({selection.key for selection in ours}) == len(ours):
        return tuple([selection for selection in ours if selection.key not in networks])
    unmatched = _subtract(ours, theirs, lambda selection: (selection.key, selection.interface))
    free = _subtract(theirs, ours, lambda selection: (selection.key, selection.interface))
    return _subtract(unmatched, free, lambda selection: selection.key)


def _subtract(
    selections: Sequence[Selection], others: Sequence[Selection], identify: Callable[[Selection], Hashable]
) -> tuple[Selection, ...]:
    """Return the `selections` that have no partner with the same identity in `others`, in order."""
    partners = Counter(map(identify, others))
    remaining = []
    for selection in selections:
        if partners[identify(selection)] > 0:
            partners[identify(selection)] -= 1
        else:
            remaining.append(selection)
    return tuple(remaining)
