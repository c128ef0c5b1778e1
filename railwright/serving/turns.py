"""Measures one iteration of the event loop, so that the last of many simultaneous requests are not answered too late.

A connection has one request at a time and an iteration handles all that are ready, so a request waits at most for the
iteration in which it arrived and the one that answers it.
"""

import asyncio


class Turn:
    """The current iteration of the running loop. Owned by one loop."""

    def __init__(self, most_seconds: float) -> None:
        self._most = most_seconds
        self._began: float | None = None

    def late(self, now: float) -> bool:
        """True if the iteration has lasted too long for the requests that are still to be answered in it.

        `now` is the time of a monotonic clock in seconds.
        """
        if self._began is None:
            self._began = now
            asyncio.get_running_loop().call_soon(self._end)  # runs before later events
            return False
        return now - self._began > self._most

    def _end(self) -> None:
        self._began = None
