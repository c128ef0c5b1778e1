"""Draws the progress bar of `waiting`."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from rich import console, progress

_DELAY = 2.0  # seconds; shorter operations need no bar


@contextlib.contextmanager
def show(description: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of `total` steps. The bar appears after `_DELAY`."""
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
