"""How a check looks: rows under headings, a mark each, and below what is wrong what to do and where it is explained.

Owns form only. All text of the cluster's passes through `output.visible`.
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
    """The whole answer."""
    parts: list[Text] = []
    for group, rows in itertools.groupby(results, key=lambda each: each.group):
        parts += [Text(group, style="bold"), *(line for row in rows for line in _row(row)), Text()]
    return Group(*parts, summary(results))


def summary(results: Sequence[model.Result]) -> Text:
    """The last line: how many of what."""
    counts = collections.Counter(each.state for each in results)
    told = ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state])
    style = "red" if counts[model.State.FAIL] else "yellow" if counts[model.State.WARN] else "green"
    return Text(f"{len(results)} checks: {told}", style=f"bold {style}")


def document(results: Sequence[model.Result], *, server: str, namespace: str, version: str, good: bool) -> Any:
    """The answer of `-o json`; docs/check.md describes it, and fields are only ever added."""
    counts = collections.Counter(each.state for each in results)
    return {
        "version": version,
        "server": server,
        "namespace": namespace,
        "ok": good,
        "counts": {state.value: counts[state] for state in model.State},
        "checks": list(results),
    }


def _row(row: model.Result) -> list[Text]:
    mark, style = _MARKS[row.state]
    name = f"{row.name} ({row.subject})" if row.subject else row.name
    first, *more = row.detail.splitlines() or [""]
    if row.state in (model.State.FAIL, model.State.WARN):
        found = [Text(_INDENT + output.visible(line), style=style) for line in (first, *more) if line]
        return [
            Text.assemble((mark, style), (f" {output.visible(name)}", "")),
            *found,
            Text.assemble((f"{_INDENT}fix: ", "bold"), (output.visible(row.hint), "")),
            Text.assemble((f"{_INDENT}see: ", "bold"), (row.link, "cyan")),
        ]
    told = f": {output.visible(row.detail)}" if row.detail else ""
    quiet = "dim" if row.state is model.State.SKIP else ""
    return [Text.assemble((mark, style), (f" {output.visible(name)}", quiet), (told, "dim"))]
