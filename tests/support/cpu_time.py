"""Limits the CPU time of a test: a busy machine makes it wait, and does not make it compute more."""

import contextlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Fail if the block, or the function that this decorates, takes so many seconds of this process's CPU time."""
    began = time.process_time()
    yield
    taken = time.process_time() - began
    assert taken < seconds, f"took {taken:.1f} s of CPU time"
