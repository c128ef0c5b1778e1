"""Formats the results of `railwright check` row by row, and folds rows that wait into one line for each reason."""

import collections
from collections.abc import Iterator, Sequence

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.styled_lines import Line
from railwright.fabric import text

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
        checks = text.format_count(count, "check")
        yield (("-", "dim"), (f" {checks} skipped {reason} (-v lists them)", "dim"))


def format_summary(results: Sequence[check_rows.Result]) -> Line:
    """Return the last line: the number of results by state, and the rows to look at, which may be far above."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(
        f"{counts[state]} {word}{_format_anchors(results, state)}" for state, word in _WORDS.items() if counts[state]
    )
    style = "red" if counts[check_rows.State.FAIL] else "yellow" if counts[check_rows.State.WARN] else "green"
    return ((f"{text.format_count(len(results), 'check')}: {totals}", f"bold {style}"),)


def _format_anchors(results: Sequence[check_rows.Result], state: check_rows.State) -> str:
    """Return the rows in a state that calls for a look, in brackets; "" for the other states."""
    if state not in (check_rows.State.FAIL, check_rows.State.WARN):
        return ""
    anchors = dict.fromkeys(result.check for result in results if result.state is state)
    return f" ({snapshots.join_limited(anchors)})"


def format_report(results: Sequence[check_rows.Result], *, verbose: bool = False) -> Iterator[Line]:
    """Yield all lines of finished results."""
    report = Report(verbose=verbose)
    for result in results:
        yield from report.add(result)
    yield from report.finish(results)
