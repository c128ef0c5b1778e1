"""What a process sets once at start: allocator thresholds, file limit, event loop, frozen garbage.

Owns numbers that were measured (webhook-speed.md section 4) and the operating-system calls that set them.
"""

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
# uvloop takes a fresh 256 KiB buffer for each TLS read; under glibc's first mmap threshold of 128 KiB that is an
# mmap, an munmap and four page faults a request. Above these two it is none.
_MMAP_BYTES = 2 << 20
_TRIM_BYTES = 8 << 20
_CONNECTIONS = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time
_LOOK_SECONDS = 0.5
_FILES_LEFT = 256  # 20 watches, probes, metrics, certificates
_FILES = 8192  # as far as the hard limit allows: connections, watches and log files with room to spare


def raise_limits() -> None:
    """Set the allocator's thresholds (glibc only) and the file limit. Never fails: it only makes things faster."""
    if (os.confstr("CS_GNU_LIBC_VERSION") if sys.platform == "linux" else None) is not None:
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections() -> int:
    """How many connections a port may have, so that descriptors are left for watches, probes and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else min(_CONNECTIONS, soft - min(_FILES_LEFT, soft // 4))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - optional: it lags behind new Python versions
    except ImportError:
        return None
    return uvloop.new_event_loop


async def freeze_when(complete: Callable[[], bool]) -> None:
    """Once the caches are full, take them out of the collector's sight too; for ever.

    Nothing is collected first: looking at 100,000 pods takes longer than a request may wait.
    """
    while not complete():  # noqa: ASYNC110 - of several sources, each of which only says whether it is full
        await asyncio.sleep(_LOOK_SECONDS)
    gc.freeze()
    await asyncio.Event().wait()


def freeze() -> None:
    """Take what start-up made out of the collector's sight: it lives as long as the process."""
    gc.collect()
    gc.freeze()
