"""Findings as SARIF 2.1.0 (OASIS), for code hosts and editors.

Owns that form. Rules carry their explanations, so that the reader needs no other page,
and the address of one.
"""

from collections.abc import Sequence
from typing import Any
from urllib import parse

from railwright.cli.linting import findings
from railwright.fabric import names
from railwright.fabric.lint import engine, model

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {model.Severity.ERROR: "error", model.Severity.WARNING: "warning", model.Severity.INFO: "note"}


def log(located: Sequence[findings.Located], version: str) -> dict[str, Any]:
    """One log with one run."""
    rules = engine.every()
    positions = {rule.code: position for position, rule in enumerate(rules)}
    driver = {"name": "railwright", "version": version, "rules": [_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(each, positions) for each in located],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: model.Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "helpUri": f"{names.DOCS}/lint/#{rule.code.lower()}",
        "help": {"text": f"{rule.explanation}\n\nSource: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(each: findings.Located, positions: dict[str, int]) -> dict[str, Any]:
    finding = each.finding
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(each.file)}}
    if each.line is not None:
        place["region"] = {"startLine": each.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if each.title:
        location["logicalLocations"] = [{"fullyQualifiedName": each.title}]
    return {
        "ruleId": finding.code,
        "ruleIndex": positions[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [location],
    }


def _uri(path: str) -> str:
    """A path as a URI reference; standard input has no better name."""
    return "stdin" if path == "-" else parse.quote(path)
