"""Shows what a command is doing in one transient line on stderr, if that is a terminal.

Imports the standard library only: the first line appears before the libraries of a command are imported.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

_CLEAR = "\r\x1b[K"  # to the first column, erase the line


def show_status(text: str) -> None:
    """Replace the line on the terminal by a new text."""
    if _is_shown():
        sys.stderr.write(f"{_CLEAR}{text}…")
        sys.stderr.flush()


def clear_status() -> None:
    """Erase the line. Must precede any other output."""
    if _is_shown():
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


def _is_shown() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


@contextlib.contextmanager
def show_progress(description: str, *, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a line until the end of the context. Yield a function to call after each of `total` steps."""
    done = 0
    show_status(description)

    def advance() -> None:
        nonlocal done
        done += 1
        show_status(f"{description}: {done} of {total}")

    try:
        yield advance
    finally:
        clear_status()
