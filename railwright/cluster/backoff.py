"""Pauses between attempts: exponentially longer, with full jitter."""

import asyncio
import random

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 30.0
LONGEST_ASKED_SECONDS = 300.0  # upper bound on Retry-After
_MOST_DOUBLINGS = 16  # more has no effect under the limit and would overflow eventually


class Backoff:
    """The pauses of one task, until `reset`."""

    def __init__(self, longest_seconds: float, chance: random.Random) -> None:
        self._longest, self._chance = longest_seconds, chance
        self._pauses = 0

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._pauses = 0

    async def pause(self, retry_after: float = 0.0) -> None:
        """Sleep exponentially longer with full jitter, up to a limit, and in addition to Retry-After (seconds)."""
        longest = min(self._longest, FIRST_PAUSE_SECONDS * 2**self._pauses)
        self._pauses = min(self._pauses + 1, _MOST_DOUBLINGS)
        await asyncio.sleep(min(retry_after, LONGEST_ASKED_SECONDS) + self._chance.uniform(0, longest))
