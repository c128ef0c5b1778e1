"""Limits the CPU time of a test: a busy machine makes it wait, and does not make it compute more."""

import contextlib
import resource
import time
from collections.abc import Iterator


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Fail if the block, or the function that this decorates, takes so many seconds of this process's CPU time."""
    began = time.process_time()
    yield
    taken = time.process_time() - began
    assert taken < seconds, f"took {taken:.1f} s of CPU time"


def measure_children() -> float:
    """Return the seconds of CPU time of processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
