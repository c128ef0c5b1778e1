"""Runs a server, and records the CPU time of each callback of its event loop, for which other requests wait.

`python turns.py OUT webhook|extender OPTIONS...`: SIGUSR1 writes the longest turns since the last time to OUT (JSON:
[[milliseconds, what], ...]) and forgets them. CPU time, not the clock: other processes do not make a turn longer. On
asyncio's own loop, for uvloop cannot be looked into.
"""

import asyncio
import heapq
import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
_NUMBER_OF_TURNS = 12
_longest: list[tuple[float, str]] = []
_run = asyncio.Handle._run


def _run_timed(handle: Any) -> None:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    began = time.thread_time()
    _run(handle)
    spent = (time.thread_time() - began) * 1e3
    if len(_longest) < _NUMBER_OF_TURNS or spent > _longest[0][0]:
        what = _chain(coroutine) or getattr(callback, "__qualname__", repr(type(callback)))
        keep = heapq.heappush if len(_longest) < _NUMBER_OF_TURNS else heapq.heappushpop
        keep(_longest, (spent, what))


def _chain(coroutine: Any) -> str:
    """Return the coroutines that wait for each other, outermost first."""
    names = []
    while coroutine is not None and hasattr(coroutine, "__qualname__"):
        names.append(coroutine.__qualname__)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return " > ".join(names)


def main() -> int:
    """Return the server's exit code."""
    out = pathlib.Path(sys.argv[1])

    def tell(*_: object) -> None:
        turns = [[round(spent, 2), what] for spent, what in sorted(_longest, reverse=True)]
        _longest.clear()
        whole = out.with_suffix(".part")
        whole.write_text(json.dumps(turns))
        os.replace(whole, out)  # noqa: PTH105 - one step: a reader never sees half

    signal.signal(signal.SIGUSR1, tell)
    from railwright.cli import __main__ as command
    from railwright.serving import server

    asyncio.Handle._run = _run_timed  # type: ignore[method-assign]
    server.uvloop.new_event_loop = asyncio.new_event_loop
    return command.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
