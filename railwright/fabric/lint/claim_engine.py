"""Runs the rules about ResourceClaims and ResourceClaimTemplates that users wrote.

Rules are the modules of `claim_rules/` with a code as the start of their name.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator

from railwright.fabric.lint import claim_rules, claim_types, rule_types

_MODULE = re.compile(r"c\d\d_\w+", re.ASCII)
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}


@functools.cache
def list_rules() -> tuple[claim_types.ClaimRule, ...]:
    """Return all rules, sorted by code."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(claim_rules.__path__) if _MODULE.fullmatch(module.name)
    )
    return tuple(importlib.import_module(f"{claim_rules.__name__}.{name}").RULE for name in names)


def check(ctx: claim_types.ClaimContext) -> tuple[tuple[rule_types.Finding, claim_types.Path], ...]:
    """Return the findings, each with its path below `devices`, sorted by severity, then by code."""
    findings = dict.fromkeys(_run_rules(ctx))
    return tuple(sorted(findings, key=lambda item: (_ORDER[item[0].severity], item[0].code)))


def _run_rules(ctx: claim_types.ClaimContext) -> Iterator[tuple[rule_types.Finding, claim_types.Path]]:
    for rule in list_rules():
        for violation in rule.check(ctx):
            where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in violation.path)
            finding = rule_types.Finding(rule.code, rule.severity, "", f"devices{where}", violation.message)
            yield finding, violation.path
