"""Defines checks (rows) as data, assesses them in order and collects their results.

A failed row skips the rows that depend on it, a failed fatal row all later ones. Rows are pure functions of a snapshot
of the cluster, which holds the sources that the row names.
"""

import enum
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.cli.checking import snapshots
from railwright.cluster import installed_names

DISABLED = (
    f"railwright is disabled (`railwright disable`): ConfigMap {installed_names.DISABLED} has the deleted objects, and "
    "labelled pods are created without their network"
)
ENABLE = "railwright enable"
EDIT_POLICY = "{edit policy}"  # in a hint: the command that edits the object that has the policy in force
APPLY = "{apply}"  # in a hint: the command that applies the installation again, by how it was installed
_APPLY = re.compile(r"\{apply(?: (?P<setting>[^}\s]+))?\}")  # as APPLY; `{apply KEY=VALUE}` sets a value of the chart


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
Checks = Mapping[str, Assess]
"""Anchor of a row -> the function that assesses it."""
Read = Callable[[Sequence[str]], Awaitable[snapshots.ClusterSnapshot]]
"""Returns a snapshot with the named sources."""


class Row(msgspec.Struct, frozen=True):
    """One check. `anchor` is its permanent identifier, in JSON and in the documentation.

    A failed `fatal` row ends the run, because nothing that follows would be informative.
    """

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
        return (*sources, snapshots.FABRIC_POLICY) if "policy" in sources else sources


class Group(msgspec.Struct, frozen=True):
    """Rows under one heading of the output."""

    name: str
    rows: tuple[Row, ...]


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


def run_checks(
    groups: Sequence[Group], snapshot: snapshots.ClusterSnapshot, *, before: bool = False
) -> tuple[Result, ...]:
    """Assess the rows of this phase on one snapshot, in order. Each row has at least one result."""
    run = _Run()
    return tuple(
        result for group, row in list_rows(groups, before=before) for result in run.assess(group, row, snapshot)
    )


async def stream_checks(groups: Sequence[Group], read: Read, *, before: bool = False) -> AsyncIterator[Result]:
    """Yield the results of the rows of this phase in order, each as soon as its sources have been read."""
    run = _Run()
    for group, row in list_rows(groups, before=before):
        snapshot = await read(() if run.find_blocker(row) else row.list_sources())
        for result in run.assess(group, row, snapshot):
            yield result


def list_rows(groups: Iterable[Group], *, before: bool = False) -> Iterator[tuple[Group, Row]]:
    """Yield the rows of this phase, each with its group."""
    phases = {Phase.ALWAYS, Phase.BEFORE if before else Phase.INSTALLED}
    for group in groups:
        yield from ((group, row) for row in group.rows if row.when in phases)


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


class _Run:
    """One pass over the rows. Remembers which rows failed."""

    def __init__(self) -> None:
        self._blocked_by: dict[str, str] = {}  # anchor of a failed or dependent row -> anchor of the row to fix first
        self._fatal = ""

    def find_blocker(self, row: Row) -> str:
        """Return the anchor of the failed row that skips this one, "" if it can be assessed."""
        dependencies = (self._blocked_by[anchor] for anchor in row.depends_on if anchor in self._blocked_by)
        return self._fatal or next(dependencies, "")

    def assess(self, group: Group, row: Row, snapshot: snapshots.ClusterSnapshot) -> tuple[Result, ...]:
        """Return the results of the next row."""
        blocker = self.find_blocker(row)
        assessments = (skip(f"fix {blocker} first"),) if blocker else _assess_row(row, snapshot)
        if any(assessment.state is State.FAIL for assessment in assessments):
            self._blocked_by[row.anchor] = row.anchor
            self._fatal = row.anchor if row.fatal else ""
        elif blocker:
            self._blocked_by[row.anchor] = blocker
        return tuple(_build_result(group, row, assessment, snapshot, blocker) for assessment in assessments)


def _assess_row(row: Row, snapshot: snapshots.ClusterSnapshot) -> tuple[Assessment, ...]:
    unread = next((snapshot.unread[source] for source in row.reads if source in snapshot.unread), None)
    if unread is not None:
        return (skip(unread, unread=True),)
    outcome = row.assess(snapshot)
    return (outcome,) if isinstance(outcome, Assessment) else tuple(outcome) or (skip("nothing to check"),)


def _build_result(
    group: Group, row: Row, assessment: Assessment, snapshot: snapshots.ClusterSnapshot, blocker: str
) -> Result:
    has_problem = assessment.state in (State.FAIL, State.WARN)
    hint = (assessment.hint or row.hint) if has_problem else ""
    hint = _APPLY.sub(lambda match: snapshots.format_apply_command(snapshot, match["setting"] or ""), hint)
    hint = hint.replace(EDIT_POLICY, snapshots.format_edit_command(snapshot))
    hint = hint.replace("{namespace}", snapshot.namespace)
    return Result(
        group=group.name,
        check=row.anchor,
        name=row.name,
        subject=assessment.subject,
        state=assessment.state,
        detail=assessment.detail,
        hint=hint.replace(f"-n {installed_names.NAMESPACE}", f"-n {snapshot.namespace}"),
        unread=assessment.unread,
        waits_for=blocker,
    )
