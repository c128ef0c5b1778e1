"""Prints the results of `railwright check` row by row, with a spinner on a terminal, and folds rows that wait.

A line is a sequence of (text, style) parts, which are printed on the terminal and drawn into the SVG.
"""

import asyncio
import collections
import contextlib
import importlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from railwright.cli import output
from railwright.cli.checking import check_rows

Line = tuple[tuple[str, str], ...]
_MARKS: dict[check_rows.State, tuple[str, str]] = {
    check_rows.State.OK: ("√", "green"),
    check_rows.State.WARN: ("‼", "yellow"),
    check_rows.State.FAIL: ("×", "bold red"),  # noqa: RUF001 - the mark of linkerd check
    check_rows.State.SKIP: ("-", "dim"),
}
_WORDS = {
    check_rows.State.FAIL: "failed",
    check_rows.State.WARN: "warned",
    check_rows.State.OK: "passed",
    check_rows.State.SKIP: "skipped",
}
_INDENT = "    "
_PICTURE_WIDTH = 140  # columns of the SVG
_FRAMES, _FRAME_SECONDS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", 0.1


class Report:
    """The lines of a run, as results arrive. A result that was added before is skipped unless its state changed."""

    def __init__(self, *, verbose: bool) -> None:
        """Begin an empty report. `verbose` also lists each row that waits for another, or could not be read."""
        self._verbose = verbose
        self._states: dict[tuple[str, str], check_rows.State] = {}
        self._group = ""

    def add(self, result: check_rows.Result) -> Iterator[Line]:
        """Yield the lines of the next result."""
        key = (result.check, result.subject)
        if self._states.get(key) is result.state or (is_folded(result) and not self._verbose):
            return
        self._states[key] = result.state
        if result.group != self._group:
            if self._group:
                yield ()
            self._group = result.group
            yield ((result.group, "bold"),)
        yield from format_row(result)

    def finish(self, results: Sequence[check_rows.Result]) -> Iterator[Line]:
        """Yield the last lines: the folded rows, by their reason, and the summary of all results."""
        yield ()
        if not self._verbose:
            yield from _format_folded(results)
        yield format_summary(results)


def is_folded(result: check_rows.Result) -> bool:
    """True if a row waits for another one, or could not be read: such rows are counted, not listed."""
    return bool(result.waits_for) or (result.unread and result.state is check_rows.State.SKIP)


def format_row(row: check_rows.Result) -> Iterator[Line]:
    """Yield the lines of a result."""
    mark, style = _MARKS[row.state]
    name = f"{row.name} ({row.subject})" if row.subject else row.name
    if row.state in (check_rows.State.FAIL, check_rows.State.WARN):
        yield ((mark, style), (f" {name}", ""))
        yield from (((_INDENT + line, style),) for line in row.detail.splitlines() if line)
        yield ((f"{_INDENT}fix: ", "bold"), (row.hint, ""))
        yield ((f"{_INDENT}see: ", "bold"), (f"railwright check --explain {row.check}", ""))
        return
    detail = f": {row.detail}" if row.detail else ""
    quiet = "dim" if row.state is check_rows.State.SKIP else ""
    yield ((mark, style), (f" {name}", quiet), (detail, "dim"))


def _format_folded(results: Sequence[check_rows.Result]) -> Iterator[Line]:
    names = {result.check: result.name for result in results}
    reasons = [
        f"until this is fixed: {names[result.waits_for]}" if result.waits_for else f"because {result.detail}"
        for result in results
        if is_folded(result)
    ]
    for reason, count in collections.Counter(reasons).items():
        checks = "1 check" if count == 1 else f"{count} checks"
        yield (("-", "dim"), (f" {checks} skipped {reason} (-v lists them)", "dim"))


def format_summary(results: Sequence[check_rows.Result]) -> Line:
    """Return the last line: the number of results by state."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state])
    style = "red" if counts[check_rows.State.FAIL] else "yellow" if counts[check_rows.State.WARN] else "green"
    return ((f"{len(results)} checks: {totals}", f"bold {style}"),)


def format_report(results: Sequence[check_rows.Result], *, verbose: bool = False) -> Iterator[Line]:
    """Yield all lines of finished results."""
    report = Report(verbose=verbose)
    for result in results:
        yield from report.add(result)
    yield from report.finish(results)


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines at once, also into a pipe."""
    for line in lines:
        output.print_styled(*line)
    sys.stdout.flush()


def draw(lines: Iterable[Line]) -> str:
    """Return lines as an SVG."""
    console, text = (importlib.import_module(f"rich.{name}") for name in ("console", "text"))
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        screen = console.Console(record=True, highlight=False, width=_PICTURE_WIDTH, file=nowhere)
        for line in lines:
            screen.print(text.Text.assemble(*((output.visible(part), style) for part, style in line)))
        return output.offline(screen.export_svg(title="railwright check"))


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
