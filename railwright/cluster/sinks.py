"""The protocol between sources of watched objects (reflector, snapshot file) and caches."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")
V = TypeVar("V")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """A cache of objects of one kind."""

    def replace(self, objects: Sequence[T_contra]) -> object:
        """Replace all objects, after a first list, a relist, or a snapshot."""

    def upsert(self, obj: T_contra) -> object:
        """Add or update an object."""

    def remove(self, obj: T_contra) -> object:
        """Remove an object."""


class CallbackSink(msgspec.Struct, Generic[T], frozen=True):
    """A sink that passes each call to a function."""

    replace: Callable[[Sequence[T]], object]
    upsert: Callable[[T], object]
    remove: Callable[[T], object]


class ValueCache(Generic[T, V]):
    """A sink that keeps one value of each object, such as its labels. `version` grows when a value changes.

    `by_key` has the values; None until the first full list, unless it is given.
    """

    def __init__(self, get_key: Callable[[T], Any], read: Callable[[T], V], by_key: dict[Any, V] | None = None) -> None:
        self.by_key = by_key
        self.version = 0
        self._get_key, self._read = get_key, read

    def replace(self, objects: Sequence[T]) -> None:
        """Replace all objects."""
        if self.by_key is None:
            self.by_key = {}
        self.by_key.clear()
        self.by_key.update((self._get_key(obj), self._read(obj)) for obj in objects)
        self.version += 1

    def upsert(self, obj: T) -> None:
        """Add or update an object."""
        key, value = self._get_key(obj), self._read(obj)
        if self.by_key is not None and (key not in self.by_key or self.by_key[key] != value):
            self.by_key[key] = value
            self.version += 1

    def remove(self, obj: T) -> None:
        """Remove an object."""
        if self.by_key is not None:
            self.by_key.pop(self._get_key(obj), None)
            self.version += 1


def combine(*several: Sink[T]) -> CallbackSink[T]:
    """Return a sink that passes every call to each of these sinks, in this order."""

    def forward(name: str) -> Callable[[Any], object]:
        return lambda given: [getattr(sink, name)(given) for sink in several]

    return CallbackSink(forward("replace"), forward("upsert"), forward("remove"))
