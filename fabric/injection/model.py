"""What injection decides, as values: the changes to a pod with their reasons, or why there are none.

Owns the vocabulary shared by the concerns (one file each beside this one) and by whoever turns changes into a patch.
Knows no JSON Patch.
"""

from collections.abc import Mapping
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


AnyChange = SetAnnotation | AddResource | AddVolume | AddMount | AddCapability | SetPrivileged | SetEnv


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
    reason: str  # a short word for the metric: unknown-fabric, network-syntax, missing-network, ...
    message: str


class NotOptedIn(msgspec.Struct, frozen=True):
    """The pod is none of our business; it stays as it is."""


class RefusedError(Exception):
    """Raised inside a concern to end the plan with a Refusal; never leaves `plan`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
