"""Defines checks (rows) by their table, assesses them in order and collects their results.

A failed row skips the rows that depend on it, a failed fatal row all later ones. Rows are pure functions of a snapshot
of the cluster, which holds the sources that the row names. For --explain, prints what a row looks at, an example and
the fix, or the names of all rows.

The table is railwright/cli/checking/rows.md. The fields of a row are the lines below its heading: `name`, which states
the healthy condition; `reads`, the sources that must be readable, else the row is skipped; `uses`, further sources,
without which the row also works; `after`, rows and groups whose failure skips it; `phase`; `fatal`; `fix`; `example`,
the mark and the detail of a result, with its `subject` and, if it has its own, `example_fix`. `group` begins a group of
the output.
"""

import datetime as dt
import difflib
import enum
import functools
import importlib.resources
import re
import shutil
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from railwright.cli import output
from railwright.cli.checking import snapshots
from railwright.cluster import installed_names
from railwright.fabric import text

DISABLED = (
    f"railwright is disabled (`railwright disable`): ConfigMap {installed_names.DISABLED} has the deleted objects, and "
    "labelled pods are created without their network"
)
ENABLE = "railwright enable"
EDIT_POLICY = "{edit policy}"  # in a hint: the command that edits the object that has the policy in force
APPLY = "{apply}"  # in a hint: the command that applies the installation again, by how it was installed
_APPLY = re.compile(r"\{apply(?: (?P<setting>[^}\s]+))?\}")  # as APPLY; `{apply KEY=VALUE}` sets a value of the chart
_NAMES = {
    "{webhook}": snapshots.WEBHOOK,
    "{extender}": snapshots.EXTENDER,
    "{certs}": snapshots.CERTS,
    "{webhook tls}": snapshots.SECRETS[snapshots.WEBHOOK],
    "{extender tls}": snapshots.SECRETS[snapshots.EXTENDER],
    "{configuration}": snapshots.CONFIGURATION,
    "{policy}": snapshots.POLICY,
}
_SOURCES = {
    "everything": (
        *(source.name for source in snapshots.SOURCES),
        snapshots.NAMESPACED_PODS,
        snapshots.SERVER_PERMISSIONS,
    ),
    "workloads": (*snapshots.WORKLOADS,),
}


class State(enum.StrEnum):
    """Outcome of a row. Only FAIL changes the exit code; SKIP comes with the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


MARKS: dict[State, tuple[str, str]] = {
    State.OK: ("√", "green"),
    State.WARN: ("‼", "yellow"),
    State.FAIL: ("×", "bold red"),  # noqa: RUF001 - the mark of linkerd check
    State.SKIP: ("-", "dim"),
}
PROBLEMS = (State.FAIL, State.WARN)


class Phase(enum.StrEnum):
    """Phase of a row: after the installation, before it (`--pre`), or both."""

    INSTALLED = "installed"
    BEFORE = "before"
    ALWAYS = "always"


class Assessment(msgspec.Struct, frozen=True):
    """Outcome for one subject of a row. `subject` is "" for rows with one subject; `hint` overrides the row's hint."""

    state: State
    detail: str = ""
    hint: str = ""
    subject: str = ""
    unread: bool = False  # the caller could not read what the row needs


ok = functools.partial(Assessment, State.OK)
warn = functools.partial(Assessment, State.WARN)  # it works now, but not in every case
fail = functools.partial(Assessment, State.FAIL)
skip = functools.partial(Assessment, State.SKIP)  # the detail is the reason


_Value = TypeVar("_Value")


class SkipError(Exception):
    """Raised to skip a row, or one of its subjects, with the reason."""

    def __init__(self, reason: str, *, unread: bool = False) -> None:
        super().__init__(reason)
        self.assessment = skip(reason, unread=unread)


def require(value: _Value, reason: str) -> _Value:
    """Return a value. Raise SkipError with the reason if it is false or empty."""
    if not value:
        raise SkipError(reason)
    return value


def require_read(snapshot: snapshots.Snapshot, *sources: str) -> None:
    """Raise SkipError if one of the sources could not be read."""
    if unread := [snapshot.unread[source] for source in sources if source in snapshot.unread]:
        raise SkipError(unread[0], unread=True)


def assess_problems(
    problems: Iterable[str] | Mapping[str, str],
    good: str = "",
    sentence: str = "{}",
    *,
    bad: Callable[[str], Assessment] = fail,
    most: int = 3,
) -> Assessment:
    """Return a passed assessment with the detail `good`, or a bad one with a sentence that names the first problems.

    A mapping has the problem of each item, "" if it has none.
    """
    if isinstance(problems, Mapping):
        problems = (f"{item}: {problem}" for item, problem in problems.items() if problem)
    listed = text.join_first(problems, most)
    return bad(sentence.replace("{}", listed)) if listed else ok(good)


Assess = Callable[[snapshots.Snapshot], Assessment | Iterable[Assessment]]
Checks = Mapping[str, Assess]
"""Anchor of a row -> the function that assesses it."""
_Item = TypeVar("_Item")


def for_each(
    list_items: Callable[[snapshots.Snapshot], Mapping[str, _Item]],
    assess: Callable[[snapshots.Snapshot, _Item], Assessment],
) -> Assess:
    """Return a check that assesses each item; its name is the subject of the assessment."""

    def assess_items(snapshot: snapshots.Snapshot) -> Iterator[Assessment]:
        for name, item in list_items(snapshot).items():
            try:
                assessment = assess(snapshot, item)
            except SkipError as error:
                assessment = error.assessment
            yield msgspec.structs.replace(assessment, subject=name)

    return assess_items


Read = Callable[[Sequence[str]], Awaitable[snapshots.Snapshot]]
"""Returns a snapshot with the named sources."""


class Row(msgspec.Struct, frozen=True):
    """One check. `anchor` is its permanent identifier, in JSON and in the documentation.

    A failed `fatal` row ends the run, because nothing that follows would be informative.
    """

    group: str  # heading of the output
    anchor: str
    name: str  # states the healthy condition
    assess: Assess
    hint: str  # how to fix a failure, with the command; may contain APPLY or EDIT_POLICY
    reads: tuple[str, ...] = ()  # sources that must be readable, else the row is skipped
    uses: tuple[str, ...] = ()  # further sources; the row also works without them
    depends_on: tuple[str, ...] = ()  # rows whose failure skips this one
    when: Phase = Phase.INSTALLED
    fatal: bool = False

    def list_sources(self) -> tuple[str, ...]:
        """Return the sources that the assessment and the hint need."""
        sources = (*self.reads, *self.uses, *(("deployments",) if _APPLY.search(self.hint) else ()))
        cluster = (snapshots.CLUSTER,) if {"nodes", "device-slices"} & {*sources} else ()
        return (*sources, *cluster)


class Result(msgspec.Struct, frozen=True):
    """Result of a row as `-o json` prints it. `hint` is "" unless the state is WARN or FAIL."""

    group: str
    check: str  # the row's anchor
    name: str
    subject: str
    state: State
    detail: str
    hint: str
    unread: bool = False
    waits_for: str = ""  # anchor of the failed row that skipped this one


_INDENT = "    "


def format_row(result: Result) -> Iterator[output.Line]:
    """Yield the lines of a result."""
    mark, style = MARKS[result.state]
    name = f"{result.name} ({result.subject})" if result.subject else result.name
    if result.state in PROBLEMS:
        yield ((mark, style), (f" {name}", ""))
        yield from (((_INDENT + line, style),) for line in result.detail.splitlines() if line)
        yield ((f"{_INDENT}fix: ", "bold"), (result.hint, ""))
        yield ((f"{_INDENT}see: ", "bold"), (f"railwright check --explain {result.check}", ""))
        return
    detail = f": {result.detail}" if result.detail else ""
    quiet = "dim" if result.state is State.SKIP else ""
    yield ((mark, style), (f" {name}", quiet), (detail, "dim"))


# --- the table --------------------------------------------------------------------------------------------


@functools.cache
def read_fields() -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row by its anchor, `text` with the explanation in Markdown among them."""
    return parse(importlib.resources.files("railwright.cli.checking").joinpath("rows.md").read_text(encoding="utf-8"))


def parse(markdown: str) -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row in the text of the table, with the names of installed objects, without comments.

    The example is part of `text`, after the first paragraph, as the command prints it.
    """
    rows = {anchor: _insert_names(row) for anchor, row in text.parse_rows(markdown).items()}
    return {anchor: {**row, "text": _insert_example(anchor, row)} for anchor, row in rows.items()}


def _insert_names(row: Mapping[str, str]) -> Mapping[str, str]:
    fields = {**row}
    for placeholder, name in _NAMES.items():
        fields |= {field: value.replace(placeholder, name) for field, value in fields.items() if field != "text"}
    return fields


_EXAMPLE = snapshots.Snapshot(installed_names.NAMESPACE, dt.datetime.fromtimestamp(0, dt.UTC))  # names the installation


def _insert_example(anchor: str, row: Mapping[str, str]) -> str:
    mark, _, detail = row["example"].partition(" ")
    state = {own: state for state, (own, _) in MARKS.items()}[mark]
    hint = _fill_hint(row.get("example_fix") or row["fix"], _EXAMPLE)
    result = Result("", anchor, row["name"], row.get("subject", ""), state, detail, hint)
    lines = ["".join(part for part, _ in line) for line in format_row(result)][:3]  # without the reference to this text
    first, *others = row["text"].split("\n\n")
    return "\n\n".join([first, "\n".join(["```text", *lines, "```"]), *others])


def get_fix(anchor: str) -> str:
    """Return the fix of a row, for another row with the same one."""
    return read_fields()[anchor]["fix"]


def build_rows(checks: Checks) -> tuple[Row, ...]:
    """Return all rows in the order of the table. `checks` has the function that assesses each."""
    rows: list[Row] = []
    group = ""
    groups: dict[str, list[str]] = {}
    for anchor, fields in read_fields().items():
        group = fields.get("group", group)
        rows.append(
            Row(
                group=group,
                anchor=anchor,
                name=fields["name"],
                assess=checks[anchor],
                hint=fields["fix"],
                reads=_expand(fields.get("reads"), _SOURCES),
                uses=_expand(fields.get("uses"), _SOURCES),
                depends_on=_expand(fields.get("after"), groups),
                when=Phase(fields.get("phase", Phase.INSTALLED)),
                fatal="fatal" in fields,
            )
        )
        groups.setdefault(group, []).append(anchor)
    return tuple(rows)


def _expand(items: str | None, aliases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the items of a field; an alias stands for several."""
    listed = items.split(", ") if items else ()
    return tuple(name for item in listed for name in aliases.get(item, (item,)))


# --- a run ------------------------------------------------------------------------------------------------


def select_rows(rows: Iterable[Row], *, before: bool = False) -> list[Row]:
    """Return the rows of this phase."""
    return [row for row in rows if row.when in (Phase.ALWAYS, Phase.BEFORE if before else Phase.INSTALLED)]


async def run(rows: Iterable[Row], read: Read) -> AsyncIterator[Result]:
    """Yield the results of rows in order, each as soon as its sources have been read; at least one of each row."""
    blocked_by: dict[str, str] = {}  # anchor of a failed or dependent row -> anchor of the row to fix first
    fatal = ""
    for row in rows:
        blocker = fatal or next((blocked_by[anchor] for anchor in row.depends_on if anchor in blocked_by), "")
        snapshot = await read(() if blocker else row.list_sources())
        assessments = (skip(f"fix {blocker} first"),) if blocker else _assess(row, snapshot)
        if any(assessment.state is State.FAIL for assessment in assessments):
            blocked_by[row.anchor] = row.anchor
            fatal = row.anchor if row.fatal else ""
        elif blocker:
            blocked_by[row.anchor] = blocker
        for assessment in assessments:
            yield _build_result(row, assessment, snapshot, blocker)


def _assess(row: Row, snapshot: snapshots.Snapshot) -> Sequence[Assessment]:
    try:
        require_read(snapshot, *row.reads)
        outcome = row.assess(snapshot)
        return (outcome,) if isinstance(outcome, Assessment) else tuple(outcome) or (skip("nothing to check"),)
    except SkipError as error:
        return (error.assessment,)


def _build_result(row: Row, assessment: Assessment, snapshot: snapshots.Snapshot, blocker: str) -> Result:
    hint = (assessment.hint or row.hint) if assessment.state in PROBLEMS else ""
    outcome = msgspec.structs.asdict(assessment) | {"hint": _fill_hint(hint, snapshot)}
    return Result(group=row.group, check=row.anchor, name=row.name, waits_for=blocker, **outcome)


def _fill_hint(hint: str, snapshot: snapshots.Snapshot) -> str:
    """Return a hint with the commands and the namespace of an installation."""
    hint = _APPLY.sub(lambda match: snapshots.format_apply_command(snapshot, match["setting"] or ""), hint)
    hint = hint.replace(EDIT_POLICY, snapshots.format_edit_command(snapshot))
    hint = hint.replace("{namespace}", snapshot.namespace)
    return hint.replace(f"-n {installed_names.NAMESPACE}", f"-n {snapshot.namespace}")


def has_failures(results: Iterable[Result], *, strict: bool = False) -> bool:
    """True if a row failed, or with `strict` if it warned."""
    problem_states = PROBLEMS if strict else (State.FAIL,)
    return any(result.state in problem_states for result in results)


def is_unreachable(results: Iterable[Result]) -> bool:
    """True if no API server answered, so that no other row ran."""
    return any(result.unread and result.state is State.FAIL for result in results)


# --- the explanation of a row -----------------------------------------------------------------------------

_MAX_WIDTH = 100  # columns of a paragraph
_CODE = re.compile(r"^```[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def explain(anchor: str) -> int:
    """Print the explanation of a row, for "" the names of all. Return 0. Raise UnreadableError for an unknown row."""
    rows = read_fields()
    if anchor and anchor not in rows:
        similar = difflib.get_close_matches(anchor, rows, n=1)
        suggestion = f" did you mean {similar[0]}?" if similar else ""
        raise output.UnreadableError(
            f"--explain: there is no row {anchor};{suggestion or ' to list all: railwright check --explain'}"
        )
    if not anchor:
        width = max(map(len, rows))
        for name, fields in rows.items():
            output.print_styled((name.ljust(width), "bold"), (f"  {fields['name']}", ""))
        return output.OK
    output.print_styled((anchor, "bold"), (f": {rows[anchor]['name']}", ""))
    for line in _format_blocks(rows[anchor]["text"]):
        print(line)
    return output.OK


def _format_blocks(markdown: str) -> Iterator[str]:
    """Yield the lines of a section for a terminal: paragraphs are wrapped, code is indented."""
    width = min(_MAX_WIDTH, shutil.get_terminal_size().columns)
    for block in markdown.split("\n\n"):
        yield ""
        code = _CODE.search(block)
        if code:
            yield from textwrap.indent(code[1], "    ").splitlines()
        elif block.startswith("|"):
            yield from _format_table(block)
        else:
            yield from textwrap.wrap(block.replace("`", ""), width)


def _format_table(block: str) -> Iterator[str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if "---" not in line]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "    " + "  ".join(map(str.ljust, row, widths)).rstrip()
