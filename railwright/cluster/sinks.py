"""Where watched objects go: the three calls by which a source keeps a cache equal to the cluster.

Owns the protocol and nothing else: sources (reflector, snapshot file) call it, caches implement it.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """A cache of objects of one kind."""

    def replace(self, objects: Sequence[T_contra]) -> None:
        """These are all objects there are: a first list, a relist, a snapshot."""

    def upsert(self, obj: T_contra) -> None:
        """This object is new or has changed."""

    def remove(self, obj: T_contra) -> None:
        """This object is gone."""


class Both(Generic[T]):
    """Hands everything to two sinks, in this order."""

    def __init__(self, first: Sink[T], second: Sink[T]) -> None:
        self._sinks = (first, second)

    def replace(self, objects: Sequence[T]) -> None:
        """To both."""
        for each in self._sinks:
            each.replace(objects)

    def upsert(self, obj: T) -> None:
        """To both."""
        for each in self._sinks:
            each.upsert(obj)

    def remove(self, obj: T) -> None:
        """To both."""
        for each in self._sinks:
            each.remove(obj)
