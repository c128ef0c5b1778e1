"""Runs the work of one request in steps, so that the event loop answers other requests in between.

Work is a generator that yields at points where it may pause.
"""

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

_SECONDS = 0.01  # after which others are answered at the next `yield`

Result = TypeVar("Result")
Steps = Generator[None, None, Result]


async def run(steps: Steps[Result]) -> Result:
    """Return the result of the work. Every 10 ms, other requests are answered."""
    end = time.perf_counter() + _SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as last:
            result: Result = last.value
            return result
        if time.perf_counter() > end:
            await asyncio.sleep(0)
            end = time.perf_counter() + _SECONDS


def complete(steps: Steps[Result]) -> Result:
    """Return the result of the work without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
