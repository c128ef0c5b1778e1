"""A report as one line that fits a terminal and a pod's status.

Owns the wording around problems and the bound of the line.
"""

from collections.abc import Sequence

from railwright.preflight.checks import Found, Problem, Report

MAX = 1000  # characters; the kubelet keeps 4096 bytes of a container's termination message, 12 KiB of a pod's
_ALIKE = 8  # places told one by one


def line(report: Report, *, warn: bool) -> str:
    """The line: what is wrong and how to mend it, or what is ready."""
    if not report.problems:
        count = len(report.rails)
        return _cut(f"{count} rail{'s' * (count != 1)} ready: {', '.join(map(_ready, report.rails))}")
    return _cut(f"{'warning' if warn else 'failed'}: {'; '.join(_groups(report.problems))}")


def _cut(text: str) -> str:
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= MAX else f"{plain[: MAX - 3]}..."


def _groups(problems: Sequence[Problem]) -> list[str]:
    """Problems with the same fix share it, in the order of the first of each."""
    by_fix: dict[str, list[str]] = {}
    for each in problems:
        by_fix.setdefault(each.fix, []).append(f"{each.where}: {each.what}")
    return [f"{_some(places)}: {fix}" for fix, places in by_fix.items()]


def _some(places: Sequence[str]) -> str:
    more = f" and {len(places) - _ALIKE} more" if len(places) > _ALIKE else ""
    return ", ".join(places[:_ALIKE]) + more


def _ready(found: Found) -> str:
    words = [found.rail, found.device if found.device != found.rail else "", found.address]
    words += [f"GID {found.gid}" if found.gid is not None else "", f"mtu {found.mtu}" if found.mtu else found.rate]
    return " ".join(word for word in words if word)
