"""What a check is made of: rows as data, what each found, and the order in which they are judged.

Owns the verdicts and how a failure upstream silences what rests on it. Refuses to know the cluster: rows are functions
of what was seen.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from railwright.cli.checking import seen as sight
from railwright.fabric import names

PAGE = "check"  # of the documentation, with an anchor for every row


class State(enum.StrEnum):
    """How a row ended. Only FAIL makes the answer a finding; SKIP says why nothing could be said."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class When(enum.StrEnum):
    """Whether a row asks something of a cluster with railwright, of one before it (`--pre`), or of both."""

    INSTALLED = "installed"
    BEFORE = "before"
    ALWAYS = "always"


class Verdict(msgspec.Struct, frozen=True):
    """What one row found; `subject` where it judges several things, `hint` where it knows better than its row."""

    state: State
    detail: str = ""
    hint: str = ""
    subject: str = ""
    unread: bool = False  # the cluster did not show what the row judges


Judge = Callable[[sight.Seen], Verdict | Iterable[Verdict]]


class Row(msgspec.Struct, frozen=True):
    """One question. `anchor` names it for ever: in JSON, and as the place in the documentation."""

    anchor: str
    name: str  # what holds when all is well
    judge: Judge
    hint: str  # what to do when it does not hold, with the command
    reads: tuple[str, ...] = ()  # sources without which nothing can be said
    needs: tuple[str, ...] = ()  # rows whose failure makes this one's answer worthless
    when: When = When.INSTALLED


class Group(msgspec.Struct, frozen=True):
    """Rows under one heading."""

    name: str
    rows: tuple[Row, ...]


class Result(msgspec.Struct, frozen=True):
    """A row with its verdict, as `-o json` gives it; `hint` and `link` are empty where nothing is to be done."""

    group: str
    check: str  # the row's anchor
    name: str
    subject: str
    state: State
    detail: str
    hint: str
    link: str
    unread: bool = False


def ok(detail: str = "", *, subject: str = "") -> Verdict:
    """It holds."""
    return Verdict(State.OK, detail, subject=subject)


def warn(detail: str, hint: str = "", *, subject: str = "") -> Verdict:
    """It works, and will not always."""
    return Verdict(State.WARN, detail, hint, subject)


def fail(detail: str, hint: str = "", *, subject: str = "", unread: bool = False) -> Verdict:
    """It does not hold."""
    return Verdict(State.FAIL, detail, hint, subject, unread)


def skip(detail: str, *, subject: str = "", unread: bool = False) -> Verdict:
    """Nothing can be said, and why."""
    return Verdict(State.SKIP, detail, subject=subject, unread=unread)


def link(anchor: str) -> str:
    """Where the documentation speaks of a row."""
    return f"{names.DOCS}/{PAGE}/#{anchor}"


def judged(groups: Sequence[Group], seen: sight.Seen, *, before: bool = False) -> tuple[Result, ...]:
    """Every row of this phase in its order, each with at least one result."""
    wanted = {When.ALWAYS, When.BEFORE if before else When.INSTALLED}
    broken: dict[str, str] = {}  # rows that failed, or rest on one: by anchor, the one to mend first
    results: list[Result] = []
    for group in groups:
        for row in group.rows:
            if row.when not in wanted:
                continue
            verdicts = _verdicts(row, seen, broken)
            if any(each.state is State.FAIL for each in verdicts):
                broken.setdefault(row.anchor, row.anchor)
            results += _results(group, row, verdicts, seen.namespace)
    return tuple(results)


def failed(results: Iterable[Result], *, strict: bool = False) -> bool:
    """True when something is to be mended; `strict`: warnings count too."""
    counting = {State.FAIL, State.WARN} if strict else {State.FAIL}
    return any(each.state in counting for each in results)


def unread(results: Iterable[Result]) -> bool:
    """Return whether the cluster kept something that was to be judged from us."""
    return any(each.unread for each in results)


def unreachable(results: Iterable[Result]) -> bool:
    """Return whether there was no usable API server, so that nothing was judged."""
    return any(each.unread and each.state is State.FAIL for each in results)


def _verdicts(row: Row, seen: sight.Seen, broken: dict[str, str]) -> tuple[Verdict, ...]:
    basis = next((broken[anchor] for anchor in row.needs if anchor in broken), None)
    if basis is not None:
        broken[row.anchor] = basis
        return (skip(f"waits for {basis}"),)
    unread = next((seen.unread[source] for source in row.reads if source in seen.unread), None)
    if unread is not None:
        return (skip(unread, unread=True),)
    found = row.judge(seen)
    return (found,) if isinstance(found, Verdict) else tuple(found) or (skip("there is none to look at"),)


def _results(group: Group, row: Row, verdicts: Iterable[Verdict], namespace: str) -> Iterator[Result]:
    for each in verdicts:
        hint = (each.hint or row.hint).replace(f"-n {names.NAMESPACE}", f"-n {namespace}")
        mending = each.state in (State.FAIL, State.WARN)
        yield Result(
            group=group.name,
            check=row.anchor,
            name=row.name,
            subject=each.subject,
            state=each.state,
            detail=each.detail,
            hint=hint if mending else "",
            link=link(row.anchor) if mending else "",
            unread=each.unread,
        )
