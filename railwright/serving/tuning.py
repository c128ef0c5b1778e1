"""Process settings at start: allocator thresholds, file limit, event loop, frozen garbage. The values were measured."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import sys
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_M_TRIM_THRESHOLD = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD = -3
# uvloop allocates a 256 KiB buffer for each TLS read. Below glibc's default mmap threshold of 128 KiB, each costs an
# mmap, an munmap and four page faults per request; with these thresholds none.
_MMAP_BYTES = 2 << 20
_TRIM_BYTES = 8 << 20
_CONNECTIONS = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time
_LOOK_SECONDS = 0.5
_FILES_LEFT = 256  # descriptors for 20 watches, probes, metrics, certificates
_FILES = 8192  # up to the hard limit: enough for connections, watches and log files


def raise_limits() -> None:
    """Set the allocator's thresholds (glibc only) and the file limit. Never fails, because both are optimizations."""
    if (os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else None) is not None:
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def compute_max_connections() -> int:
    """Return the maximum connections of a port, leaving descriptors for watches, probes and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else min(_CONNECTIONS, soft - min(_FILES_LEFT, soft // 4))


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed, otherwise None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - optional: it lags behind new Python versions
    except ImportError:
        return None
    return uvloop.new_event_loop


async def freeze_when(complete: Callable[[], bool]) -> None:
    """Wait until the caches are complete, exclude their objects from garbage collection, and wait until cancelled.

    No collection runs first: scanning 100,000 pods takes longer than a request may wait.
    """
    while not complete():  # noqa: ASYNC110 - polls, because the sources only report whether they are complete
        await asyncio.sleep(_LOOK_SECONDS)
    gc.freeze()
    await asyncio.Event().wait()


def freeze() -> None:
    """Exclude the objects created at start from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()
