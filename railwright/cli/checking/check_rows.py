"""Defines checks (rows) as data, runs them in order and collects their results.

A failed row skips the rows that depend on it. Rows are pure functions of a snapshot of the cluster.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from railwright.cli.checking import snapshots
from railwright.fabric import names

PAGE = "check"  # of the documentation; it has an anchor for each row


class State(enum.StrEnum):
    """Outcome of a row. Only FAIL changes the exit code; SKIP comes with the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


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


Assess = Callable[[snapshots.ClusterSnapshot], Assessment | Iterable[Assessment]]


class Row(msgspec.Struct, frozen=True):
    """One check. `anchor` is its permanent identifier, in JSON and in the documentation."""

    anchor: str
    name: str  # states the healthy condition
    assess: Assess
    hint: str  # how to fix a failure, with the command
    reads: tuple[str, ...] = ()  # sources that must be readable, else the row is skipped
    depends_on: tuple[str, ...] = ()  # rows whose failure skips this one
    when: Phase = Phase.INSTALLED


class Group(msgspec.Struct, frozen=True):
    """Rows under one heading of the output."""

    name: str
    rows: tuple[Row, ...]


class Result(msgspec.Struct, frozen=True):
    """Result of a row as `-o json` prints it. `hint` and `link` are "" unless the state is WARN or FAIL."""

    group: str
    check: str  # the row's anchor
    name: str
    subject: str
    state: State
    detail: str
    hint: str
    link: str
    unread: bool = False


def ok(detail: str = "", *, subject: str = "") -> Assessment:
    """Return a passed assessment."""
    return Assessment(State.OK, detail, subject=subject)


def warn(detail: str, hint: str = "", *, subject: str = "") -> Assessment:
    """Return a warning: it works now, but not in every case."""
    return Assessment(State.WARN, detail, hint, subject)


def fail(detail: str, hint: str = "", *, subject: str = "", unread: bool = False) -> Assessment:
    """Return a failure."""
    return Assessment(State.FAIL, detail, hint, subject, unread)


def skip(detail: str, *, subject: str = "", unread: bool = False) -> Assessment:
    """Return a skipped assessment. `detail` is the reason."""
    return Assessment(State.SKIP, detail, subject=subject, unread=unread)


def format_link(anchor: str) -> str:
    """Return the URL of the row's documentation."""
    return f"{names.DOCS}/{PAGE}/#{anchor}"


def run_checks(
    groups: Sequence[Group], snapshot: snapshots.ClusterSnapshot, *, before: bool = False
) -> tuple[Result, ...]:
    """Run the rows of this phase in order. Each row has at least one result."""
    phases = {Phase.ALWAYS, Phase.BEFORE if before else Phase.INSTALLED}
    failed_rows: dict[str, str] = {}  # anchor of a failed or dependent row -> anchor of the failed row to fix first
    results: list[Result] = []
    for group in groups:
        for row in group.rows:
            if row.when not in phases:
                continue
            assessments = _assess_row(row, snapshot, failed_rows)
            if any(assessment.state is State.FAIL for assessment in assessments):
                failed_rows.setdefault(row.anchor, row.anchor)
            results += _build_results(group, row, assessments, snapshot.namespace)
    return tuple(results)


def has_failures(results: Iterable[Result], *, strict: bool = False) -> bool:
    """True if a row failed, or with `strict` if it warned."""
    problem_states = {State.FAIL, State.WARN} if strict else {State.FAIL}
    return any(result.state in problem_states for result in results)


def has_unread(results: Iterable[Result]) -> bool:
    """True if the caller could not read something that a row needs."""
    return any(result.unread for result in results)


def is_unreachable(results: Iterable[Result]) -> bool:
    """True if no API server answered, so that no other row ran."""
    return any(result.unread and result.state is State.FAIL for result in results)


def _assess_row(row: Row, snapshot: snapshots.ClusterSnapshot, failed_rows: dict[str, str]) -> tuple[Assessment, ...]:
    failed_dependency = next((failed_rows[anchor] for anchor in row.depends_on if anchor in failed_rows), None)
    if failed_dependency is not None:
        failed_rows[row.anchor] = failed_dependency
        return (skip(f"fix {failed_dependency} first"),)
    unread = next((snapshot.unread[source] for source in row.reads if source in snapshot.unread), None)
    if unread is not None:
        return (skip(unread, unread=True),)
    outcome = row.assess(snapshot)
    return (outcome,) if isinstance(outcome, Assessment) else tuple(outcome) or (skip("nothing to check"),)


def _build_results(group: Group, row: Row, assessments: Iterable[Assessment], namespace: str) -> Iterator[Result]:
    for assessment in assessments:
        hint = (assessment.hint or row.hint).replace(f"-n {names.NAMESPACE}", f"-n {namespace}")
        has_problem = assessment.state in (State.FAIL, State.WARN)
        yield Result(
            group=group.name,
            check=row.anchor,
            name=row.name,
            subject=assessment.subject,
            state=assessment.state,
            detail=assessment.detail,
            hint=hint if has_problem else "",
            link=format_link(row.anchor) if has_problem else "",
            unread=assessment.unread,
        )
