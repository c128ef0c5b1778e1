"""A body that arrives in parts, read straight into its place: one copy, and none of it through the HTTP parser.

aiohttp copies each part twice, stops and resumes reading every half megabyte, and joins the parts at the end: for the
15 MB that Volcano sends a task, as long as the rest of the answer takes. Owns that place and its reuse. Knows no HTTP.
"""

import asyncio
import contextlib
import mmap
from collections.abc import Callable
from typing import cast

SMALL = 64 * 1024  # bytes; up to here a body is plain bytes, and room for it is taken at once
_SPARE = 32 << 20  # bytes; room of up to this size is kept for the next body: fresh pages cost as much as the copy


class Rooms:
    """Room for bodies: memory is used only as a body fills it, and the last one's is used again."""

    def __init__(self) -> None:
        self._spare: mmap.mmap | None = None

    def take(self, length: int) -> bytearray | mmap.mmap:
        """Room of at least `length` bytes. Raises OSError where there is none."""
        if length <= SMALL:
            return bytearray(length)
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= length:
            return spare
        # a caller may announce 256 MiB and send nothing: pages that nobody wrote to cost nothing
        return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give(self, room: bytearray | mmap.mmap) -> None:
        """Room that nobody should read any more; where somebody still does, it stays theirs."""
        if not isinstance(room, mmap.mmap) or len(room) > _SPARE:
            return
        with contextlib.suppress(BufferError, OSError, ValueError, SystemError):
            room.resize(len(room))  # BufferError where a part of it is held; the others where it cannot be asked so
            self._spare = room


class Rest(asyncio.BufferedProtocol):
    """Takes a connection's bytes from its own protocol until a body is whole."""

    def __init__(
        self,
        connection: asyncio.Protocol,
        rooms: Rooms,
        begun: bytes,
        length: int,
        whole: Callable[[bytes], None],
    ) -> None:
        """`begun` are the bytes that have come already. Raises OSError where there is no room.

        `whole` is called once with the body; one over SMALL is a view that is void after the call.
        """
        self._connection, self._rooms, self._whole = connection, rooms, whole
        self._room = rooms.take(length)
        self._body = memoryview(self._room)[:length]
        self._filled = len(begun)
        self._body[: self._filled] = begun

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what has not come yet, and not for a byte of the next request."""
        del sizehint
        return self._body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """More has come."""
        self._filled += nbytes
        if self._filled < len(self._body):
            return
        if len(self._body) <= SMALL:
            self._whole(bytes(self._body))
            return
        self._whole(cast("bytes", self._body))  # handlers give a body to msgspec, which reads any buffer
        with contextlib.suppress(BufferError):
            self._body.release()
        asyncio.get_running_loop().call_soon(self._rooms.give, self._room)  # the event loop still holds a part of it

    def eof_received(self) -> None:
        """The caller will send no more: the body never becomes whole."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection hears of it."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The connection hears of it."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The connection hears of it."""
        self._connection.resume_writing()
