"""Adds to a lint what a cluster knows: the findings of its webhook in dry runs, or otherwise the policy in it.

The webhook lints each pod with the fabric that the pod gets. `dry_runs` asks it, and this module places its warnings in
the manifest.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from railwright.cli import cluster_access, dry_runs, linted_files, options, output, policy_sources
from railwright.cli.explanation import templates
from railwright.cluster import client as clients
from railwright.cluster import documents, errors, kubeconfigs
from railwright.fabric import text
from railwright.fabric.lint import engine, rule_types
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons.codes import AdmissionCode

_SECONDS = 10.0  # for a request: most findings need no cluster
_CODES = {code.value for code in AdmissionCode} - {AdmissionCode.MORE_FINDINGS.value, AdmissionCode.MORE_WARNINGS.value}
_CODES -= linted_files.NO_FINDINGS
_WARNING = re.compile(r"(?P<code>N\d\d): container (?P<container>\S+): (?P<message>(?P<name>[A-Z0-9_]*).*)", re.ASCII)
_MORE = re.compile(rf"{AdmissionCode.MORE_FINDINGS.value}: (?P<count>\d+) ", re.ASCII)


class Consultation(msgspec.Struct, frozen=True):
    """Hold what a cluster added: findings of its webhook, or its policy, and notes that name the source."""

    report: linted_files.Report = linted_files.Report()
    policy: policies.Policy | None = None


class _Pod(msgspec.Struct, frozen=True):
    """A pod of a manifest, and where its template is."""

    file: str
    document: documents.Document
    path: documents.Path  # of the object in the document
    template: templates.Template


def consult(cluster: options.ClusterOptions, files: Sequence[linted_files.File], namespace: str) -> Consultation:
    """Return what the cluster adds about the manifests among the files. A cluster without answer adds a note."""
    chosen = namespace or kubeconfigs.find_namespace(cluster.kubeconfig, cluster.context)

    try:
        return cluster_access.run(cluster, lambda client: _consult(client, files, chosen), call_seconds=_SECONDS)
    except errors.ClusterError as error:
        return Consultation(
            linted_files.Report(
                notes=(f"{linted_files.NOT_CHECKED}: {error.sentence}. Or {linted_files.WITHOUT_CLUSTER}",)
            )
        )


async def _consult(client: clients.Client, files: Sequence[linted_files.File], namespace: str) -> Consultation:
    pods = [pod for file in files for pod in _list_pods(file, namespace)]
    answers = await dry_runs.ask_all(client, [pod.template.marked_pod for pod in pods])
    pairs = list(zip(pods, answers, strict=True))
    located = [finding for pod, answer in pairs for finding in _locate_findings(pod, answer)]
    notes = [note for pod, answer in pairs for note in _list_notes(pod, answer)]
    without = [answer for answer in answers if not isinstance(answer, dry_runs.Admitted)]
    if pods and not without:
        namespaces = dict.fromkeys(pod.template.namespace for pod in pods)
        noun = "namespace" if len(namespaces) == 1 else "namespaces"
        source = f"the fabric's rules come from dry runs in {noun} {', '.join(namespaces)}"
        return Consultation(linted_files.Report(tuple(located), notes=(*notes, source)))
    policy, source = await _read_policy(client, without)
    return Consultation(linted_files.Report(tuple(located), notes=(*notes, source)), policy)


async def _read_policy(
    client: clients.Client, without: Sequence[dry_runs.Rejected | dry_runs.Uninjected | dry_runs.Unanswered]
) -> tuple[policies.Policy | None, str]:
    """Return the policy in the cluster, None if it cannot be read, and a note. `without`: answers without findings."""
    rejected = "the API server rejects a pod"
    reasons = [rejected if isinstance(answer, dry_runs.Rejected) else answer.reason for answer in without]
    cause = "; ".join(dict.fromkeys(reasons)) or "no file has a pod"
    try:
        policy, holder = await policy_sources.fetch_with_source(client)
    except output.UnreadableError as error:
        if reasons and set(reasons) == {rejected}:
            return None, f"the fabric's rules were checked for the other pods only: {cause}"
        return None, f"{linted_files.NOT_CHECKED}: {cause}; and the policy cannot be read: {error}"
    return policy, f"the fabric's rules come from the policy in {holder}, because {cause}"


def _list_pods(file: linted_files.File, namespace: str) -> Iterator[_Pod]:
    """Yield the pods of a manifest; none for nccl.conf and for objects that create no pods."""
    for document in file.parsed:
        for path, tree in linted_files.list_objects(documents.remove_nulls(document.tree)):
            for template in templates.expand(tree, namespace) or ():
                yield _Pod(file.path, document, path, template)


def _locate_findings(pod: _Pod, answer: dry_runs.Answer) -> Iterator[linted_files.Located]:
    title = " ".join(filter(None, (pod.template.owner, pod.template.part)))
    line = pod.document.find_line((*pod.path, *pod.template.path))
    if isinstance(answer, dry_runs.Rejected):
        yield linted_files.Located(pod.file, line, title, rule_types.build_finding(rule_types.REJECTED, answer.message))
    if not isinstance(answer, dry_runs.Admitted):
        return
    for warning in answer.warnings:
        code = warning.partition(": ")[0]
        if code in _CODES:
            yield linted_files.Located(
                pod.file, line, title, rule_types.build_finding(rule_types.WARNED, warning, code)
            )
    codes = {rule.code for rule in engine.RULES}
    containers = [str(container.get("name")) for container in pod.template.pod["spec"].get("containers") or ()]
    for warning in answer.warnings:
        match = _WARNING.fullmatch(warning)
        if match is None or match["code"] not in codes or match["container"] not in containers:
            continue
        finding = rule_types.build_finding(match["code"], match["message"], match["name"])
        title = " ".join(filter(None, (pod.template.owner, pod.template.part, f"container {match['container']}")))
        line = _find_line(pod, containers.index(match["container"]), match["name"])
        yield linted_files.Located(pod.file, line, title, finding)


def _find_line(pod: _Pod, index: int, name: str) -> int:
    template: documents.Path = (*pod.path, *pod.template.path)
    container: documents.Path = (*template, "spec", "containers", index)
    entries = pod.template.pod["spec"]["containers"][index].get("env") or ()
    positions = [position for position, entry in enumerate(entries) if entry.get("name") == name]
    where = f"env[{positions[-1]}]" if positions else "command"
    return linted_files.find_line(pod.document, container, template, name, where)


def _list_notes(pod: _Pod, answer: dry_runs.Answer) -> Iterator[str]:
    if not isinstance(answer, dry_runs.Admitted):
        return
    for warning in answer.warnings:
        if (more := _MORE.match(warning)) is not None:
            yield (
                f"{pod.file}: {pod.template.owner}: the webhook left out "
                f"{text.format_count(int(more['count']), 'more finding')}; --policy FILE shows all"
            )
