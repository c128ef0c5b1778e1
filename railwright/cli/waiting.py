"""Shows a spinner on a terminal while a command works. `status_line` is for work without an event loop."""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable

from railwright.cli import output

_FRAMES, _FRAME_SECONDS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.1


@contextlib.asynccontextmanager
async def show_spinner(describe: Callable[[], str]) -> AsyncIterator[Callable[[], None]]:
    """Show a spinner with `describe()` in the last line of a terminal; nothing without one.

    Yields a function that erases it, to be called before other lines are printed.
    """
    if not output.is_animated():
        yield lambda: None
        return

    def erase() -> None:
        sys.stdout.write("\r\x1b[K")

    async def spin() -> None:
        for frame in itertools.cycle(_FRAMES):
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
            sys.stdout.write(f"\r{frame} {output.escape_controls(describe())}"[:width] + "\x1b[K")
            sys.stdout.flush()
            await asyncio.sleep(_FRAME_SECONDS)

    spinning = asyncio.create_task(spin())
    try:
        yield erase
    finally:
        spinning.cancel()
        erase()
        sys.stdout.flush()
