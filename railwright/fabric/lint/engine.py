"""Runs all rules on the ranks of a container, and formats the findings as admission warnings.

Rules are the modules of `rules/` with a code as the start of their name.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence

from railwright.fabric import text
from railwright.fabric.lint import rule_types, rules

MOST_WARNINGS = 5  # kubectl apply shows them all, and more would not be read
LONGEST_WARNING = 256  # characters; the API server truncates longer admission warnings
_MODULE = re.compile(r"n\d\d_\w+", re.ASCII)
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}


@functools.cache
def list_rules() -> tuple[rule_types.Rule, ...]:
    """Return all rules, sorted by code."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__) if _MODULE.fullmatch(module.name))
    return tuple(importlib.import_module(f"{rules.__name__}.{name}").RULE for name in names)


def check(ctx: rule_types.RankContext) -> tuple[rule_types.Finding, ...]:
    """Return the findings without duplicates, sorted by severity, then by code, then in the order of the settings."""
    findings = dict.fromkeys(_run_rules(ctx))
    return tuple(sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.code)))


def admission(findings: Sequence[rule_types.Finding]) -> tuple[str, ...]:
    """Return the findings as warnings of an AdmissionReview: a few short ones, most severe first, without infos."""
    return limit_warnings(sentences(findings))


def sentences(findings: Sequence[rule_types.Finding]) -> tuple[str, ...]:
    """Return a message for each finding that is not an info, without duplicates."""
    messages = dict.fromkeys(
        _format_finding(finding) for finding in findings if finding.severity is not rule_types.Severity.INFO
    )
    return tuple(messages)


def limit_warnings(messages: Sequence[str]) -> tuple[str, ...]:
    """Return at most MOST_WARNINGS messages. The last one states how many were left out."""
    if len(messages) <= MOST_WARNINGS:
        return tuple(map(_truncate, messages))
    first = messages[: MOST_WARNINGS - 1]
    more = len(messages) - len(first)
    return (*map(_truncate, first), f"{more} more findings about NCCL settings; `railwright lint FILE` shows them all")


def _run_rules(ctx: rule_types.RankContext) -> Iterator[rule_types.Finding]:
    for rule in list_rules():
        violations: Iterable[rule_types.Violation] = rule.check(ctx)
        for violation in violations:
            yield rule_types.Finding(rule.code, rule.severity, violation.name, violation.where, violation.message)


def _format_finding(finding: rule_types.Finding) -> str:
    return f"{finding.code} {finding.message}"


def _truncate(message: str) -> str:
    return text.truncate(message, LONGEST_WARNING)
