"""Sends requests at a rate, one after the other for each caller, and describes how long they took."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence


async def measure(
    requests: Sequence[Callable[[], Awaitable]], per_second: int, is_over: Callable[[], bool]
) -> list[float]:
    """Return the sorted seconds of each request, from when it was due; a late one does not delay the next ones."""
    seconds: list[float] = []
    pause, began = len(requests) / per_second, time.monotonic()

    async def repeat(ask: Callable[[], Awaitable], due: float) -> None:
        while not is_over():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            answer = await ask()
            assert answer.status == 200
            seconds.append(time.monotonic() - due)
            due = max(due + pause, time.monotonic())

    await asyncio.gather(*(repeat(ask, began + number / per_second) for number, ask in enumerate(requests)))
    return sorted(seconds)


def find_p99(seconds: Sequence[float]) -> float:
    return seconds[int(len(seconds) * 0.99)]


def describe(seconds: Sequence[float]) -> str:
    half, p99 = seconds[len(seconds) // 2], find_p99(seconds)
    return f"p50 {half * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, slowest {seconds[-1] * 1000:.0f} ms"
