"""Measures one iteration of the event loop, so that the last of many simultaneous requests are not answered too late.

A connection has one request at a time and an iteration handles all that are ready, so a request waits at most for the
iteration in which it arrived and the one that answers it.
"""

import asyncio


class LoopBudget:
    """Time budget of the current iteration of the running loop. Owned by one loop."""

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._start: float | None = None

    def is_exceeded(self, now: float) -> bool:
        """True if the iteration has lasted too long for the requests that are still to be answered in it.

        `now` is the time of a monotonic clock in seconds.
        """
        if self._start is None:
            self._start = now
            asyncio.get_running_loop().call_soon(self._reset)  # runs before later events
            return False
        return now - self._start > self._max_seconds

    def _reset(self) -> None:
        self._start = None
