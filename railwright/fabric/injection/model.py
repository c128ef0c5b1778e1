"""What injection decides, as values: the changes to a pod with their reasons, or why there are none.

Owns the vocabulary shared by the concerns (one file each beside this one) and by whoever turns changes into a patch.
Knows no JSON Patch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One thing done to a pod. `entry` is its name in the record's `added` ("" = not listed), `reason` says why."""

    entry: str
    reason: str


class SetAnnotation(Change, frozen=True):
    """metadata.annotations[key] becomes value, whether it was there or not."""

    key: str
    value: str


class SetLabel(Change, frozen=True):
    """metadata.labels[key] becomes value; only templates of workloads get one."""

    key: str
    value: str


class AddResource(Change, frozen=True):
    """Request and limit of a resource in a container become `quantity` (a whole number of devices)."""

    container: int  # index in spec.containers
    resource: str
    quantity: int


class AddVolume(Change, frozen=True):
    """A volume is added to spec.volumes, as its JSON."""

    volume: Mapping[str, Any]


class AddMount(Change, frozen=True):
    """A mount is added to a container, as its JSON."""

    container: int
    mount: Mapping[str, Any]


class AddCapability(Change, frozen=True):
    """A capability is added to a container."""

    container: int
    capability: str


class SetPrivileged(Change, frozen=True):
    """A container becomes privileged."""

    container: int


class SetEnv(Change, frozen=True):
    """A variable of a container gets a literal value; `index` is the entry it replaces, None for a new one."""

    container: int
    name: str
    value: str
    index: int | None = None


class UnsetEnv(Change, frozen=True):
    """The entry at `index` of a container's environment goes."""

    container: int
    index: int


class AddInitContainer(Change, frozen=True):
    """An init container is put behind those the pod has, as its JSON."""

    init_container: Mapping[str, Any]


AnyChange = (
    SetAnnotation
    | AddResource
    | AddVolume
    | AddMount
    | AddCapability
    | SetPrivileged
    | SetEnv
    | UnsetEnv
    | AddInitContainer
    | SetLabel
)


class Reasons(msgspec.Struct, frozen=True, eq=False):
    """Why each entry is there, with the source; also of entries that are not. Known by identity: made once a table."""

    of: Mapping[str, str]


class Part(msgspec.Struct, frozen=True):
    """What one concern found.

    `entries` name everything the pod then has as the policy wants it, whether it was there or is added now: so the
    record of an injected pod is the same when it is planned again.
    """

    changes: tuple[AnyChange, ...] = ()
    entries: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = {}  # container -> names the user set otherwise
    skipped: Mapping[str, str] = {}  # concern -> why it was left out
    reasons: tuple[Reasons, ...] = ()


NOTHING = Part()


def join(parts: Sequence[Part]) -> Part:
    """What several concerns found, as one; entries and warnings once each, in order."""
    changes: list[AnyChange] = []
    entries: dict[str, None] = {}
    warnings: dict[str, None] = {}
    kept: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, str] = {}
    reasons: dict[Reasons, None] = {}
    for part in parts:
        if part is NOTHING:
            continue
        changes += part.changes
        entries.update(dict.fromkeys(part.entries))
        warnings.update(dict.fromkeys(part.warnings))
        skipped.update(part.skipped)
        if part.reasons:
            reasons.update(dict.fromkeys(part.reasons))
        for container, names in part.kept.items():
            kept[container] = kept.get(container, ()) + names
    return Part(tuple(changes), tuple(entries), tuple(warnings), kept, skipped, tuple(reasons))


class Injection(msgspec.Struct, frozen=True):
    """The pod opted in: what to change, what to tell. No changes where it has all of it already."""

    fabric: str
    role: str
    containers: tuple[str, ...]
    rails: tuple[str, ...]
    changes: tuple[AnyChange, ...]
    warnings: tuple[str, ...]


class Refusal(msgspec.Struct, frozen=True):
    """The pod opted in and cannot have it: the message names the object, the key, the value and the fix."""

    fabric: str  # "" where the fabric itself is the trouble
    reason: str  # a short word for the metric: unknown-fabric, networks, missing-network, ...
    message: str
    role: str = ""  # "" where it was not to be told


class NotOptedIn(msgspec.Struct, frozen=True):
    """The pod is none of our business; it stays as it is. `warnings`: why that may not be what its author meant."""

    warnings: tuple[str, ...] = ()


class RefusedError(Exception):
    """Raised inside a concern to end the plan with a Refusal; never leaves `plan`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


_SHOWN = 100  # characters of a user's value that a message repeats


def quoted(text: str) -> str:
    """A user's value as messages show it: quoted, escaped and bounded."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def bounded(text: str, most: int) -> str:
    """A sentence as it leaves us: at most `most` characters, no control characters; names in it were not checked."""
    shown = text if len(text) <= most else f"{text[: most - 3]}..."
    if shown.isprintable():
        return shown
    escaped = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in shown])
    return escaped if len(escaped) <= most else f"{escaped[: most - 3]}..."


_ROOM = 60  # characters of a list: a warning has 256, and its fix is to be read too


def some(words: Iterable[str]) -> str:
    """The first of some names, each once, in about 60 characters, and how many more there are."""
    distinct = list(dict.fromkeys(words))
    first = distinct[0] if len(distinct[0]) <= _ROOM else f"{distinct[0][:_ROOM]}..."
    shown, count = first, 1
    while count < len(distinct) and len(shown) + len(distinct[count]) <= _ROOM:
        shown = f"{shown}, {distinct[count]}"
        count += 1
    return shown if count == len(distinct) else f"{shown} and {len(distinct) - count} more"


def listed(words: Iterable[str]) -> str:
    """Allowed values as messages show them."""
    return ", ".join(words)
