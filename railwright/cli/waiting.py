"""Shows on a terminal that a command works: a spinner on stdout, or a progress bar on stderr after two seconds."""

import asyncio
import contextlib
import importlib
import itertools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager

from railwright.cli import output

_DELAY = 2.0  # seconds; shorter operations need no bar
_FRAMES, _FRAME_SECONDS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.1


def _ignore() -> None:
    """Take the place of a step of the bar."""


def show_progress(description: str, *, total: int | None = None) -> AbstractContextManager[Callable[[], None]]:
    """Return a context manager that yields a function to call after each step.

    `total` is the number of steps, None if unknown.
    """
    if not sys.stderr.isatty():
        return contextlib.nullcontext(_ignore)
    return _show_bar(description, total)


@contextlib.contextmanager
def _show_bar(description: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` steps. The bar appears after `_DELAY`."""
    console, progress = (importlib.import_module(f"rich.{name}") for name in ("console", "progress"))
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TimeElapsedColumn())
    bar = progress.Progress(*columns, console=console.Console(stderr=True), transient=True)
    task = bar.add_task(description, total=total)
    timer = threading.Timer(_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()  # it may just be starting the bar
        bar.stop()


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
            sys.stdout.write(f"\r{frame} {output.visible(describe())}"[:width] + "\x1b[K")
            sys.stdout.flush()
            await asyncio.sleep(_FRAME_SECONDS)

    spinning = asyncio.create_task(spin())
    try:
        yield erase
    finally:
        spinning.cancel()
        erase()
        sys.stdout.flush()
