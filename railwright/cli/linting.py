"""Runs `railwright lint`: prints the findings in files, and sets the exit code."""

import argparse
import collections
import os

import msgspec

from railwright.cli import formats, linted_files, options, output, policies
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import text
from railwright.fabric.lint import engine
from railwright.fabric.lint.rules import claims, manifests
from railwright.fabric.policy import model

_STYLES = {"error": "bold red", "warning": "bold yellow"}
_NOT_CHECKED = "rules that need the fabric were not checked"
_FROM_FILE = "give the policy in a file: --policy FILE"
_SECONDS = 10.0  # for a request: most rules need no cluster


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without findings, 1 with some, 2 for wrong usage or an unreadable file."""
    if arguments.rules:
        return _print_rules(arguments.output)
    paths = options.find_files(arguments, (*options.MANIFESTS, "nccl.conf"))
    files = [linted_files.read_file(path, output.read_text(path)) for path in paths]
    policy, source = _find_policy(arguments)
    report = linted_files.check(files, policy)
    for file in files:
        for note in file.list_notes():
            output.print_note(note)
    if not report.templates:
        raise output.UnreadableError(
            f"lint: no pod, pod template, ResourceClaim or nccl.conf in {', '.join(paths)}; nothing was checked"
        )
    if source:
        output.print_note(source)
    if formats.is_document(arguments.output):
        rows = [
            {"file": item.file, "line": item.line, "object": item.title, **msgspec.to_builtins(item.finding)}
            for item in report.located
        ]
        formats.print_document(rows, arguments.output)
    else:
        _print_text(report)
    return output.FINDINGS if report.located else output.OK


def _find_policy(arguments: argparse.Namespace) -> tuple[model.Policy | None, str]:
    """Return the policy (None if unknown), and a note on its source or absence. With --local, no cluster is read.

    Raises UnreadableError if options name a cluster whose policy cannot be read.
    """
    cluster = options.get_cluster(arguments)
    if arguments.policy or arguments.local:
        if cluster.is_given:
            given = "--policy" if arguments.policy else "--local"
            raise output.UnreadableError(f"{given} asks no cluster; remove it, or the options for the cluster")
        return policies.read_file(arguments.policy) if arguments.policy else None, ""
    if cluster.kubeconfig or kubeconfigs.find() or os.environ.get("KUBERNETES_SERVICE_HOST"):
        from railwright.cli import cluster_access, policy_sources  # import the HTTP client, which takes 0.2 s

        try:
            policy = cluster_access.run(cluster, policy_sources.fetch, call_seconds=_SECONDS)
        except output.UnreadableError as error:  # its text names --policy
            cause = str(error)
        except errors.ClusterError as error:
            cause = f"{error.sentence}. Or {_FROM_FILE}"
        else:
            return policy, f"the fabric's rules come from the policy in {policy_sources.CONFIG_MAP}"
    else:
        cause = f"there is no kubeconfig; {_FROM_FILE}"
    if cluster.is_given:
        raise output.UnreadableError(f"{_NOT_CHECKED}: {cause}")
    return None, f"{_NOT_CHECKED}: {cause}"


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
    style = "bold red" if counts else "bold green"
    checked = f" in {text.format_count(report.checked, 'container or file')}" if report.checked else ""
    output.print_styled((summary or "nothing found", style), (checked, ""))


def _print_rules(form: str) -> int:
    fields = ("code", "severity", "title", "explanation", "source")
    rules = (*engine.RULES, *claims.RULES, *manifests.RULES)
    rows = [{field: str(getattr(rule, field)) for field in fields} for rule in rules]
    if formats.is_document(form):
        formats.print_document(rows, form)
        return output.OK
    for row in rows:
        style = _STYLES[row["severity"]]
        output.print_styled((row["code"], "cyan"), (" ", ""), (f"{row['severity']:<8}", style), (row["title"], ""))
    return output.OK
