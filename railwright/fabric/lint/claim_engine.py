"""Runs the rules about ResourceClaims and ResourceClaimTemplates that users wrote, and about pods that refer to them.

Rules are the modules of `claim_rules/` with a code as the start of their name.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator

from railwright.fabric.lint import claim_rules, claim_types, pod_claim_types, rule_types

_MODULE = re.compile(r"c\d\d_\w+", re.ASCII)
Rule = claim_types.ClaimRule | pod_claim_types.PodClaimRule
Located = tuple[rule_types.Finding, claim_types.Path]
_ORDER = {severity: rank for rank, severity in enumerate(rule_types.Severity)}


@functools.cache
def list_rules() -> tuple[Rule, ...]:
    """Return all rules, sorted by code."""
    names = sorted(
        module.name for module in pkgutil.iter_modules(claim_rules.__path__) if _MODULE.fullmatch(module.name)
    )
    return tuple(importlib.import_module(f"{claim_rules.__name__}.{name}").RULE for name in names)


def check(ctx: claim_types.ClaimContext) -> tuple[Located, ...]:
    """Return the findings about a claim, each with its path below `devices`, sorted by severity, then by code."""
    rules = [rule for rule in list_rules() if isinstance(rule, claim_types.ClaimRule)]
    return _sort(located for rule in rules for located in _locate(rule, rule.check(ctx), "devices"))


def check_pod(ctx: pod_claim_types.PodClaimContext) -> tuple[Located, ...]:
    """Return the findings about the claims of a pod, each with its path below the pod's spec, sorted as those above."""
    if not ctx.spec.resource_claims:
        return ()
    rules = [rule for rule in list_rules() if isinstance(rule, pod_claim_types.PodClaimRule)]
    return _sort(located for rule in rules for located in _locate(rule, rule.check(ctx), "spec"))


def _sort(findings: Iterable[Located]) -> tuple[Located, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda item: (_ORDER[item[0].severity], item[0].code)))


def _locate(rule: Rule, violations: Iterable[claim_types.ClaimViolation], root: str) -> Iterator[Located]:
    for violation in violations:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in violation.path)
        yield rule_types.Finding(rule.code, rule.severity, "", f"{root}{where}", violation.message), violation.path
