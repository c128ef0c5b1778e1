"""Shows a progress bar on stderr for operations longer than two seconds, if stderr is a terminal."""

import contextlib
import pkgutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

_BAR = "railwright.cli.progress_bar:show"  # slow to import, and not needed without a terminal


def _ignore() -> None:
    """Take the place of a step of the bar."""


def show_progress(description: str, *, total: int | None = None) -> AbstractContextManager[Callable[[], None]]:
    """Return a context manager that yields a function to call after each step.

    `total` is the number of steps, None if unknown.
    """
    if not sys.stderr.isatty():
        return contextlib.nullcontext(_ignore)
    bar: AbstractContextManager[Callable[[], None]] = pkgutil.resolve_name(_BAR)(description, total)
    return bar
