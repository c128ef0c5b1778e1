"""Checks files for problems: manifests of any workload, claims, and nccl.conf files.

Recognizes the kind of a file, applies a policy, and relates the templates of one job to each other.
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
from railwright.fabric.injection import drafts, facts, keys, plan
from railwright.fabric.lint import engine, fabric_context, rank_contexts, rule_types
from railwright.fabric.lint.rules import claims as claim_rules
from railwright.fabric.lint.rules import manifests as manifest_rules
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import frameworks

_Placed = tuple[documents.Path, dict[str, Any]]  # an object and its path in the document


class Located(msgspec.Struct, frozen=True):
    """A finding with its file, line and the object it is about."""

    file: str
    line: int | None
    title: str
    finding: rule_types.Finding


class Report(msgspec.Struct, frozen=True):
    """Findings, the number of containers, claims and files that were checked.

    `templates`: number of pods, pod templates, claims and nccl.conf files that were read, with or without anything to
    check.
    """

    located: tuple[Located, ...] = ()
    checked: int = 0
    templates: int = 0


def join(reports: Sequence[Report]) -> Report:
    """Return several reports as one, without duplicates."""
    located = dict.fromkeys(item for report in reports for item in report.located)
    return Report(
        tuple(located),
        sum(report.checked for report in reports),
        sum(report.templates for report in reports),
    )


def sort(report: Report) -> Report:
    """Return the report with its findings by file and line, in every output format."""
    located = sorted(report.located, key=lambda item: (item.file, item.line or 0))
    return msgspec.structs.replace(report, located=tuple(located))


_CONF = "nccl.conf"


class File(msgspec.Struct, frozen=True):
    """A file that was read: the documents of a manifest as kubectl reads them, or the text of nccl.conf."""

    path: str
    parsed: Sequence[documents.Document] = ()
    conf: str | None = None


def read_file(path: str, text: str) -> File:
    """Return the content of a file. Raises UnreadableError if it is neither a manifest nor nccl.conf."""
    if path.endswith(_CONF):
        if not any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n")):
            raise output.UnreadableError(f"{path}: is empty; expected lines NAME=VALUE")
        return File(path, conf=text)
    try:
        roots = list(documents.parse(text))
    except documents.DocumentError as error:
        if _looks_like_conf(text):
            return File(path, conf=text)
        raise output.UnreadableError(f"{path}: {error}") from None
    mappings = [root for root in roots if isinstance(root, yaml.MappingNode)]
    if not mappings:
        if _looks_like_conf(text):
            return File(path, conf=text)
        if not any(root.value for root in roots):
            raise output.UnreadableError(f"{path}: is empty; expected a Kubernetes manifest or lines NAME=VALUE")
        raise output.UnreadableError(f"{path}: is neither a Kubernetes manifest nor lines NAME=VALUE")
    if not any(map(_contains_object, mappings)):
        raise output.UnreadableError(f"{path}: contains no object; expected a pod or a workload")
    try:
        return File(path, [documents.build_document(root) for root in mappings])
    except documents.DocumentError as error:
        raise output.UnreadableError(f"{path}: {error}") from None


def check_file(file: File, policy: model.Policy | None = None) -> Report:
    """Return all findings of a file. Raises UnreadableError for a manifest that is not valid."""
    if file.conf is not None:
        return _check_conf(file.path, file.conf, policy)
    return join([_check_document(file.path, document, policy) for document in file.parsed])


def _contains_object(root: documents.Node) -> bool:
    """Return whether a mapping is an object, or a List with one."""
    if not root.value:
        return False
    items = documents.find_child(root, "items")
    return items is None or not isinstance(items[1], yaml.SequenceNode) or bool(items[1].value)


def _looks_like_conf(text: str) -> bool:
    """Return whether every line is empty, a comment or NAME=VALUE, with at least one of these."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    return bool(lines) and all("=" in line and ": " not in line.partition("=")[0] for line in lines)


def _check_conf(path: str, text: str, policy: model.Policy | None) -> Report:
    ranks = rule_types.RankContext(path, rank_contexts.read_file(text), fabric_context.build(_find_default_use(policy)))
    located = []
    for finding in engine.check(ranks):
        number = finding.where.removeprefix("line ")
        located.append(Located(path, int(number) if number.isdigit() else None, "", finding))
    return Report(tuple(located), 1, templates=1)


def _find_default_use(policy: model.Policy | None) -> fabric_context.FabricUse:
    """Return the use of the policy's only or default fabric, because a file does not name the fabric it is for."""
    document = policy.document if policy else None
    if document is None:
        return fabric_context.FabricUse()
    only = next(iter(document.fabrics)) if len(document.fabrics) == 1 else document.default_fabric
    return (
        fabric_context.use_all_rails(document, document.fabrics[only])
        if only in document.fabrics
        else fabric_context.FabricUse(document)
    )


def _check_document(path: str, document: documents.Document, policy: model.Policy | None) -> Report:
    tree = documents.remove_nulls(document.tree)
    try:
        read = list(workloads.read(tree))
    except msgspec.ValidationError as error:
        raise output.UnreadableError(
            f"{path}:{document.find_line(())}: is not a valid Kubernetes manifest: "
            f"{object_files.describe_mismatch(error)}"
        ) from None
    for problem in document.problems:
        if problem.first_line is None:
            raise output.UnreadableError(f"{path}:{problem.line}: {problem.message}")
    objects = list(workloads.list_objects(tree))
    created = _list_created(objects) if policy else {}
    return join(
        [
            *(_check_workload(path, document, workload, created, policy) for workload in read),
            _check_claims(path, document),
            Report((*_check_unquoted(path, document, read), *_check_keys(path, document, objects))),
            Report(tuple(_locate_repeated(path, document))),
        ]
    )


def list_notes(file: File) -> Iterator[str]:
    """Yield where the label goes, for each object from which another controller makes pods."""
    for document in file.parsed:
        for _, tree in workloads.list_objects(document.tree):
            with contextlib.suppress(output.UnreadableError, msgspec.ValidationError):
                place = pod_templates.locate_label(tree)
                if place and not pod_templates.expand(tree, pod_templates.DEFAULT_NAMESPACE):
                    yield f"{file.path}: {pod_templates.format_title(tree)}: {place}"


def _locate_repeated(path: str, document: documents.Document) -> Iterator[Located]:
    rule = manifest_rules.describe_repeated
    for problem in document.problems:
        if problem.first_line is not None:
            key = str(problem.path[-1])
            message = rule.check(output.escape_controls(key), problem.first_line)
            yield Located(path, problem.line, "", rule.build_finding(message, key))


def _check_unquoted(path: str, document: documents.Document, pods: Sequence[workloads.Workload]) -> Iterator[Located]:
    """Yield a finding for each variable with a number or boolean as value. Lint reads it as text."""
    for name, value in workloads.find_unquoted(document.tree, pods):
        message = (
            f"{name}: the value {document.get_source_text(value)} is not text, so the API server rejects the pod; put "
            "it in quotes"
        )
        yield Located(
            path, document.find_line(value), "", manifest_rules.describe_rejected.build_finding(message, name)
        )


def _check_keys(path: str, document: documents.Document, objects: Sequence[_Placed]) -> Iterator[Located]:
    """Yield a finding for each key of railwright that is misspelt or in the wrong place."""
    for position, tree in objects:
        try:
            by_place = list(_list_key_warnings(tree))
        except (output.UnreadableError, msgspec.ValidationError):
            continue  # the API server rejects it with the reason
        title = pod_templates.format_title(tree)
        for place, warnings in by_place:
            for warning in warnings:
                key = warning.key if isinstance(warning, keys.KeyReason) else names.FABRIC
                is_annotation = isinstance(warning, keys.KeyReason) and warning.type == keys.ANNOTATION
                metadata = "annotations" if is_annotation else "labels"
                line = document.find_line((*position, *place, "metadata", metadata, key))
                yield Located(path, line, title, _build_warned(warning))


def _list_key_warnings(tree: dict[str, Any]) -> Iterator[tuple[documents.Path, Iterable[reason.Reason]]]:
    """Yield the paths of an object and of its pod templates, and the warnings about the keys of each."""
    if (tree.get("apiVersion"), tree["kind"]) == ("v1", "Namespace"):
        yield (), keys.check_namespace(msgspec.convert(tree.get("metadata") or {}, views.ObjectMeta))
    yield (), pod_templates.check_train_job(tree)
    for template in pod_templates.expand(tree, "") or ():
        yield (), template.warnings
        yield template.path, keys.check_pod(msgspec.convert(template.pod, views.Pod).metadata)


_Created = tuple[pod_templates.Template, views.Pod]  # a pod as its controller creates it, and as lint reads it
_CreatedPods = Mapping[documents.Path, _Created]
"""The pods of controllers by the paths of their templates; the last if a template has several."""


def _list_created(objects: Iterable[_Placed]) -> _CreatedPods:
    """Return the pods that controllers create; none of an unknown kind, or if the API server rejects the object."""
    created: dict[documents.Path, _Created] = {}
    for position, tree in objects:
        with contextlib.suppress(output.UnreadableError, msgspec.ValidationError):
            for template in pod_templates.expand(tree, pod_templates.DEFAULT_NAMESPACE) or ():
                for read in workloads.read(template.pod):
                    created[*position, *template.path] = template, read.templates[0].pod
    return created


class _InjectedTemplate(msgspec.Struct, frozen=True):
    """A template after injection by a policy."""

    template: workloads.Template
    pod: views.Pod  # after injection
    use: fabric_context.FabricUse
    injected: frozenset[tuple[int, str]]  # container and name of each variable that the policy set
    indexes: tuple[int, ...]
    answers: tuple[rule_types.Finding, ...]  # of admission


def _check_workload(
    path: str,
    document: documents.Document,
    workload: workloads.Workload,
    created: _CreatedPods,
    policy: model.Policy | None,
) -> Report:
    prepared = [
        _inject_template(template, created.get(template.path), workload, policy) for template in workload.templates
    ]
    located: list[Located] = [
        Located(path, _find_answer_line(document, template.template.path, answer.message), workload.title, answer)
        for template in prepared
        for answer in template.answers
    ]
    checked = 0
    launchers = [template for template in prepared if rank_contexts.starts_ranks(template.pod)]
    for template in prepared:
        others = [launcher for launcher in launchers if launcher is not template]
        for index in template.indexes:
            checked += 1
            ranks = rank_contexts.build(template.pod, index, _build_job_context(template, prepared, others, workload))
            starting = [
                other.template.container(at) for other in others for at in range(len(other.pod.spec.containers))
            ]
            located += [
                Located(
                    path,
                    _find_line(document, template, index, starting, finding),
                    ranks.title,
                    _mark_injected(finding, template, index),
                )
                for finding in engine.check(ranks)
            ]
    return Report(tuple(located), checked, templates=len(prepared))


def _build_job_context(
    template: _InjectedTemplate,
    prepared: Sequence[_InjectedTemplate],
    others: Sequence[_InjectedTemplate],
    workload: workloads.Workload,
) -> rank_contexts.JobContext:
    computing = any(
        rank_contexts.count_accelerators(container, template.use.accelerators)
        for container in template.pod.spec.containers
    )
    return rank_contexts.JobContext(
        use=template.use,
        networks=fabric_context.parse_networks(template.pod, workload.namespace),
        title=" ".join(filter(None, (workload.title, template.template.part))),
        passed=tuple(_list_passed(others)),
        has_own_ranks=computing or len(prepared) == 1,
        runs_benchmark=any(
            rank_contexts.read_command(container).is_benchmark
            for one in prepared
            for container in one.pod.spec.containers
        ),
    )


def _list_passed(launchers: Iterable[_InjectedTemplate]) -> Iterator[rule_types.Setting]:
    for launcher in launchers:
        for index in range(len(launcher.pod.spec.containers)):
            for setting in rank_contexts.list_passed(launcher.pod, index):
                yield msgspec.structs.replace(setting, where=f"{LAUNCHER}{setting.where}")


def _find_line(
    document: documents.Document,
    template: _InjectedTemplate,
    index: int,
    launchers: Sequence[workloads.Path],
    finding: rule_types.Finding,
) -> int:
    container = template.template.container(index)
    if finding.where.startswith(LAUNCHER):
        lines = (_find_script_line(document, launcher, finding.name) for launcher in launchers)
        return next(filter(None, lines), None) or document.find_line(container)
    return find_line(document, container, template.template.path, finding.name, finding.where)


def _find_answer_line(document: documents.Document, template: workloads.Path, message: str) -> int:
    """Return the line of the key that an answer of admission names: the template's own, or that of an object above."""
    if key := _KEY.search(message):
        for depth in range(len(template), -1, -1):
            place = (*template[:depth], "metadata", f"{key['type']}s", key["name"])
            if document.find_node(place) is not None:
                return document.find_line(place)
    return document.find_line(template)


_KEY = re.compile(r"\b(?P<type>label|annotation) (?P<name>[\w.-]+/[\w.-]+)")


def _mark_injected(finding: rule_types.Finding, template: _InjectedTemplate, index: int) -> rule_types.Finding:
    if (index, finding.name) not in template.injected or not finding.where.startswith("env["):
        return finding  # a value of a script or of mpirun overrides that of the policy
    return msgspec.structs.replace(finding, message=f"{finding.message} (set by the policy)")


def _inject_template(
    template: workloads.Template,
    created: _Created | None,
    workload: workloads.Workload,
    policy: model.Policy | None,
) -> _InjectedTemplate:
    pod, use, outcome = _inject(template.pod, created, workload, policy)
    changes = outcome.changes if isinstance(outcome, plan.Injection) else ()
    injected = frozenset(filter(None, map(_find_variable, changes)))
    indexes = rank_contexts.select_containers(pod, use.accelerators)
    return _InjectedTemplate(template, pod, use, injected, indexes, tuple(_list_answers(outcome)))


def _find_variable(change: drafts.Change) -> tuple[int, str] | None:
    """Return the index of a container and the variable that is set in it, None for another change."""
    *path, index, field, _ = change.operations[-1]["path"].split("/")
    if path != ["", "spec", "containers"] or field != "env":
        return None
    return int(index), change.operations[-1]["value"]["name"]


def _inject(
    pod: views.Pod, created: _Created | None, workload: workloads.Workload, policy: model.Policy | None
) -> tuple[views.Pod, fabric_context.FabricUse, plan.Outcome | None]:
    """Return a template's pod after injection, its use of the fabric, and the outcome; None without a policy."""
    is_mislabelled = names.FABRIC not in pod.metadata.labels and keys.has_wrong_key(pod.metadata)
    if policy is None:
        return pod, fabric_context.FabricUse(awaits_correction=is_mislabelled), None
    document = policy.document
    known = facts.ClusterFacts(workload.namespace)
    if created is not None:
        template, from_controller = created
        known = template.add_facts(known, document.accelerators)
        labels = {**pod.metadata.labels, **from_controller.metadata.labels}  # also one that the kind does not pass
        metadata = msgspec.structs.replace(from_controller.metadata, labels_or_none=labels)
        pod = msgspec.structs.replace(from_controller, metadata=metadata)
    outcome = plan.plan(pod, policy, known, workload.title)
    if isinstance(outcome, plan.NotOptedIn):
        return pod, fabric_context.FabricUse(document, awaits_correction=is_mislabelled), outcome
    if isinstance(outcome, plan.Refusal):
        _, fabric = intent.find_fabric(pod, document)
        use = fabric_context.use_all_rails(document, fabric) if fabric else fabric_context.FabricUse(document)
        return pod, msgspec.structs.replace(use, awaits_correction=True), outcome
    return outcome.pod, admission.find_use(outcome, document), outcome


def _list_answers(outcome: plan.Outcome | None) -> Iterator[rule_types.Finding]:
    """Yield what admission would answer: a rejection, or warnings."""
    if isinstance(outcome, plan.Refusal):
        yield manifest_rules.describe_rejected.build_finding(outcome.message)
    elif outcome is not None:
        for warning in outcome.warnings:
            if warning.code not in keys.CODES:  # lint finds their lines itself
                yield _build_warned(warning)


def _build_warned(warning: reason.Reason) -> rule_types.Finding:
    return manifest_rules.describe_warned.build_finding(warning.line, warning.code)


Path = documents.Path
LAUNCHER = "launcher's "  # prefix of `where` for settings that another template's mpirun passes
_SCRIPTS = ("command", "args")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def find_line(document: documents.Document, container: Path, template: Path, name: str, where: str) -> int:
    """Return the line of a setting of a container, or of the container if the setting has no line of its own."""
    if where.startswith("env["):
        index = int(where[4:].rstrip("]"))
        return document.find_line((*container, "env", index, "value"))
    if where.startswith(_SCRIPTS):
        return _find_script_line(document, container, name) or document.find_line(container)
    if where.startswith("line "):
        return document.find_line((*template, "metadata", "annotations", names.NCCL_CONF))
    return document.find_line(container)


def _find_script_line(document: documents.Document, container: Path, name: str) -> int | None:
    """Return the line of a container's command or arguments that contains a name, if any."""
    short = name.removeprefix("OMPI_MCA_").removeprefix("PRTE_MCA_").removeprefix("PMIX_MCA_")
    lines = (_index_names(document.find_node((*container, key))).get(short) for key in _SCRIPTS)
    return next(filter(None, lines), None)


@functools.lru_cache(maxsize=16)  # a command may have thousands of settings, each with a finding
def _index_names(words: yaml.Node | None) -> Mapping[str, int]:
    """Return the first line of each name in a command. Only a literal block keeps the lines of its text."""
    lines: dict[str, int] = {}
    for item in words.value if isinstance(words, yaml.SequenceNode) else ():
        if isinstance(item, yaml.ScalarNode):
            is_block = item.style == "|"
            for number, line in enumerate(item.value.split("\n") if is_block else [item.value], start=int(is_block)):
                for name in _NAME.findall(line):
                    lines.setdefault(name, documents.get_line(item) + number)
    return lines


# --- claims ---------------------------------------------------------------------------------------------

_GROUP = "resource.k8s.io"
_TEMPLATE = "ResourceClaimTemplate"


def _check_claims(path: str, document: documents.Document) -> Report:
    """Return the findings about the claims of a document. Raises UnreadableError if one is invalid."""
    located: list[Located] = []
    claims = list(_list_claims(document.tree))
    for position, tree in claims:
        ctx, below = _read_claim(path, document, position, tree)
        located += [
            Located(path, document.find_line((*below, *place)), ctx.title, finding)
            for finding, place in claim_rules.check(ctx)
        ]
    return Report(tuple(located), len(claims), templates=len(claims))


def _list_claims(tree: Any) -> Iterator[_Placed]:
    """Yield the claims of an object or a List, each with its path."""
    for position, item in workloads.list_objects(tree):
        if str(item.get("apiVersion")).partition("/")[0] == _GROUP and item["kind"] in claim_rules.KINDS:
            yield position, item


def _read_claim(
    path: str, document: documents.Document, position: documents.Path, tree: dict[str, Any]
) -> tuple[claim_rules.ClaimContext, documents.Path]:
    """Return a claim, and the path of its `devices`."""
    kind = str(tree["kind"])
    below = ("spec", "spec", "devices") if kind == _TEMPLATE else ("spec", "devices")
    metadata = frameworks.get_mapping(tree, "metadata")
    title = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    try:
        devices = claim_rules.read_devices(frameworks.get_mapping(documents.remove_nulls(tree), *below))
    except msgspec.ValidationError as error:
        line = document.find_line((*position, *below))
        raise output.UnreadableError(
            f"{path}:{line}: is not a valid {kind}: {object_files.describe_mismatch(error)}"
        ) from None
    return claim_rules.ClaimContext(f"{kind} {title}", devices, kind == _TEMPLATE), (*position, *below)


def check_shared_claims(files: Iterable[File]) -> Iterator[Located]:
    """Yield a finding for each ResourceClaim that several pods of these files use, at its first use."""
    users: dict[tuple[str, str], dict[str, int]] = {}
    places: dict[tuple[str, str], tuple[str, int]] = {}
    without_nics: set[tuple[str, str]] = set()
    for file in files:
        for document in file.parsed:
            for position, tree in workloads.list_objects(document.tree):
                metadata = frameworks.get_mapping(tree, "metadata")
                namespace = str(metadata.get("namespace") or pod_templates.DEFAULT_NAMESPACE)
                if tree["kind"] == "ResourceClaim":
                    claim, _ = _read_claim(file.path, document, position, tree)
                    if not any(claim_rules.is_nic(kind) for _, kind, _ in claim.list_kinds()):
                        without_nics.add((namespace, str(metadata.get("name"))))
                for template, name in _list_claim_uses(tree):
                    key, by_object = (namespace, name), users.setdefault((namespace, name), {})
                    by_object[template.owner] = by_object.get(template.owner, 0) + (template.pods or 1)
                    line = document.find_line((*position, *template.path, "spec", "resourceClaims"))
                    places.setdefault(key, (file.path, line))
    rule = manifest_rules.describe_shared_claim
    for key, by_object in users.items():
        if sum(by_object.values()) > 1 and key not in without_nics:
            path, line = places[key]
            yield Located(path, line, "", rule.build_finding(rule.check("/".join(key), by_object), key[1]))


def _list_claim_uses(tree: dict[str, Any]) -> Iterator[tuple[pod_templates.Template, str]]:
    """Yield the templates of an object with each ResourceClaim that they name."""
    with contextlib.suppress(output.UnreadableError, msgspec.ValidationError):
        for template in pod_templates.expand(tree, pod_templates.DEFAULT_NAMESPACE) or ():
            for claim in msgspec.convert(template.pod, views.Pod).spec.resource_claims or ():
                if claim.resource_claim_name:
                    yield template, claim.resource_claim_name
