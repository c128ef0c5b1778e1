"""Formats findings as SARIF 2.1.0 (OASIS), for code hosts and editors.

Rules carry their explanations and the URL of their documentation.
"""

from collections.abc import Sequence
from typing import Any
from urllib import parse

from railwright.cli.linting import findings
from railwright.fabric import names
from railwright.fabric.lint import engine, model

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {model.Severity.ERROR: "error", model.Severity.WARNING: "warning", model.Severity.INFO: "note"}


def build_log(located: Sequence[findings.Located], version: str) -> dict[str, Any]:
    """Return a log with one run."""
    rules = engine.list_rules()
    positions = {rule.code: position for position, rule in enumerate(rules)}
    driver = {"name": "railwright", "version": version, "rules": [_build_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_build_result(item, positions) for item in located],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _build_rule(rule: model.Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "helpUri": f"{names.DOCS}/lint/#{rule.code.lower()}",
        "help": {"text": f"{rule.explanation}\n\nSource: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _build_result(item: findings.Located, positions: dict[str, int]) -> dict[str, Any]:
    finding = item.finding
    place: dict[str, Any] = {"artifactLocation": {"uri": _format_uri(item.file)}}
    if item.line is not None:
        place["region"] = {"startLine": item.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if item.title:
        location["logicalLocations"] = [{"fullyQualifiedName": item.title}]
    return {
        "ruleId": finding.code,
        "ruleIndex": positions[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
        "locations": [location],
    }


def _format_uri(path: str) -> str:
    """Return a path as a URI reference; `stdin` for standard input."""
    return "stdin" if path == "-" else parse.quote(path)
