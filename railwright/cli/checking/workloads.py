"""Check of railwright's labels and annotations on workloads and namespaces that have no effect where they are."""

from collections.abc import Collection, Iterator

import msgspec

from railwright.cli.checking import check_rows, snapshots, webhook_configurations
from railwright.cli.checking.check_rows import ok, skip, warn
from railwright.fabric import names, text, views
from railwright.fabric.injection import keys, missed, templates
from railwright.fabric.workloads import kinds, registry

_MAX_LINES = 10  # findings in the detail
_FINISHED = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # conditions of Jobs, JobSets, Kubeflow's jobs
KINDS = {snapshots.name_source(kind, version): kind for kind in registry.KINDS for version in kind.versions}


class _Condition(views.View, frozen=True):
    type: str = ""
    status: str = ""


class _Status(views.View, frozen=True):
    conditions: list[_Condition] | None = None


class _Stored(views.View, frozen=True):
    """Has what decides whether the keys of a workload are checked."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    status: _Status | None = None


def _check_keys(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    lines = [*_check_namespaces(snapshot, excluded)]
    count = 0
    for source, kind in KINDS.items():
        for body in snapshot.get_all(source):
            count += 1
            lines += _check_workload(kind, body, snapshot, excluded)
    if lines:
        more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
        return warn("\n".join([*lines[:_MAX_LINES], *more]))
    if unread := [snapshot.unread[source] for source in KINDS if source in snapshot.unread]:
        return skip("; ".join(dict.fromkeys(unread)), unread=True)
    return ok(text.format_count(count, "workload"))


def _check_namespaces(snapshot: snapshots.ClusterSnapshot, excluded: Collection[str]) -> Iterator[str]:
    for namespace in snapshot.get_all("namespaces"):
        metadata = msgspec.convert(snapshots.get_path(namespace, "metadata"), views.ObjectMeta)
        if metadata.name not in excluded:
            yield from (f"Namespace {metadata.name}: {message.line}" for message in keys.check_namespace(metadata))


def _check_workload(
    kind: kinds.WorkloadKind, body: bytes, snapshot: snapshots.ClusterSnapshot, excluded: Collection[str]
) -> Iterator[str]:
    workload = read_live(kind, body, excluded)
    if workload is None:
        return
    problems = [*_check_label(workload, snapshot), *(message.line for message in keys.check_stored(workload))]
    name = f"{kind.name} {workload.metadata.namespace}/{workload.metadata.name}"
    yield from (f"{name}: {problem}" for problem in problems)


def read_live(kind: kinds.WorkloadKind, body: bytes, excluded: Collection[str]) -> templates.Workload | None:
    """Return a workload that no controller owns and that may still create pods, None for any other."""
    try:
        stored = msgspec.json.decode(body, type=_Stored)
        if stored.metadata.namespace in excluded or stored.metadata.controller is not None or _has_ended(stored):
            return None
        return templates.read(kind, body)
    except (msgspec.DecodeError, templates.UnreadableError):
        return None  # its controller cannot read it either


def list_unlabelled(workload: templates.Workload) -> tuple[templates.Template, ...]:
    """Return the templates into which admission would have copied the label of the workload, and has not."""
    if not workload.kind.is_injected or workload.label in (None, names.FABRIC_NONE):
        return ()
    return tuple(template for template in workload.templates if names.FABRIC not in template.pod.metadata.labels)


def _has_ended(stored: _Stored) -> bool:
    conditions = (stored.status and stored.status.conditions) or ()
    is_finished = any(item.type in _FINISHED and item.status == "True" for item in conditions)
    return is_finished or stored.metadata.deletion_timestamp is not None


def _check_label(workload: templates.Workload, snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    """Yield a problem if admission would have copied the label into a template, and has not."""
    kind, label = workload.kind, workload.label
    lacking = list_unlabelled(workload)
    if not lacking or label is None or missed.is_in_audit(label, snapshot.policy):
        return
    problem = f"label {names.FABRIC} {label!r} of the {kind.name} does not reach its pods: "
    if kind.is_frozen:
        yield (
            f"{problem}it was set after the {kind.name} was created, or railwright was not called or in audit mode "
            f"then; the template cannot change, so delete the {kind.name}, and create it again with the label"
        )
    else:
        yield (
            f"{problem}railwright was not called or in audit mode when it was set, and has not copied it to the "
            f"template; set it in {lacking[0].title}.metadata.labels"
        )


CHECKS: check_rows.Checks = {
    "workload-keys": _check_keys,
}
