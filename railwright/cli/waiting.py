"""A bar on stderr for what takes over two seconds; nothing at all for what is quicker, or where stderr is no terminal.

Owns when it appears. stdout stays the answer's alone.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

_PATIENCE = 2.0  # seconds: what is quicker needs no bar


@contextlib.contextmanager
def shown(what: str, *, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Yields what is called after each step; `total` None: nobody knows how many there are."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich import console, progress  # noqa: PLC0415 - slow to import, and a pipe needs none of it

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TimeElapsedColumn())
    bar = progress.Progress(*columns, console=console.Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total)
    late = threading.Timer(_PATIENCE, bar.start)
    late.daemon = True
    late.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        late.cancel()
        late.join()  # it may just be starting the bar
        bar.stop()
