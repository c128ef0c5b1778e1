"""One deadline that moves often: its timer is set again if it fires too early, which is cheaper than to cancel it."""

import asyncio
import math
from collections.abc import Callable


class Deadline:
    """Calls `on_expired` once the time is over. Owned by one event loop; not set at first."""

    def __init__(self, on_expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_expired = on_expired
        self._time = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now."""
        self._time = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._time:
            self._restart()

    def clear(self) -> None:
        """Remove the deadline."""
        self._time = math.inf

    def stop(self) -> None:
        """Remove the deadline and its timer, for the end of its owner."""
        self._time = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _restart(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._time, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._time == math.inf:
            return
        if self._loop.time() < self._time:
            self._restart()
            return
        self._time = math.inf
        self._on_expired()
