"""Defines the rows of `railwright check` and runs them in order.

A row is a function of a snapshot of the cluster with the decorator `row`. Its docstring is the explanation that
`--explain` and docs/reference/check.md print. A failed row skips the rows that name it in `after`; a failed fatal row
skips all others.
"""

import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from railwright.cli.checking import snapshots
from railwright.fabric import text
from railwright.fabric.policy import model


class State(enum.StrEnum):
    """Outcome of a row. Only FAIL changes the exit code; SKIP comes with the reason."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


PROBLEMS = (State.FAIL, State.WARN)


class Phase(enum.StrEnum):
    """Phase of a row: after the installation, before it (`--pre`), or both."""

    INSTALLED = "installed"
    BEFORE = "before"
    ALWAYS = "always"


class Assessment(msgspec.Struct, frozen=True):
    """Outcome for one subject of a row. `subject` is "" for rows with one subject; `fix` overrides the row's fix."""

    state: State
    detail: str = ""
    fix: str = ""
    subject: str = ""
    unread: bool = False  # the caller could not read what the row needs


ok = functools.partial(Assessment, State.OK)
warn = functools.partial(Assessment, State.WARN)  # it works now, but not in every case
fail = functools.partial(Assessment, State.FAIL)
skip = functools.partial(Assessment, State.SKIP)  # the detail is the reason


class SkipError(Exception):
    """Raised to skip a row, or one of its subjects, with the reason."""

    def __init__(self, reason: str, *, unread: bool = False) -> None:
        super().__init__(reason)
        self.assessment = skip(reason, unread=unread)


_Value = TypeVar("_Value")
_Item = TypeVar("_Item")


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
    problems: Iterable[str], good: str = "", sentence: str = "{}", *, bad: Callable[[str], Assessment] = fail
) -> Assessment:
    """Return a passed assessment with the detail `good`, or a bad one with a sentence that names the first problems."""
    listed = text.join_first(problems, 4)
    return bad(sentence.replace("{}", listed)) if listed else ok(good)


def require_policy(snapshot: snapshots.Snapshot) -> model.Policy:
    """Return the policy. Raise SkipError without a valid one."""
    if not isinstance(snapshot.policy_result, model.Policy):
        raise SkipError("there is no valid policy")
    return snapshot.policy_result


Assess = Callable[[snapshots.Snapshot], Assessment | Iterable[Assessment]]


def for_each(
    list_items: Callable[[snapshots.Snapshot], Mapping[str, _Item]],
) -> Callable[[Callable[[snapshots.Snapshot, _Item], Assessment]], Assess]:
    """Decorate a function that assesses one item. The item's name is the subject of the assessment."""

    def decorate(assess: Callable[[snapshots.Snapshot, _Item], Assessment]) -> Assess:
        @functools.wraps(assess)
        def assess_items(snapshot: snapshots.Snapshot) -> Iterator[Assessment]:
            for name, item in list_items(snapshot).items():
                try:
                    assessment = assess(snapshot, item)
                except SkipError as error:
                    assessment = error.assessment
                yield msgspec.structs.replace(assessment, subject=name)

        return assess_items

    return decorate


class Row(msgspec.Struct, frozen=True):
    """One check. `anchor` is its permanent identifier, in JSON and in the documentation."""

    anchor: str
    name: str  # states the healthy condition
    fix: str  # how to fix a failure, with the command; `snapshots.fill_in` replaces its placeholders
    text: str  # explanation in Markdown
    assess: Assess
    reads: Sequence[str]  # sources that must be readable, else the row is skipped
    after: Sequence[str]  # rows whose failure skips this one
    phase: Phase


def row(fix: str, *, reads: str = "", after: str = "", phase: Phase = Phase.INSTALLED) -> Callable[[Assess], Row]:
    """Make a row of a function `check_ANCHOR`; the first line of its docstring is the name of the row.

    Names of sources and rows are separated by blanks.
    """

    def build(assess: Assess) -> Row:
        anchor = assess.__name__.removeprefix("check_").replace("_", "-")
        name, _, explanation = inspect.cleandoc(assess.__doc__ or "").partition("\n")
        return Row(
            anchor, name.removesuffix("."), fix, explanation.strip(), assess, reads.split(), after.split(), phase
        )

    return build


class Result(msgspec.Struct, frozen=True):
    """Result of a row as `-o json` prints it. `hint` has the fix; it is "" unless the state is WARN or FAIL."""

    group: str
    check: str  # the row's anchor
    name: str
    subject: str
    state: State
    detail: str
    hint: str
    unread: bool = False
    waits_for: str = ""  # anchor of the failed row that skipped this one


# --- a run ------------------------------------------------------------------------------------------------

FATAL = ("api-reachable", "installed")  # nothing after these rows can be checked when they fail
Groups = Mapping[str, Sequence[Row]]


def run(groups: Groups, snapshot: snapshots.Snapshot) -> Iterator[Result]:
    """Yield the results of the rows of each group in order; at least one of each row."""
    blocked_by: dict[str, str] = {}  # anchor of a failed or dependent row -> anchor of the row to fix first
    for group, item in ((group, item) for group, rows in groups.items() for item in rows):
        blocker = next((blocked_by[anchor] for anchor in (*FATAL, *item.after) if anchor in blocked_by), "")
        assessments = (skip(f"fix {blocker} first"),) if blocker else _assess(item, snapshot)
        if blocker or any(assessment.state is State.FAIL for assessment in assessments):
            blocked_by[item.anchor] = blocker or item.anchor
        for found in assessments:
            fix = snapshots.fill_in(found.fix or item.fix, snapshot) if found.state in PROBLEMS else ""
            yield Result(
                group, item.anchor, item.name, found.subject, found.state, found.detail, fix, found.unread, blocker
            )


def _assess(item: Row, snapshot: snapshots.Snapshot) -> Sequence[Assessment]:
    try:
        require_read(snapshot, *item.reads)
        outcome = item.assess(snapshot)
        return (outcome,) if isinstance(outcome, Assessment) else tuple(outcome) or (skip("nothing to check"),)
    except SkipError as error:
        return (error.assessment,)
