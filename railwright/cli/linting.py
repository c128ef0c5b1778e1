"""Runs `railwright lint`: prints the findings in files as text, JSON or SARIF, and sets the exit code."""

import argparse
import collections
import os
from collections.abc import Sequence
from typing import Any
from urllib import parse

import msgspec

from railwright.cli import commands, formats, linted_files, options, output, policies
from railwright.cluster import kubeconfigs
from railwright.fabric import text, version
from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_FAILING = ("error", "warning")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without errors and warnings, 1 with some, 2 for wrong usage or an unreadable file."""
    if arguments.rules:
        return _print_rules(arguments.output)
    paths = options.find_files(arguments, (*options.MANIFESTS, "nccl.conf"))
    release = catalogue.parse_version(arguments.nccl_version)
    if arguments.nccl_version is not None and release is None:
        raise output.UnreadableError(f"--nccl-version {arguments.nccl_version}: not a version; give one such as 2.21.5")
    files = [linted_files.read_file(path, output.read_text(path)) for path in paths]
    policy, from_cluster = _consult(arguments, files)
    context = linted_files.Context(policy, release, linted_files.list_claim_templates(files))
    reports = [linted_files.check_file(file, context) for file in files]
    report = linted_files.sort(linted_files.add(linted_files.join(reports), from_cluster))
    if not report.templates:
        raise output.UnreadableError(
            f"lint: no pod, pod template, ResourceClaim or nccl.conf in {', '.join(paths)}; nothing was checked"
        )
    for note in report.notes:
        output.print_note(note)
    if arguments.output == commands.SARIF:
        formats.print_json(build_log(report.located, version.VERSION))
    elif formats.is_document(arguments.output):
        formats.print_document(_build_rows(report), arguments.output)
    else:
        _print_text(report)
    return output.FINDINGS if any(item.finding.severity in _FAILING for item in report.located) else output.OK


def _consult(
    arguments: argparse.Namespace, files: Sequence[linted_files.File]
) -> tuple[model.Policy | None, linted_files.Report]:
    """Return the policy, if it can be read, and what the cluster reports. Asks no cluster with --policy or --local."""
    cluster = options.get_cluster(arguments)
    if arguments.policy or arguments.local:
        if cluster.is_given:
            given = "--policy" if arguments.policy else "--local"
            raise output.UnreadableError(f"{given} asks no cluster; remove it, or the options for the cluster")
        return policies.read_file(arguments.policy) if arguments.policy else None, linted_files.Report()
    if not (cluster.kubeconfig or kubeconfigs.find() or os.environ.get("KUBERNETES_SERVICE_HOST")):
        cause = f"{linted_files.NOT_CHECKED}: there is no kubeconfig; {linted_files.WITHOUT_CLUSTER}"
        if cluster.is_given:
            raise output.UnreadableError(cause)
        return None, linted_files.Report(notes=(cause,))
    from railwright.cli import linting_by_cluster

    consultation = linting_by_cluster.consult(cluster, files, arguments.namespace)
    unread = [note for note in consultation.report.notes if note.startswith(linted_files.NOT_CHECKED)]
    if unread and cluster.is_given:
        raise output.UnreadableError(unread[0])
    return consultation.policy, consultation.report


def _print_text(report: linted_files.Report) -> None:
    for item in report.located:
        finding = item.finding
        location = item.file if item.line is None else f"{item.file}:{item.line}"
        output.print_styled(
            (location, "bold"),
            (": ", ""),
            (finding.severity, _STYLES[finding.severity]),
            (f" {finding.code} ", "cyan"),
            (finding.message, ""),
            (f" [{item.title}]" if item.title else "", "dim"),
        )
    counts = collections.Counter(str(item.finding.severity) for item in report.located)
    summary = ", ".join(text.format_count(counts[word], word) for word in _STYLES if counts[word])
    style = "bold red" if any(counts[word] for word in _FAILING) else "bold green"
    checked = f" in {text.format_count(report.checked, 'container or file')}" if report.checked else ""
    output.print_styled((summary or "nothing found", style), (checked, ""))


def _build_rows(report: linted_files.Report) -> list[dict[str, Any]]:
    return [
        {"file": item.file, "line": item.line, "object": item.title, **msgspec.to_builtins(item.finding)}
        for item in report.located
    ]


def _print_rules(form: str) -> int:
    if form == commands.SARIF:
        formats.print_json(build_log((), version.VERSION))
        return output.OK
    descriptions = rule_types.read_descriptions().values()
    rows: list[dict[str, str]] = [msgspec.to_builtins(rule) for rule in descriptions]
    if formats.is_document(form):
        formats.print_document(rows, form)
        return output.OK
    for row in rows:
        style = _STYLES[row["severity"]]
        output.print_styled((row["code"], "cyan"), (" ", ""), (f"{row['severity']:<8}", style), (row["title"], ""))
    return output.OK


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {rule_types.Severity.ERROR: "error", rule_types.Severity.WARNING: "warning", rule_types.Severity.INFO: "note"}


def build_log(located: Sequence[linted_files.Located], version: str) -> dict[str, Any]:
    """Return a log with one run."""
    rules = tuple(rule_types.read_descriptions().values())
    positions = {rule.code: position for position, rule in enumerate(rules)}
    driver = {"name": "railwright", "version": version, "rules": [_build_rule(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_build_result(item, positions) for item in located],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _build_rule(rule: rule_types.RuleDescription) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"{rule.explanation}\n\nSource: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _build_result(item: linted_files.Located, positions: dict[str, int]) -> dict[str, Any]:
    finding = item.finding
    place: dict[str, Any] = {"artifactLocation": {"uri": "stdin" if item.file == "-" else parse.quote(item.file)}}
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
