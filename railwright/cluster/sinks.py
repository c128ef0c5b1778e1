"""The protocol between sources of watched objects (reflector, snapshot file) and caches; waiting for their changes."""

import asyncio
import contextlib
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


class Changes:
    """Wakes those who wait for a change of a cache. Used by one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def announce(self) -> None:
        """Wake all current waiters. Later waiters wait for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, is_reached: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds that changes may make true. Return False if it does not within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_reached():
                    await self._changed.wait()
        return is_reached()
