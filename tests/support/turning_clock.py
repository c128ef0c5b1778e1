"""A clock of the test's event loop, for claims about times within one process.

A busy machine lets a process stand still, and then every deadline has passed at once: a caller gets no turn between
two that are a second apart. This clock goes on by at most one step in a turn of the loop, so everybody gets turns.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

STEP_SECONDS = 0.01


class Clock:
    """Seconds in which the loop has turned. Call it for the time."""

    def __init__(self) -> None:
        self._now = 1000.0

    def __call__(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has gone on by so much."""
        end = self._now + seconds
        while self._now < end:  # noqa: ASYNC110 - a condition of the clock itself
            await asyncio.sleep(STEP_SECONDS)

    async def run(self) -> None:
        """Go on, never faster than the machine's clock, until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self._now += STEP_SECONDS


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Clock]:
    """Run a clock during a `with` block."""
    clock = Clock()
    going = asyncio.create_task(clock.run())
    try:
        yield clock
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
