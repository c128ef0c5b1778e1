"""Runs the work of one request in turns, so that the event loop answers others in between.

Work is a generator that yields wherever it may be interrupted. Work that is done within a turn needs no task.
"""

import asyncio
import time
from collections.abc import Awaitable, Generator
from typing import TypeVar

TURN_SECONDS = 0.01  # after which a turn ends at the next `yield`

Result = TypeVar("Result")
Steps = Generator[None, None, Result]


def run(steps: Steps[Result]) -> Result | Awaitable[Result]:
    """Return the result of the work, or an awaitable of it if it takes longer than one turn."""
    try:
        _take_turn(steps)
    except StopIteration as end:
        result: Result = end.value
        return result
    return _finish(steps)


def complete(steps: Steps[Result]) -> Result:
    """Return the result of the work, done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


async def _finish(steps: Steps[Result]) -> Result:
    while True:
        await asyncio.sleep(0)
        try:
            _take_turn(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def _take_turn(steps: Steps[Result]) -> None:
    """Work until the turn ends. Raises StopIteration with the result."""
    end = time.perf_counter() + TURN_SECONDS
    while time.perf_counter() < end:
        next(steps)
