"""The result of the checks: problems and ready rails, and both as one line that fits a terminal and a pod's status."""

from collections.abc import Sequence
from typing import NamedTuple

MAX = 1000  # characters; kubelet keeps 4096 bytes of a container's termination message and 12 KiB of a pod's
_MAX_LOCATIONS = 8  # maximum number of locations in a message


class Problem(NamedTuple):
    """A problem: its location, a description, and the fix."""

    where: str
    what: str
    fix: str


class ReadyRail(NamedTuple):
    """A rail that is ready. "" or None if the transport has no such value."""

    rail: str
    device: str
    address: str = ""
    gid: int | None = None
    mtu: int | None = None
    rate: str = ""


class Report(NamedTuple):
    """All problems, the rails without problems, and those whose NIC on this node is at fault."""

    problems: tuple[Problem, ...]
    rails: tuple[ReadyRail, ...]
    broken: tuple[str, ...] = ()


def format_line(report: Report, *, warn: bool) -> str:
    """Return the line: the problems with their fixes, or the rails that are ready."""
    if not report.problems:
        count = len(report.rails)
        return _sanitize(f"{count} rail{'s' * (count != 1)} ready: {', '.join(map(_format_rail, report.rails))}")
    return _sanitize(f"{'warning' if warn else 'failed'}: {'; '.join(_group_by_fix(report.problems))}")


BROKEN = "rails out of order: "  # before their names in the termination message, where the extender reads them


def format_broken(report: Report) -> str:
    """Return a line with the rails whose NIC on this node is at fault, "" without one."""
    return _sanitize(f"{BROKEN}{','.join(report.broken)}") if report.broken else ""


def _sanitize(text: str) -> str:
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= MAX else f"{plain[: MAX - 3]}..."


def _group_by_fix(problems: Sequence[Problem]) -> list[str]:
    """Group problems by fix, in the order of the first problem of each group."""
    by_fix: dict[str, list[str]] = {}
    for problem in problems:
        by_fix.setdefault(problem.fix, []).append(f"{problem.where}: {problem.what}")
    return [f"{_join_locations(locations)}: {fix}" for fix, locations in by_fix.items()]


def _join_locations(locations: Sequence[str]) -> str:
    more = f" and {len(locations) - _MAX_LOCATIONS} more" if len(locations) > _MAX_LOCATIONS else ""
    return ", ".join(locations[:_MAX_LOCATIONS]) + more


def _format_rail(rail: ReadyRail) -> str:
    parts = [rail.rail, rail.device if rail.device != rail.rail else "", rail.address]
    parts += [f"GID {rail.gid}" if rail.gid is not None else "", f"mtu {rail.mtu}" if rail.mtu else rail.rate]
    return " ".join(part for part in parts if part)
