"""Shows a progress bar on stderr for operations longer than two seconds, if stderr is a terminal."""

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

_DELAY = 2.0  # seconds; shorter operations need no bar


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
