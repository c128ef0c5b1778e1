"""The protocol between sources of watched objects (reflector, snapshot file) and caches."""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """A cache of objects of one kind."""

    def replace(self, objects: Sequence[T_contra]) -> object:
        """Replace all objects, after a first list, a relist, or a snapshot."""

    def upsert(self, obj: T_contra) -> object:
        """Add or update an object."""

    def remove(self, obj: T_contra) -> object:
        """Remove an object."""


class Functions(msgspec.Struct, Generic[T], frozen=True):
    """A sink made of three functions."""

    replace: Callable[[Sequence[T]], object]
    upsert: Callable[[T], object]
    remove: Callable[[T], object]


class Several(Generic[T]):
    """Forwards every call to several sinks, in this order."""

    def __init__(self, *sinks: Sink[T]) -> None:
        self._sinks = sinks

    def replace(self, objects: Sequence[T]) -> None:
        """Forward to each sink."""
        for sink in self._sinks:
            sink.replace(objects)

    def upsert(self, obj: T) -> None:
        """Forward to each sink."""
        for sink in self._sinks:
            sink.upsert(obj)

    def remove(self, obj: T) -> None:
        """Forward to each sink."""
        for sink in self._sinks:
            sink.remove(obj)
