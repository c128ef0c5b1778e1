"""Receives a large body directly into its buffer: one copy, bypassing the HTTP parser.

aiohttp copies each part twice, stops and resumes reading every half megabyte, and joins the parts at the end. For the
15 MB that Volcano sends per task, that takes as long as the rest of the response.
"""

import asyncio
import contextlib
import mmap
from collections.abc import Callable
from typing import cast

SMALL = 64 * 1024  # bytes; smaller bodies are plain bytes, allocated at once
_MAX_SPARE = 32 << 20  # bytes; buffers up to this size are reused, because fresh pages cost as much as the copy


class BufferPool:
    """Buffers for bodies. Memory is used only as a body fills it; the last buffer is reused."""

    def __init__(self) -> None:
        self._spare: mmap.mmap | None = None

    def take(self, length: int) -> bytearray | mmap.mmap:
        """Return a buffer of at least `length` bytes. Raises OSError if there is no memory."""
        if length <= SMALL:
            return bytearray(length)
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) >= length:
            return spare
        # mmap, because a client may announce 256 MiB and send nothing: untouched pages cost no memory
        return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, buffer: bytearray | mmap.mmap) -> None:
        """Keep a buffer for reuse. A buffer that is still referenced is left to its reader."""
        if not isinstance(buffer, mmap.mmap) or len(buffer) > _MAX_SPARE:
            return
        with contextlib.suppress(BufferError, OSError, ValueError, SystemError):
            buffer.resize(len(buffer))  # BufferError if a part is referenced; the others if resizing is not supported
            self._spare = buffer


class BodyReceiver(asyncio.BufferedProtocol):
    """Receives a connection's bytes in place of its protocol until a body is complete."""

    def __init__(
        self,
        connection: asyncio.Protocol,
        pool: BufferPool,
        beginning: bytes,
        length: int,
        on_body: Callable[[bytes], None],
    ) -> None:
        """`beginning` are the bytes received so far. Raises OSError if there is no memory.

        `on_body` is called once with the body. A body over SMALL is a view that is invalid after the call.
        """
        self._connection, self._pool, self._on_body = connection, pool, on_body
        self._buffer = pool.take(length)
        self._body = memoryview(self._buffer)[:length]
        self._filled = len(beginning)
        self._body[: self._filled] = beginning

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the unfilled part of the buffer, so that no byte of the next request is read."""
        del sizehint
        return self._body[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._filled += nbytes
        if self._filled < len(self._body):
            return
        if len(self._body) <= SMALL:
            self._on_body(bytes(self._body))
            return
        self._on_body(cast("bytes", self._body))  # handlers pass bodies to msgspec, which reads any buffer
        with contextlib.suppress(BufferError):
            self._body.release()
        # later, because the event loop still references a part of it
        asyncio.get_running_loop().call_soon(self._pool.give_back, self._buffer)

    def eof_received(self) -> None:
        """Let the transport close: the body stays incomplete."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the connection."""
        self._connection.resume_writing()
