"""Limits the CPU time of a test, which depends less on the machine's load than the elapsed time."""

import contextlib
import resource
import time
from collections.abc import Iterator


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Fail if the block, or the decorated function, takes `seconds` of this process's CPU time."""
    began = time.process_time()
    yield
    taken = time.process_time() - began
    assert taken < seconds, f"took {taken:.1f} s of CPU time"


def measure_children() -> float:
    """Return the seconds of CPU time of ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
