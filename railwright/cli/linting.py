"""Runs `railwright lint`: prints the findings in files, checked with the policy of a file or of the cluster."""

import argparse
import collections
import functools
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from railwright.cli import formats, linted_files, object_files, options, output
from railwright.cli.explanation import templates as pod_templates
from railwright.cluster import errors, kubeconfigs
from railwright.fabric import text
from railwright.fabric.injection import opt_in
from railwright.fabric.policy import model

if TYPE_CHECKING:
    from railwright.cluster import client as clients

_STYLES = {"error": "bold red", "warning": "bold yellow"}
_NOT_CHECKED = "rules that need the fabric were not checked"
_NOT_READ = (
    "lint reads no networks and no nodes of the cluster; to see whether admission rejects a pod because of them: "
    "railwright explain FILE"
)
_FROM_FILE = "give the policy in a file: --policy FILE"
_SECONDS = 10.0  # for a request: most rules need no cluster


class _Context(msgspec.Struct, frozen=True):
    """The policy (None: not known), the labels of namespaces, and notes on how both were read."""

    policy: model.Policy | None = None
    labels: Mapping[str, Mapping[str, str] | None] = {}  # by namespace; None or absent: not known
    notes: Sequence[str] = ()


def run(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 1 if there are some, otherwise 0. Raise UnreadableError."""
    paths = options.find_files(arguments)
    namespace = (
        pod_templates.DEFAULT_NAMESPACE
        if arguments.policy or arguments.local
        else kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    )
    read = [linted_files.read_file(path, output.read_text(path), namespace) for path in paths]
    documents = [manifest for documents_read in read for manifest in documents_read]
    context = _find_context(arguments, documents)
    report = linted_files.check(documents, context.policy, context.labels)
    for document in documents:
        for item in document.objects:
            if not item.pods and (place := pod_templates.locate_label(item.tree)):
                output.print_note(f"{document.file}: {item.title}: {place}")
    if not report.templates:
        raise output.UnreadableError(
            f"lint: no pod, pod template or ResourceClaim in {', '.join(paths)}; nothing was checked"
        )
    for note in context.notes:  # the errors of an invalid policy are lines of their own
        print(f"railwright: {note}", file=sys.stderr, flush=True)
    if formats.is_document(arguments.output):
        rows = [
            {"file": item.file, "line": item.line, "object": item.title, **msgspec.to_builtins(item.finding)}
            for item in report.located
        ]
        formats.print_document(rows, arguments.output)
    else:
        _print_text(report)
    return output.FINDINGS if report.located else output.OK


def _find_context(arguments: argparse.Namespace, documents: Sequence[linted_files.Manifest]) -> _Context:
    """Return the policy and the labels of namespaces. With --policy or --local, no cluster is read.

    Raises UnreadableError if options name a cluster that cannot be used.
    """
    if arguments.policy or arguments.local:
        if options.names_cluster(arguments):
            given = "--policy" if arguments.policy else "--local"
            raise output.UnreadableError(f"{given} uses no cluster; remove it, or the options for the cluster")
        return _Context(object_files.read_policy(arguments.policy) if arguments.policy else None)
    if arguments.kubeconfig or kubeconfigs.find() or os.environ.get("KUBERNETES_SERVICE_HOST"):
        from railwright.cli import cluster_access  # imports the HTTP client, which takes 0.2 s

        namespaces = {item.namespace for document in documents for item in document.objects if item.templates}
        ask = functools.partial(_read_cluster, namespaces - opt_in.ALWAYS_EXCLUDED)
        try:
            return cluster_access.run(arguments, ask, call_seconds=_SECONDS)
        except output.UnreadableError as error:  # no policy, an invalid one, or no right to read it
            return _Context(notes=[f"{_NOT_CHECKED}: {error}"])  # the text of the error names --policy
        except errors.ClusterError as error:
            cause = f"{output.escape_controls(error.sentence)}. Or {_FROM_FILE}"
    else:
        cause = f"there is no kubeconfig; {_FROM_FILE}"
    if options.names_cluster(arguments):
        raise output.UnreadableError(f"{_NOT_CHECKED}: {cause}")
    return _Context(notes=[f"{_NOT_CHECKED}: {cause}"])


async def _read_cluster(namespaces: Collection[str], client: "clients.Client") -> _Context:
    """Read the policy, and the labels of namespaces.

    Raises UnreadableError or ClusterError if the policy cannot be read.
    """
    from railwright.cli import cluster_access, policy_sources

    policy, source = await policy_sources.fetch_policy(client)
    unread: set[str] = set()

    async def read_labels(name: str) -> Mapping[str, str] | None:
        try:
            return await policy_sources.find_namespace_labels(client, name)
        except errors.ClusterError:
            unread.add(name)
            return None

    labels = await cluster_access.gather(read_labels, namespaces)
    notes = [f"rules that need the fabric are checked with the policy in {source}", _NOT_READ]
    if unread:
        unknown = output.escape_controls(text.join_first(sorted(unread), 5))
        notes.append(f"the labels of namespace {unknown} cannot be read; lint assumes that it has none of railwright's")
    return _Context(policy, dict(zip(namespaces, labels, strict=True)), notes)


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
    checked = f" in {text.format_count(report.checked, 'container or claim')}" if report.checked else ""
    output.print_styled((summary or "nothing found", style), (checked, ""))
