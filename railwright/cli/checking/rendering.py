"""Renders check results as a table with headings, marks, fixes and links, and as JSON.

Text from the cluster passes through `output.visible`, which escapes control characters.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from railwright.cli import output
from railwright.cli.checking import model

_MARKS: dict[model.State, tuple[str, str]] = {
    model.State.OK: ("√", "green"),
    model.State.WARN: ("‼", "yellow"),
    model.State.FAIL: ("×", "bold red"),  # noqa: RUF001 - the mark of linkerd check
    model.State.SKIP: ("-", "dim"),
}
_WORDS = {model.State.FAIL: "failed", model.State.WARN: "warned", model.State.OK: "passed", model.State.SKIP: "skipped"}
_INDENT = "    "


def render(results: Sequence[model.Result]) -> Group:
    """Return all results, by group, and the summary."""
    parts: list[Text] = []
    for group, rows in itertools.groupby(results, key=lambda result: result.group):
        parts += [Text(group, style="bold"), *(line for row in rows for line in _render_row(row)), Text()]
    return Group(*parts, build_summary(results))


def build_summary(results: Sequence[model.Result]) -> Text:
    """Return the last line: the number of results by state."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state])
    style = "red" if counts[model.State.FAIL] else "yellow" if counts[model.State.WARN] else "green"
    return Text(f"{len(results)} checks: {totals}", style=f"bold {style}")


def build_document(results: Sequence[model.Result], *, server: str, namespace: str, version: str, good: bool) -> Any:
    """Return the output of `-o json`, documented in docs/check.md. Fields are added, never renamed or removed."""
    counts = collections.Counter(result.state for result in results)
    return {
        "version": version,
        "server": server,
        "namespace": namespace,
        "ok": good,
        "counts": {state.value: counts[state] for state in model.State},
        "checks": list(results),
    }


def _render_row(row: model.Result) -> list[Text]:
    mark, style = _MARKS[row.state]
    name = f"{row.name} ({row.subject})" if row.subject else row.name
    first, *more = row.detail.splitlines() or [""]
    if row.state in (model.State.FAIL, model.State.WARN):
        details = [Text(_INDENT + output.visible(line), style=style) for line in (first, *more) if line]
        return [
            Text.assemble((mark, style), (f" {output.visible(name)}", "")),
            *details,
            Text.assemble((f"{_INDENT}fix: ", "bold"), (output.visible(row.hint), "")),
            Text.assemble((f"{_INDENT}see: ", "bold"), (row.link, "cyan")),
        ]
    detail = f": {output.visible(row.detail)}" if row.detail else ""
    quiet = "dim" if row.state is model.State.SKIP else ""
    return [Text.assemble((mark, style), (f" {output.visible(name)}", quiet), (detail, "dim"))]
