"""Files -> findings with their places: manifests of any workload, and nccl.conf files.

Owns which files are which, how a policy joins in, and what several templates of one job have to do with each other.
"""

from collections.abc import Iterator, Sequence

import msgspec

from railwright.cli import output
from railwright.cli.linting import places
from railwright.cluster import documents, nodes
from railwright.fabric import admission, intent, views
from railwright.fabric.injection import facts, plan
from railwright.fabric.injection import model as injection
from railwright.fabric.lint import engine, fabric_context, model, rank_contexts, workloads
from railwright.fabric.policy import model as policies

_CONF = "nccl.conf"


class Context(msgspec.Struct, frozen=True):
    """What the command was told besides the files."""

    policy: policies.Policy | None = None
    nccl: tuple[int, ...] | None = None


class Located(msgspec.Struct, frozen=True):
    """A finding with its file, line and the object it is about."""

    file: str
    line: int | None
    title: str
    finding: model.Finding


class Report(msgspec.Struct, frozen=True):
    """What was found, in how many containers or files, and what has to be said beside it.

    `templates`: pods, pod templates and nccl.conf files that were read, whether or not they have anything to look at.
    """

    located: tuple[Located, ...] = ()
    looked_at: int = 0
    notes: tuple[str, ...] = ()
    templates: int = 0


def of_file(path: str, text: str, context: Context) -> Report:
    """All findings of a file. Raises output.UnreadableError for what is neither manifest nor nccl.conf."""
    if path.endswith(_CONF):
        if not _has_settings(text):
            raise output.UnreadableError(f"{path}: is empty; lines NAME=VALUE are expected")
        return _of_conf(path, text, context)
    try:
        roots = list(nodes.compose(text))
    except nodes.DocumentError as error:
        if _looks_like_conf(text):
            return _of_conf(path, text, context)
        raise output.UnreadableError(f"{path}: {error}") from None
    if not any(root.kind == "mapping" for root in roots):
        if _looks_like_conf(text):
            return _of_conf(path, text, context)
        if not any(root.text or root.items for root in roots):
            raise output.UnreadableError(f"{path}: is empty; a Kubernetes manifest or lines NAME=VALUE are expected")
        raise output.UnreadableError(f"{path}: is neither a Kubernetes manifest nor lines NAME=VALUE")
    if not any(_holds_an_object(root) for root in roots):
        raise output.UnreadableError(f"{path}: holds no object; a pod or a workload is expected")
    return joined([_of_document(path, root, context) for root in roots if root.kind == "mapping"])


def joined(reports: Sequence[Report]) -> Report:
    """Several reports as one."""
    located = dict.fromkeys(each for report in reports for each in report.located)
    notes = dict.fromkeys(each for report in reports for each in report.notes)
    return Report(
        tuple(located),
        sum(report.looked_at for report in reports),
        tuple(notes),
        sum(report.templates for report in reports),
    )


def _has_settings(text: str) -> bool:
    """Return whether any line is more than blanks or a comment."""
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.split("\n"))


def _holds_an_object(root: nodes.Node) -> bool:
    """Return whether a document is an object, or a List with one."""
    if root.kind != "mapping" or not root.items:
        return False
    items = documents.child(root, "items")
    return items is None or items[1].kind != "sequence" or bool(items[1].items)


def _looks_like_conf(text: str) -> bool:
    """True where every line is empty, a comment or NAME=VALUE, and one is the last."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    return bool(lines) and all("=" in line and ": " not in line.partition("=")[0] for line in lines)


def _of_conf(path: str, text: str, context: Context) -> Report:
    ranks = model.RankContext(
        path, rank_contexts.read_file(text), fabric_context.build(_default_use(context)), nccl=context.nccl
    )
    located = []
    for finding in engine.check(ranks):
        number = finding.where.removeprefix("line ")
        located.append(Located(path, int(number) if number.isdigit() else None, "", finding))
    return Report(tuple(located), 1, templates=1)


def _default_use(context: Context) -> fabric_context.FabricUse:
    """The only fabric of the policy, or its default: a file says of no fabric that it is meant for it."""
    document = context.policy.document if context.policy else None
    if document is None:
        return fabric_context.FabricUse()
    only = next(iter(document.fabrics)) if len(document.fabrics) == 1 else document.default_fabric
    return (
        fabric_context.use_all_rails(document, document.fabrics[only])
        if only in document.fabrics
        else fabric_context.FabricUse(document)
    )


def _of_document(path: str, root: nodes.Node, context: Context) -> Report:
    try:
        document = documents.document(root)
        read = list(workloads.read(documents.without_nulls(document.tree)))
    except nodes.DocumentError as error:
        raise output.UnreadableError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        raise output.UnreadableError(f"{path}:{root.line}: is no manifest Kubernetes would take: {error}") from None
    if document.problems:
        problem = document.problems[0]
        raise output.UnreadableError(f"{path}:{problem.line}: {problem.message}")
    return joined([_of_workload(path, document, workload, context) for workload in read])


class _Prepared(msgspec.Struct, frozen=True):
    """A template with what a policy makes of it."""

    template: workloads.Template
    pod: views.Pod  # after injection
    use: fabric_context.FabricUse
    injected: frozenset[tuple[int, str]]  # container and name of what the policy set
    indexes: tuple[int, ...]


def _of_workload(path: str, document: documents.Document, workload: workloads.Workload, context: Context) -> Report:
    notes: list[str] = []
    prepared = [_prepared(each, workload, context, notes) for each in workload.templates]
    located: list[Located] = []
    looked_at = 0
    launchers = [each for each in prepared if rank_contexts.starts_ranks(each.pod)]
    for each in prepared:
        others = [launcher for launcher in launchers if launcher is not each]
        for index in each.indexes:
            looked_at += 1
            ranks = rank_contexts.build(each.pod, index, _job_context(each, prepared, others, workload, context))
            starting = [container for other in others for container in _containers(other)]
            located += [
                Located(path, _line(document, each, index, starting, finding), ranks.title, _told(finding, each, index))
                for finding in engine.check(ranks)
            ]
    return Report(tuple(located), looked_at, tuple(f"{path}: {note}" for note in notes), len(prepared))


def _job_context(
    each: _Prepared,
    prepared: Sequence[_Prepared],
    others: Sequence[_Prepared],
    workload: workloads.Workload,
    context: Context,
) -> rank_contexts.JobContext:
    computing = any(
        rank_contexts.count_accelerators(container, each.use.accelerators) for container in each.pod.spec.containers
    )
    counts = [one.template.count for one in prepared]
    job = sum(count * _processes(one) for one, count in zip(prepared, counts, strict=True) if count is not None)
    return rank_contexts.JobContext(
        use=each.use,
        networks=fabric_context.parse_networks(each.pod, workload.namespace),
        title=" ".join(filter(None, (workload.title, each.template.part))),
        passed=tuple(_renamed(setting) for other in others for setting in _passed(other)),
        has_own_ranks=computing or len(prepared) == 1,
        count=each.template.count,
        job=job if None not in counts else None,
        images=frozenset(_images(prepared)),
        nccl=context.nccl,
    )


def _processes(one: _Prepared) -> int:
    """Ranks of a pod: one for each accelerator, and none in a launcher beside its workers."""
    computing = sum(rank_contexts.count_accelerators(each, one.use.accelerators) for each in one.pod.spec.containers)
    return computing or (0 if rank_contexts.starts_ranks(one.pod) else 1)


def _images(prepared: Sequence[_Prepared]) -> Iterator[str]:
    for one in prepared:
        for container in one.pod.spec.containers:
            if container.image and rank_contexts.count_accelerators(container, one.use.accelerators):
                yield container.image


def _passed(launcher: _Prepared) -> Iterator[model.Setting]:
    for index in range(len(launcher.pod.spec.containers)):
        yield from rank_contexts.list_passed(launcher.pod, index)


def _renamed(setting: model.Setting) -> model.Setting:
    return msgspec.structs.replace(setting, where=f"{places.LAUNCHER}{setting.where}")


def _containers(each: _Prepared) -> list[workloads.Path]:
    return [each.template.container(index) for index in range(len(each.pod.spec.containers))]


def _line(
    document: documents.Document,
    each: _Prepared,
    index: int,
    launchers: Sequence[workloads.Path],
    finding: model.Finding,
) -> int:
    container = each.template.container(index)
    if finding.where.startswith(places.LAUNCHER):
        found = places.of_launcher(document, launchers, finding.name)
        return document.line(container) if found is None else found
    return places.line(document, container, each.template.path, finding.name, finding.where)


def _told(finding: model.Finding, each: _Prepared, index: int) -> model.Finding:
    if (index, finding.name) not in each.injected:
        return finding
    return msgspec.structs.replace(finding, message=f"{finding.message} (set by the policy)")


def _prepared(
    template: workloads.Template, workload: workloads.Workload, context: Context, notes: list[str]
) -> _Prepared:
    pod, use, changes = _injected(template.pod, workload, context, notes)
    injected = frozenset((change.container, change.name) for change in changes if isinstance(change, injection.SetEnv))
    return _Prepared(template, pod, use, injected, rank_contexts.select_containers(pod, use.accelerators))


def _injected(
    pod: views.Pod, workload: workloads.Workload, context: Context, notes: list[str]
) -> tuple[views.Pod, fabric_context.FabricUse, tuple[injection.AnyChange, ...]]:
    """Return a template's pod after injection, its use of the fabric, and the changes."""
    if context.policy is None:
        return pod, fabric_context.FabricUse(), ()
    document = context.policy.document
    outcome = plan.plan(pod, context.policy, facts.Facts(workload.namespace))
    if isinstance(outcome, injection.NotOptedIn):
        return pod, fabric_context.FabricUse(document), ()
    if isinstance(outcome, injection.Refusal):
        notes.append(f"{workload.title} would be refused: {outcome.message}")
        _, fabric = intent.find_fabric(pod, document)
        use = fabric_context.use_all_rails(document, fabric) if fabric else fabric_context.FabricUse(document)
        return pod, use, ()
    return outcome.pod, admission.find_use(outcome, document), outcome.changes
