"""Runs the lint rules on the ranks of a container, and turns findings into admission warnings."""

import functools
from collections.abc import Iterator, Sequence

from railwright.fabric.lint import rule_types
from railwright.fabric.lint.rules import containers, device_lists, networks, variables
from railwright.fabric.nccl import catalogue
from railwright.fabric.reasons import reason

LONGEST_NAME = catalogue.MAX_NAME_LENGTH + 1  # characters by which a name is known: no variable has as many
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}
RULES = rule_types.list_rules(variables, device_lists, networks, containers)
_RANK_RULES = tuple(rule for rule in RULES if not rule.settings)


@functools.lru_cache(maxsize=1024)
def find_rules(variable: str) -> tuple[rule_types.Rule, ...]:
    """Return the rules that check a variable. Callers truncate its name to `LONGEST_NAME` characters."""
    return tuple(rule for rule in RULES if rule.reads(variable))


def check_ranks(ranks: rule_types.RankContext) -> tuple[rule_types.Finding, ...]:
    """Return the findings about a container's ranks, without duplicates: errors first, then by code."""
    findings = dict.fromkeys(_list_findings(ranks))
    return tuple(sorted(findings, key=lambda finding: (_ORDER[finding.severity], finding.code)))


def _list_findings(ranks: rule_types.RankContext) -> Iterator[rule_types.Finding]:
    for setting in ranks.effective_settings.values():
        for rule in find_rules(setting.name[:LONGEST_NAME]):
            for problem in rule.check(setting, ranks):
                yield rule.build_finding(problem, setting=setting)
    for rule in _RANK_RULES:
        for found in rule.check(ranks):
            yield rule.build_finding(found.message, found.name, found.setting)


def list_warnings(findings: Sequence[rule_types.Finding]) -> tuple[reason.Reason, ...]:
    """Return the findings as admission warnings, without duplicates. The code of a warning is that of the rule."""
    messages = dict.fromkeys((finding.code, finding.message) for finding in findings)
    return tuple([reason.Reason(code, message) for code, message in messages])
