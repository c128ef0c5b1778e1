"""Shows a progress bar on stderr for operations longer than two seconds, if stderr is a terminal."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

_DELAY = 2.0  # seconds; shorter operations need no bar


@contextlib.contextmanager
def show_progress(description: str, *, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each step. `total` is the number of steps, None if unknown."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich import console, progress  # noqa: PLC0415 - slow to import, and not needed without a terminal

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
