"""Checks manifests of workloads and claims for `railwright lint`, and finds the line of each finding.

With a policy, a pod template is checked as admission would inject it. Variables that a launcher's mpirun passes are
checked in the templates of its ranks.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from railwright.cli import linted_workloads as workloads
from railwright.cli import object_files, output
from railwright.cli.explanation import templates as pod_templates
from railwright.cluster import documents
from railwright.fabric import admission, intent, names, views
from railwright.fabric.claims import objects
from railwright.fabric.injection import facts, keys, plan
from railwright.fabric.lint import engine, rank_contexts, rule_types
from railwright.fabric.lint.rules import claims as claim_rules
from railwright.fabric.lint.rules import manifests as manifest_rules
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import frameworks

Path = documents.Path
_CreatedPod = tuple[pod_templates.Template, views.Pod]  # a pod as its controller creates it


class Located(msgspec.Struct, frozen=True):
    """A finding, its file and line, and the title of the object that has it."""

    file: str
    line: int | None
    title: str
    finding: rule_types.Finding


class Report:
    """Findings without duplicates, and the number of containers and claims that were checked.

    `templates`: number of pods, pod templates and claims that were read, checked or not.
    """

    def __init__(self) -> None:
        self._located: dict[Located, None] = {}
        self.checked = 0
        self.templates = 0

    @property
    def located(self) -> list[Located]:
        """The findings, sorted by file and line."""
        return sorted(self._located, key=lambda item: (item.file, item.line or 0))

    def add(self, file: str, line: int | None, finding: rule_types.Finding, title: str = "") -> None:
        """Add a finding. `title` names the object that has it."""
        self._located[Located(file, line, title, finding)] = None


# --- reading ----------------------------------------------------------------------------------------------

_GROUP = "resource.k8s.io"
_TEMPLATE = "ResourceClaimTemplate"


class Object(msgspec.Struct, frozen=True):
    """An object of a manifest, with its pod templates, the pods of its controller, and warnings about its keys."""

    path: Path  # in the document
    tree: dict[str, Any]
    namespace: str
    templates: tuple[workloads.Template, ...] = ()  # of pods, also of kinds that railwright does not know
    pods: tuple[_CreatedPod, ...] = ()  # that its controller creates
    warnings: tuple[tuple[Path, reason.Reason], ...] = ()  # about keys of railwright, with their places
    claim: claim_rules.ClaimContext | None = None
    devices: Path = ()  # path of `devices` of the claim

    @property
    def title(self) -> str:
        """Kind, namespace and name, for messages."""
        return pod_templates.format_title(self.tree)


class Manifest(msgspec.Struct, frozen=True):
    """A document of a manifest, as kubectl reads it."""

    file: str
    document: documents.Document
    objects: tuple[Object, ...]


def read_file(path: str, text: str, namespace: str = pod_templates.DEFAULT_NAMESPACE) -> list[Manifest]:
    """Return the documents of a manifest file. Objects without a namespace are in `namespace`.

    Raises UnreadableError for an invalid manifest, and for one without objects.
    """
    try:
        roots = [root for root in documents.parse(text) if isinstance(root, yaml.MappingNode)]
        if any(map(_contains_object, roots)):
            return [_read_manifest(path, documents.build_document(root), namespace) for root in roots]
    except documents.DocumentError as error:
        raise output.UnreadableError(f"{path}: {error}") from None
    raise output.UnreadableError(f"{path}: contains no Kubernetes object; expected a pod or a workload")


def _contains_object(root: documents.Node) -> bool:
    """Return True if a mapping is an object, or a List with one."""
    if not root.value:
        return False
    items = documents.find_child(root, "items")
    return items is None or not isinstance(items[1], yaml.SequenceNode) or bool(items[1].value)


def _read_manifest(file: str, document: documents.Document, namespace: str) -> Manifest:
    tree = documents.remove_nulls(document.tree, names.FABRIC)
    items = [_read_object(file, document, path, item, namespace) for path, item in workloads.list_objects(tree)]
    return Manifest(file, document, tuple(items))


def _read_object(
    file: str, document: documents.Document, path: Path, tree: dict[str, Any], default_namespace: str
) -> Object:
    """Return an object, without pods and warnings if the API server rejects it.

    Raises UnreadableError for an invalid pod template or claim.
    """
    namespace = str(frameworks.get_mapping(tree, "metadata").get("namespace") or default_namespace)
    try:
        templates = workloads.read_templates(tree, path)
        claim, devices = _read_claim(tree, path)
    except workloads.WrongTypeError as error:
        mismatch = object_files.describe_mismatch(error)
        place = f"{file}:{document.find_line(error.path)}"
        raise output.UnreadableError(f"{place}: is not a valid Kubernetes manifest: {mismatch}") from None
    item = Object(path, tree, namespace, templates, claim=claim, devices=devices)
    with contextlib.suppress(output.UnreadableError, msgspec.ValidationError):
        pods = tuple((one, msgspec.convert(one.pod, views.Pod)) for one in pod_templates.expand(tree, namespace))
        item = msgspec.structs.replace(item, pods=pods, warnings=tuple(_list_key_warnings(tree, pods)))
    return item


def _read_claim(tree: dict[str, Any], path: Path) -> tuple[claim_rules.ClaimContext | None, Path]:
    """Return a ResourceClaim or ResourceClaimTemplate and the path of its devices in the manifest; None for others."""
    kind = tree["kind"]
    if str(tree.get("apiVersion")).partition("/")[0] != _GROUP or kind not in claim_rules.KINDS:
        return None, ()
    below = ("spec", "spec", "devices") if kind == _TEMPLATE else ("spec", "devices")
    try:
        devices = msgspec.convert(frameworks.get_mapping(tree, *below), objects.DeviceClaim)
    except msgspec.ValidationError as error:
        raise workloads.WrongTypeError(error, (*path, *below)) from None
    return claim_rules.ClaimContext(devices, kind == _TEMPLATE), (*path, *below)


def _list_key_warnings(tree: dict[str, Any], pods: Iterable[_CreatedPod]) -> Iterator[tuple[Path, reason.Reason]]:
    """Yield the warnings about railwright's keys on an object and its pods, each with the path of its template."""
    if (tree.get("apiVersion"), tree["kind"]) == ("v1", "Namespace"):
        metadata = msgspec.convert(tree.get("metadata") or {}, views.ObjectMeta)
        yield from (((), warning) for warning in keys.check_namespace(metadata))
    yield from (((), warning) for warning in pod_templates.check_train_job(tree))
    for template, pod in pods:
        yield from (((), warning) for warning in template.warnings)
        yield from ((template.path, warning) for warning in keys.check_pod(pod.metadata))


# --- what is checked --------------------------------------------------------------------------------------


def check(
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
                report.add(manifest.file, line, finding, item.title)
            report.checked += 1
            report.templates += 1


def _check_keys(manifest: Manifest, report: Report) -> None:
    """Report each key of railwright that is misspelt or in the wrong place, and each key that is written twice."""
    for item in manifest.objects:
        for place, warning in item.warnings:
            key = warning.key if isinstance(warning, keys.KeyReason) else names.FABRIC
            is_annotation = isinstance(warning, keys.KeyReason) and warning.type == keys.ANNOTATION
            metadata = "annotations" if is_annotation else "labels"
            line = manifest.document.find_line((*item.path, *place, "metadata", metadata, key))
            finding = manifest_rules.describe_warned.build_finding(warning.line, warning.code)
            report.add(manifest.file, line, finding, item.title)
    rule = manifest_rules.describe_repeated
    for repeated in manifest.document.repeated:
        key = str(repeated.path[-1])
        message = rule.check(output.escape_controls(key), repeated.first_line)
        report.add(manifest.file, repeated.line, rule.build_finding(message, key))


# --- workloads --------------------------------------------------------------------------------------------


class _InjectedTemplate(msgspec.Struct, frozen=True):
    """A pod template, its pod after injection, and the outcome of admission."""

    template: workloads.Template
    pod: views.Pod  # after injection
    use: rank_contexts.FabricUse
    outcome: plan.Outcome | None  # of admission; None without a policy

    def list_admission_findings(self) -> Iterator[rule_types.Finding]:
        """Yield a finding for the rejection, or for each warning, with which admission would answer."""
        if isinstance(self.outcome, plan.Refusal):
            yield manifest_rules.describe_rejected.build_finding(self.outcome.message)
        elif self.outcome is not None:
            for warning in self.outcome.warnings:
                if warning.code not in keys.CODES:  # lint finds their lines itself
                    yield manifest_rules.describe_warned.build_finding(warning.line, warning.code)

    def list_injected_variables(self) -> frozenset[tuple[int, str]]:
        """Return (container index, name) of each variable whose value the policy would set."""
        written, injected = (
            {(index, entry.name): entry.value for index, one in enumerate(pod.spec.containers) for entry in one.env}
            for pod in (self.template.pod, self.pod)
        )
        return frozenset(key for key, value in injected.items() if key not in written or written[key] != value)


def _inject_template(
    template: workloads.Template,
    created: _CreatedPod | None,
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
        cluster = expanded.add_facts(cluster, document.accelerators)
        labels = {**pod.metadata.labels, **from_controller.metadata.labels}  # also one that the kind does not pass
        metadata = msgspec.structs.replace(from_controller.metadata, labels_or_none=labels)
        pod = msgspec.structs.replace(from_controller, metadata=metadata)
    outcome = plan.plan(pod, policy, cluster, item.title)
    if isinstance(outcome, plan.Injection):
        return _InjectedTemplate(template, outcome.pod, admission.find_use(outcome, document), outcome)
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
            report.add(manifest.file, document.find_line(one.template.path), answer, item.title)
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
                report.add(manifest.file, line, msgspec.structs.replace(finding, message=message), ranks.title)
            report.checked += 1
    report.templates += len(prepared)


_LAUNCHER = "launcher's "  # prefix of `where` for settings that another template's mpirun passes


def _build_job_context(
    one: _InjectedTemplate,
    prepared: Sequence[_InjectedTemplate],
    launchers: Sequence[_InjectedTemplate],
    item: Object,
) -> rank_contexts.JobContext:
    """Return what rules read of a template's job. `launchers` are its other templates whose mpirun starts ranks."""
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
    template: workloads.Template,
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
    """Return the line of each name that a command contains first. Only a literal block keeps the lines of its text."""
    lines: dict[str, int] = {}
    for item in words.value if isinstance(words, yaml.SequenceNode) else ():
        if isinstance(item, yaml.ScalarNode):
            is_block = item.style == "|"
            for number, line in enumerate(item.value.split("\n") if is_block else [item.value], start=int(is_block)):
                for name in _NAME.findall(line):
                    lines.setdefault(name, documents.get_line(item) + number)
    return lines
