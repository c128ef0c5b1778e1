"""Waits for a condition with a deadline. A failure shows the last value."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from plane import api

T = TypeVar("T")
_FIRST, _LONGEST = 0.01, 0.25  # seconds between looks: quick at first, then gentle on two cores


class HopelessError(AssertionError):
    """Raised by a condition that can no longer come true: the wait ends at once."""


async def wait(
    condition: Callable[[], T | Awaitable[T]],
    *,
    seconds: float = 30,
    describe: str | Callable[[], str | Awaitable[str]],
) -> T:
    """Return the first true value of `condition` (plain or async). Raises AssertionError after `seconds`.

    A condition may also raise AssertionError, OSError or ApiError for "not yet": an object that it reads may be absent
    until then. The error has `describe`, which may be a function, and the last value or exception.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST
    while True:
        try:
            seen = condition()
            value: T = await seen if inspect.isawaitable(seen) else seen
            if value:
                return value
            last = f"last seen: {value!r}"
        except HopelessError:
            raise
        except (AssertionError, OSError, api.ApiError) as error:
            last = f"last seen: {type(error).__name__}: {error}"
        if time.monotonic() > deadline:
            awaited = describe() if callable(describe) else describe
            awaited = await awaited if inspect.isawaitable(awaited) else awaited
            raise AssertionError(f"waited {seconds} s for {awaited}\n{last}")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
