"""All rules over the ranks of one container: findings in order, once each, and their form as admission warnings.

Owns discovery (every module of `rules/` that is named like a code), the order and the bounds. Refuses to know rules,
pods and files. Pure: the same ranks give the same findings.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence

from railwright.fabric.lint import model, rules

MOST_WARNINGS = 5  # a kubectl apply shows them all, and a person reads no more
LONGEST_WARNING = 256  # characters (API server, admission warnings: longer ones are cut there)
_MODULE = re.compile(r"n\d\d_\w+", re.ASCII)
_ORDER = {severity: rank for rank, severity in enumerate(model.Severity)}


@functools.cache
def every() -> tuple[model.Rule, ...]:
    """All rules, by code."""
    found = sorted(module.name for module in pkgutil.iter_modules(rules.__path__) if _MODULE.fullmatch(module.name))
    return tuple(importlib.import_module(f"{rules.__name__}.{name}").RULE for name in found)


def check(ranks: model.Ranks) -> tuple[model.Finding, ...]:
    """What the rules find: errors, warnings, infos; of each by code, then in the order of the settings."""
    found = dict.fromkeys(_findings(ranks))
    return tuple(sorted(found, key=lambda finding: (_ORDER[finding.severity], finding.code)))


def admission(findings: Sequence[model.Finding]) -> tuple[str, ...]:
    """The findings as warnings of an admission review: few, short, the worst first; infos are left to the command."""
    return bounded(sentences(findings))


def sentences(findings: Sequence[model.Finding]) -> tuple[str, ...]:
    """One for each finding but the infos, once each."""
    told = dict.fromkeys(_sentence(each) for each in findings if each.severity is not model.Severity.INFO)
    return tuple(told)


def bounded(sentences: Sequence[str]) -> tuple[str, ...]:
    """At most five, the last of them saying how many more there are."""
    if len(sentences) <= MOST_WARNINGS:
        return tuple(map(_cut, sentences))
    shown = sentences[: MOST_WARNINGS - 1]
    more = len(sentences) - len(shown)
    return (*map(_cut, shown), f"{more} more findings about NCCL settings; `railwright lint FILE` shows them all")


def _findings(ranks: model.Ranks) -> Iterator[model.Finding]:
    for rule in every():
        complaints: Iterable[model.Complaint] = rule.check(ranks)
        for each in complaints:
            yield model.Finding(rule.code, rule.severity, each.name, each.where, each.message)


def _sentence(finding: model.Finding) -> str:
    return f"{finding.code} {finding.message}"


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= LONGEST_WARNING else f"{sentence[: LONGEST_WARNING - 3]}..."
