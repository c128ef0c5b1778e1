"""Runs all rules on the ranks of a container, and formats the findings as admission warnings.

Each module of `rules/` has a rule, `RULE`, or those of one subject, `RULES`.
"""

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from railwright.fabric import text
from railwright.fabric.lint import rule_types, rules
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

MOST_WARNINGS = 5  # kubectl apply shows them all, and more would not be read
LONGEST_WARNING = 256  # characters; the API server truncates longer admission warnings
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}


@functools.cache
def list_rules() -> tuple[rule_types.Rule, ...]:
    """Return all rules, sorted by code."""
    modules = [
        importlib.import_module(f"{rules.__name__}.{module.name}") for module in pkgutil.iter_modules(rules.__path__)
    ]
    listed = [rule for module in modules for rule in getattr(module, "RULES", None) or (module.RULE,)]
    return tuple(sorted(listed, key=lambda rule: rule.code))


def check(ctx: rule_types.RankContext) -> tuple[rule_types.Finding, ...]:
    """Return the findings without duplicates, sorted by severity, then by code, then in the order of the settings."""
    findings = dict.fromkeys(_run_rules(ctx))
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


def _run_rules(ctx: rule_types.RankContext) -> Iterator[rule_types.Finding]:
    for rule in list_rules():
        violations: Iterable[rule_types.Violation] = rule.check(ctx)
        for violation in violations:
            yield rule_types.Finding(rule.code, rule.severity, violation.name, violation.where, violation.message)


def _truncate(warning: rendering.Message) -> rendering.Message:
    excess = len(warning.line) - LONGEST_WARNING
    if excess <= 0:
        return warning
    return msgspec.structs.replace(warning, message=text.truncate(warning.message, len(warning.message) - excess))
