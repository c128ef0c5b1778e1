"""Runs `railwright lint`: checks manifests with the policy of a file or of the cluster, and prints the findings.

With a policy, a pod template is checked as admission would inject it. Variables that a launcher's mpirun passes are
checked in the templates of its ranks.
"""

import argparse
import collections
import functools
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import yaml

from railwright.cli import formats, linted_manifests, object_files, options, output
from railwright.cli.explanation import templates as pod_templates
from railwright.cli.linted_manifests import Manifest, Object, Template
from railwright.cluster import documents, errors, kubeconfigs
from railwright.fabric import admission, intent, names, text, views
from railwright.fabric.injection import facts, keys, opt_in, plan
from railwright.fabric.lint import engine, rank_contexts, rule_types
from railwright.fabric.lint.rules import claims as claim_rules
from railwright.fabric.lint.rules import manifests as manifest_rules
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


class LocatedFinding(msgspec.Struct, frozen=True):
    """A finding, its file and line, and the title of the object that has it."""

    file: str
    line: int | None
    title: str
    finding: rule_types.Finding


class Report:
    """Findings without duplicates, and what was checked."""

    def __init__(self) -> None:
        self._located: dict[LocatedFinding, None] = {}
        self.checked = 0  # containers and claims

    @property
    def sorted_findings(self) -> list[LocatedFinding]:
        """The findings, sorted by file and line."""
        return sorted(self._located, key=lambda item: (item.file, item.line or 0))

    def add_finding(self, file: str, line: int | None, finding: rule_types.Finding, title: str = "") -> None:
        """Add a finding. `title` names the object that has it."""
        self._located[LocatedFinding(file, line, title, finding)] = None


class _Context(msgspec.Struct, frozen=True):
    """The policy (None: not known), the labels of namespaces, and notes on how both were read."""

    policy: model.Policy | None = None
    labels: Mapping[str, Mapping[str, str] | None] = {}  # by namespace; None or absent: not known
    notes: Sequence[str] = ()


def lint_manifests(arguments: argparse.Namespace) -> int:
    """Print the findings. Return 1 if there are some, otherwise 0. Raise UnreadableError."""
    paths = options.find_files(arguments)
    namespace = (
        pod_templates.DEFAULT_NAMESPACE
        if arguments.policy or arguments.local
        else kubeconfigs.find_namespace(arguments.kubeconfig, arguments.context)
    )
    manifests = [
        manifest
        for path in paths
        for manifest in linted_manifests.read_manifests(path, output.read_text(path), namespace)
    ]
    for manifest in manifests:
        for item in manifest.objects:
            if not item.pods and (place := pod_templates.locate_label(item.tree)):
                output.print_note(f"{manifest.file}: {item.title}: {place}")
    if not any(item.templates or item.claim for manifest in manifests for item in manifest.objects):
        raise output.UnreadableError(
            f"lint: no pod, pod template or ResourceClaim in {', '.join(paths)}; nothing was checked"
        )
    context = _find_context(arguments, manifests)
    report = check_manifests(manifests, context.policy, context.labels)
    for note in context.notes:  # the errors of an invalid policy are lines of their own
        print(f"railwright: {note}", file=sys.stderr, flush=True)
    if formats.is_document(arguments.output):
        rows = [
            {"file": item.file, "line": item.line, "object": item.title, **msgspec.to_builtins(item.finding)}
            for item in report.sorted_findings
        ]
        formats.print_document(rows, arguments.output)
    else:
        _print_text(report)
    return output.FINDINGS if report.sorted_findings else output.OK


def _find_context(arguments: argparse.Namespace, manifests: Sequence[Manifest]) -> _Context:
    """Return the policy and the labels of namespaces. With --policy or --local, no cluster is read.

    Raises UnreadableError if options name a cluster that cannot be used.
    """
    if arguments.policy or arguments.local:
        if options.selects_cluster(arguments):
            given = "--policy" if arguments.policy else "--local"
            raise output.UnreadableError(f"{given} uses no cluster; remove it, or the options for the cluster")
        return _Context(object_files.read_policy(arguments.policy) if arguments.policy else None)
    if arguments.kubeconfig or kubeconfigs.find_existing_files() or os.environ.get("KUBERNETES_SERVICE_HOST"):
        from railwright.cli import cluster_access  # imports the HTTP client, which takes 0.2 s

        namespaces = {item.namespace for manifest in manifests for item in manifest.objects if item.templates}
        ask = functools.partial(_read_cluster, namespaces - opt_in.ALWAYS_EXCLUDED)
        try:
            return cluster_access.run_with_client(arguments, ask, call_seconds=_SECONDS)
        except output.UnreadableError as error:  # no policy, an invalid one, or no right to read it
            return _Context(notes=[f"{_NOT_CHECKED}: {error}"])  # the text of the error names --policy
        except errors.ClusterError as error:
            cause = f"{output.escape_controls(error.sentence)}. Or {_FROM_FILE}"
    else:
        cause = f"there is no kubeconfig; {_FROM_FILE}"
    if options.selects_cluster(arguments):
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

    labels = await cluster_access.call_for_each(read_labels, namespaces)
    notes = [f"rules that need the fabric are checked with the policy in {source}", _NOT_READ]
    if unread:
        unknown = output.escape_controls(text.join_first(sorted(unread), 5))
        notes.append(
            f"the labels of these namespaces cannot be read, so lint assumes none of railwright's there: {unknown}"
        )
    return _Context(policy, dict(zip(namespaces, labels, strict=True)), notes)


def _print_text(report: Report) -> None:
    for item in report.sorted_findings:
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
    counts = collections.Counter(str(item.finding.severity) for item in report.sorted_findings)
    summary = ", ".join(text.format_count(counts[word], word) for word in _STYLES if counts[word])
    style = "bold red" if counts else "bold green"
    checked = f" in {text.format_count(report.checked, 'container or claim')}" if report.checked else ""
    output.print_styled((summary or "nothing found", style), (checked, ""))


# --- what is checked --------------------------------------------------------------------------------------


def check_manifests(
    manifests: Iterable[Manifest],
    policy: model.Policy | None = None,
    namespace_labels: Mapping[str, Mapping[str, str] | None] = {},
) -> Report:
    """Return the findings of manifests. Without a policy, rules that need the fabric are not checked.

    `namespace_labels` has the labels of each namespace; None or absent: not known.
    """
    report = Report()
    for manifest in manifests:
        for item in manifest.objects:
            _check_templates(manifest, item, policy, namespace_labels.get(item.namespace), report)
        _check_claims(manifest, report)
        _check_keys(manifest, report)
    return report


def _check_claims(manifest: Manifest, report: Report) -> None:
    for item in manifest.objects:
        if item.claim is not None:
            for finding, place in claim_rules.check_claim(item.claim):
                line = manifest.document.find_line((*item.devices, *place))
                report.add_finding(manifest.file, line, finding, item.title)
            report.checked += 1


def _check_keys(manifest: Manifest, report: Report) -> None:
    """Report each railwright label or annotation that is misspelt or misplaced, and each YAML key written twice."""
    for item in manifest.objects:
        for place, warning in item.warnings:
            key = warning.key if isinstance(warning, keys.KeyWarning) else names.FABRIC
            is_annotation = isinstance(warning, keys.KeyWarning) and warning.type == keys.ANNOTATION
            metadata = "annotations" if is_annotation else "labels"
            line = manifest.document.find_line((*item.path, *place, "metadata", metadata, key))
            finding = manifest_rules.describe_warning.build_finding(warning.line, warning.code)
            report.add_finding(manifest.file, line, finding, item.title)
    rule = manifest_rules.describe_repeated_key
    for repeated in manifest.document.repeated:
        key = str(repeated.path[-1])
        message = rule.check(output.escape_controls(key), repeated.first_line)
        report.add_finding(manifest.file, repeated.line, rule.build_finding(message, key))


# --- workloads --------------------------------------------------------------------------------------------


class _InjectedTemplate(msgspec.Struct, frozen=True):
    """A pod template, its pod after injection, and the outcome of admission."""

    template: Template
    pod: views.Pod  # after injection
    use: rank_contexts.FabricUse
    outcome: plan.Outcome | None  # of admission; None without a policy

    def list_admission_findings(self) -> Iterator[rule_types.Finding]:
        """Yield a finding for the rejection, or for each warning, with which admission would answer."""
        if isinstance(self.outcome, plan.Refusal):
            yield manifest_rules.describe_rejection.build_finding(self.outcome.message)
        elif self.outcome is not None:
            for warning in self.outcome.warnings:
                if warning.code not in keys.CODES:  # lint finds their lines itself
                    yield manifest_rules.describe_warning.build_finding(warning.line, warning.code)

    def list_injected_variables(self) -> frozenset[tuple[int, str]]:
        """Return (container index, name) of each variable whose value the policy would set."""
        written, injected = (
            {(index, entry.name): entry.value for index, one in enumerate(pod.spec.containers) for entry in one.env}
            for pod in (self.template.pod, self.pod)
        )
        return frozenset(key for key, value in injected.items() if key not in written or written[key] != value)


def _inject_template(
    template: Template,
    created: linted_manifests.CreatedPod | None,
    item: Object,
    policy: model.Policy | None,
    namespace_labels: Mapping[str, str] | None,
) -> _InjectedTemplate:
    pod = template.pod
    is_mislabelled = names.FABRIC not in pod.metadata.labels and keys.has_wrong_key(pod.metadata)
    if policy is None:
        return _InjectedTemplate(template, pod, rank_contexts.FabricUse(awaits_correction=is_mislabelled), None)
    document = policy.document
    cluster = facts.ClusterFacts(item.namespace, namespace_labels)
    if created is not None:
        expanded, from_controller = created
        cluster = expanded.add_accelerator_request(cluster, document.accelerators)
        labels = {**pod.metadata.labels, **from_controller.metadata.labels}  # also one that the kind does not pass
        metadata = msgspec.structs.replace(from_controller.metadata, labels_or_none=labels)
        pod = msgspec.structs.replace(from_controller, metadata=metadata)
    outcome = plan.plan_pod(pod, policy, cluster, item.title)
    if isinstance(outcome, plan.Injection):
        return _InjectedTemplate(template, outcome.pod, admission.build_fabric_use(outcome, document), outcome)
    is_refused = isinstance(outcome, plan.Refusal)
    fabric = intent.find_fabric(pod, document)[1] if is_refused else None
    use = rank_contexts.build_full_use(document, fabric)
    use = msgspec.structs.replace(use, awaits_correction=is_refused or is_mislabelled)
    return _InjectedTemplate(template, pod, use, outcome)


def _check_templates(
    manifest: Manifest,
    item: Object,
    policy: model.Policy | None,
    namespace_labels: Mapping[str, str] | None,
    report: Report,
) -> None:
    document = manifest.document
    created = {(*item.path, *pod[0].path): pod for pod in item.pods}  # the last if a template has several
    prepared = [
        _inject_template(template, created.get(template.path), item, policy, namespace_labels)
        for template in item.templates
    ]
    for one in prepared:
        for answer in one.list_admission_findings():
            report.add_finding(manifest.file, document.find_line(one.template.path), answer, item.title)
    launchers = [one for one in prepared if rank_contexts.starts_ranks(one.pod)]
    for one in prepared:
        others = [launcher for launcher in launchers if launcher is not one]
        job, injected = _build_job_context(one, prepared, others, item), one.list_injected_variables()
        for index in rank_contexts.select_rank_containers(one.pod, one.use.accelerators):
            ranks = rank_contexts.build_context(one.pod, index, job)
            for finding in engine.check_ranks(ranks):
                line = _find_line(document, one.template, index, others, finding)
                # a value of a script or of mpirun overrides that of the policy
                is_injected = (index, finding.name) in injected and finding.where.startswith("env[")
                message = f"{finding.message} (set by the policy)" if is_injected else finding.message
                report.add_finding(manifest.file, line, msgspec.structs.replace(finding, message=message), ranks.title)
            report.checked += 1


_LAUNCHER = "launcher's "  # prefix of `where` for settings that another template's mpirun passes


def _build_job_context(
    one: _InjectedTemplate,
    prepared: Sequence[_InjectedTemplate],
    launchers: Sequence[_InjectedTemplate],
    item: Object,
) -> rank_contexts.JobContext:
    """Return the job of a template, as rules read it. `launchers` are other templates whose mpirun starts its ranks."""
    return rank_contexts.JobContext(
        use=one.use,
        networks=rank_contexts.parse_pod_networks(one.pod, item.namespace),
        title=" ".join(filter(None, (item.title, one.template.part))),
        passed=tuple(
            msgspec.structs.replace(setting, where=f"{_LAUNCHER}{setting.where}")
            for launcher in launchers
            for index in range(len(launcher.pod.spec.containers))
            for setting in rank_contexts.list_passed_settings(launcher.pod, index)
        ),
        has_own_ranks=len(prepared) == 1
        or any(rank_contexts.count_accelerators(each, one.use.accelerators) for each in one.pod.spec.containers),
        runs_benchmark=any(
            rank_contexts.read_command_settings(container).is_benchmark
            for other in prepared
            for container in other.pod.spec.containers
        ),
    )


# --- lines ------------------------------------------------------------------------------------------------

_SCRIPTS = ("command", "args")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _find_line(
    document: documents.Document,
    template: Template,
    index: int,
    launchers: Sequence[_InjectedTemplate],
    finding: rule_types.Finding,
) -> int:
    """Return the line of the setting that a finding names, or of the container if the setting has no line."""
    container, where = template.locate_container(index), finding.where
    if where.startswith("env["):
        return document.find_line((*container, "env", int(where[4:].rstrip("]")), "value"))
    if where.startswith("line "):
        return document.find_line((*template.path, "metadata", "annotations", names.NCCL_CONF))
    places = [container] if where.startswith(_SCRIPTS) else []
    if where.startswith(_LAUNCHER):
        places = [one.template.locate_container(at) for one in launchers for at in range(len(one.pod.spec.containers))]
    lines = (_index_names(document.find_node((*place, key))).get(finding.name) for place in places for key in _SCRIPTS)
    return next(filter(None, lines), None) or document.find_line(container)


@functools.lru_cache(maxsize=16)  # a command may have thousands of settings, each with a finding
def _index_names(words: yaml.Node | None) -> Mapping[str, int]:
    """Return the line of each name's first use in a command: in other words than literal blocks, their first line."""
    lines: dict[str, int] = {}
    for item in words.value if isinstance(words, yaml.SequenceNode) else ():
        if isinstance(item, yaml.ScalarNode):
            is_block = item.style == "|"
            for number, line in enumerate(item.value.split("\n") if is_block else [item.value], start=int(is_block)):
                for name in _NAME.findall(line):
                    lines.setdefault(name, documents.get_line(item) + number)
    return lines
