"""A clock of the test's event loop, for claims about times within one process.

A busy machine lets a process stand still, and then every deadline has passed at once: a caller gets no turn between
two that are a second apart. This clock goes on by at most one step in a turn of the loop, so everybody gets turns.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

STEP_SECONDS = 0.01


class Clock:
    """Clock that advances with the iterations of the event loop. A call returns its seconds."""

    def __init__(self) -> None:
        self._now = 1000.0

    def __call__(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by this time."""
        end = self._now + seconds
        while self._now < end:  # noqa: ASYNC110 - a condition of the clock itself
            await asyncio.sleep(STEP_SECONDS)

    async def run(self) -> None:
        """Advance until cancelled, never faster than the machine's clock."""
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
