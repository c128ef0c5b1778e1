"""Runs the rules on the ranks of a container, and formats the findings as admission warnings.

A rule is called for the settings that it reads, or if a field that it needs is present.
"""

import functools
import operator
from collections.abc import Iterator, Sequence

import msgspec

from railwright.fabric import text
from railwright.fabric.lint import rule_types
from railwright.fabric.lint.rules import containers, device_lists, names, networks, values
from railwright.fabric.nccl import catalogue
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

MOST_WARNINGS = 5  # kubectl apply shows them all, and more would not be read
LONGEST_WARNING = 256  # characters; the API server truncates longer admission warnings
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}
_SUBJECTS = (names, values, device_lists, networks, containers)
RULES = tuple(sorted((rule for subject in _SUBJECTS for rule in subject.RULES), key=lambda rule: rule.code))
_RANK_RULES = tuple((rule, tuple(map(operator.attrgetter, rule.needs))) for rule in RULES if rule.needs)


def list_readers(variable: str, *, for_admission: bool = False) -> tuple[rule_types.Rule, ...]:
    """Return the rules that read a variable. At admission, infos are no warnings, so those rules are not asked.

    Those of long names, which nothing has, are not worth the memory.
    """
    find = _find_readers if len(variable) <= catalogue.MAX_NAME_LENGTH else _search_readers
    return find(variable, for_admission)


def _search_readers(variable: str, for_admission: bool) -> tuple[rule_types.Rule, ...]:  # noqa: FBT001 - its caller names it
    return tuple(
        rule
        for rule in RULES
        if rule.reads(variable)
        and not (for_admission and rule_types.find_severity(rule.code) is rule_types.Severity.INFO)
    )


_find_readers = functools.lru_cache(maxsize=1024)(_search_readers)


def check(ranks: rule_types.RankContext, *, for_admission: bool = False) -> tuple[rule_types.Finding, ...]:
    """Return the findings without duplicates, sorted by severity, then by code, then in the order of the settings."""
    findings = dict.fromkeys((*_check_settings(ranks, for_admission=for_admission), *_check_ranks(ranks)))
    return tuple(sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.code)))


def list_warnings(findings: Sequence[rule_types.Finding]) -> tuple[rendering.Message, ...]:
    """Return a warning for each finding that is not an info, without duplicates. Its code is the rule's."""
    messages = dict.fromkeys(
        (finding.code, finding.message) for finding in findings if finding.severity is not rule_types.Severity.INFO
    )
    return tuple([rendering.Message(code, message) for code, message in messages])


def limit_warnings(warnings: Sequence[rendering.Message]) -> tuple[rendering.Message, ...]:
    """Return at most MOST_WARNINGS warnings. The last one states how many were left out."""
    if len(warnings) <= MOST_WARNINGS:
        return tuple(map(_truncate, warnings))
    first = warnings[: MOST_WARNINGS - 1]
    more = reason.make(AdmissionCode.MORE_FINDINGS, count=len(warnings) - len(first))
    return (*map(_truncate, first), rendering.describe(more))


def _check_settings(ranks: rule_types.RankContext, *, for_admission: bool) -> Iterator[rule_types.Finding]:
    for setting in ranks.effective.values():
        for rule in list_readers(setting.name, for_admission=for_admission):
            for problem in rule.check_setting(setting, ranks):
                message = f"{rule_types.format_setting(setting)}: {problem}"
                yield rule_types.build_finding(rule.code, message, setting.name, setting.where)


def _check_ranks(ranks: rule_types.RankContext) -> Iterator[rule_types.Finding]:
    for rule, fields in _RANK_RULES:
        if any(read_field(ranks) for read_field in fields):
            for violation in rule.check_ranks(ranks):
                yield rule_types.build_finding(rule.code, violation.message, violation.name, violation.where)


def _truncate(warning: rendering.Message) -> rendering.Message:
    excess = len(warning.line) - LONGEST_WARNING
    if excess <= 0:
        return warning
    return msgspec.structs.replace(warning, message=text.truncate(warning.message, len(warning.message) - excess))
