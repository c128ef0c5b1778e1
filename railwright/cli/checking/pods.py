"""Checks of pods and workloads: what admission has missed, rejected or would change, and keys without effect."""

import contextlib
import datetime as dt
from collections.abc import Iterator

import msgspec

from railwright.cli.checking import admission, check_rows, snapshots, webhook_configurations
from railwright.cli.checking import policy as policies
from railwright.cli.checking.check_rows import Assessment, Checks, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import keys, opt_in, templates
from railwright.fabric.reasons.codes import AdmissionCode

_RECENT = dt.timedelta(hours=1)  # the API server keeps Events this long (--event-ttl)


def _list_pods(snapshot: Snapshot) -> list[views.Pod]:
    """Return the pods with the label, and those of opted-in namespaces without it."""
    unlabelled = (pod for pod in snapshot.get_all(snapshots.NAMESPACED_PODS) if names.FABRIC not in pod.metadata.labels)
    return [*snapshot.get_all("pods"), *unlabelled]


def _check_uninjected(snapshot: Snapshot) -> Assessment:
    labels = snapshot.namespace_labels
    accelerators = snapshot.policy.accelerators if snapshot.policy else ()
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    injected, missing = 0, []
    for pod in _list_pods(snapshot):
        namespace = pod.metadata.namespace
        label = opt_in.find_missed_label(pod, labels.get(namespace), accelerators, excluded)
        if label is not None and opt_in.is_label_enforced(label, snapshot.policy):  # the others have the row warn-mode
            missing.append(f"{namespace}/{pod.metadata.name}")
        injected += names.INJECTION in pod.metadata.annotations
    if missing:
        return fail(f"{len(missing)} of {injected + len(missing)}: {text.join_first(missing, 5)}")
    check_rows.require_read(snapshot, snapshots.NAMESPACED_PODS)
    return ok(text.format_count(injected, "pod") if injected else "no pod has opted in")


def _check_placements(snapshot: Snapshot) -> Assessment:
    """Warn of running pods whose placement says that their scheduler placed them without the extender."""
    bound = [pod for pod in snapshot.get_all("pods") if names.PLACEMENT in pod.metadata.annotations]
    code = f'"{AdmissionCode.PLACED_WITHOUT_EXTENDER.value}"'
    unasked = [pod for pod in bound if code in pod.metadata.annotations[names.PLACEMENT]]
    if not unasked:
        return ok(text.format_count(len(bound), "pod") if bound else "no opted-in pod is bound")
    schedulers = sorted({pod.spec.scheduler_name or "default-scheduler" for pod in unasked})
    named = text.join_first((f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in unasked), 5)
    share = text.format_count(len(bound), "pod", part=len(unasked))
    return warn(f"{share} without it, by {text.join_first(schedulers, 5)}: {named}")


def _check_rejected(snapshot: Snapshot) -> Assessment:
    events: tuple[views.Event, ...] = snapshot.get_all("refusals")
    recent = [event for event in events if snapshot.now - _get_time(event) < _RECENT]
    if not recent:
        return ok("none in the last hour")
    newest = max(recent, key=_get_time)
    owner = newest.involved_object
    named = f"{owner.kind} {owner.namespace}/{owner.name}"
    return warn(f"{len(recent)} in the last hour; most recently {named}: {newest.message}")


def _get_time(event: views.Event) -> dt.datetime:
    return snapshots.parse_time(event.last_timestamp or event.event_time or event.metadata.creation_timestamp)


# --- labels and annotations without effect ----------------------------------------------------------------

_MAX_LINES = 10  # findings in the detail
_FINISHED = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # conditions of Jobs, JobSets, Kubeflow's jobs


class _Status(views.View, frozen=True):
    conditions: list[views.PodCondition] | None = None


class _Stored(views.View, frozen=True):
    """The fields of a workload that decide whether its keys are checked."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    status: _Status | None = None

    def has_ended(self) -> bool:
        """True if a workload creates no more pods."""
        conditions = (self.status and self.status.conditions) or ()
        is_finished = any(item.type in _FINISHED and item.status == "True" for item in conditions)
        return is_finished or self.metadata.deletion_timestamp is not None


def _check_keys(snapshot: Snapshot) -> Assessment:
    lines = [*_check_namespaces(snapshot)]
    for workload in _list_workloads(snapshot):
        problems = [*_check_label(workload, snapshot), *(message.line for message in keys.check_stored(workload))]
        lines += [f"{_format_name(workload)}: {problem}" for problem in problems]
    if lines:
        more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
        return warn("\n".join([*lines[:_MAX_LINES], *more]))
    if unread := [snapshot.unread[source] for source in snapshots.WORKLOADS if source in snapshot.unread]:
        return skip("; ".join(dict.fromkeys(unread)), unread=True)
    return ok(text.format_count(sum(len(snapshot.get_all(source)) for source in snapshots.WORKLOADS), "workload"))


def _check_namespaces(snapshot: Snapshot) -> Iterator[str]:
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    for namespace in snapshot.get_all("namespaces"):
        metadata = msgspec.convert(get_path(namespace, "metadata"), views.ObjectMeta)
        if metadata.name not in excluded:
            yield from (f"Namespace {metadata.name}: {message.line}" for message in keys.check_namespace(metadata))


def _list_workloads(snapshot: Snapshot) -> Iterator[templates.Workload]:
    """Yield the workloads that admission covers, that no controller owns and that may still create pods."""
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    for source, kind in snapshots.WORKLOADS.items():
        for body in snapshot.get_all(source):
            with contextlib.suppress(
                msgspec.DecodeError, templates.UnreadableError
            ):  # unreadable for its controller too
                stored = msgspec.json.decode(body, type=_Stored)
                metadata = stored.metadata
                if metadata.namespace not in excluded and metadata.controller is None and not stored.has_ended():
                    yield templates.read(kind, body)


def _format_name(workload: templates.Workload) -> str:
    return f"{workload.kind.name} {workload.metadata.namespace}/{workload.metadata.name}"


def _check_label(workload: templates.Workload, snapshot: Snapshot) -> Iterator[str]:
    """Yield a problem if admission would have copied the label into a template, and has not."""
    problem = keys.describe_uncopied(workload)
    if problem and opt_in.is_label_enforced(workload.label or "", snapshot.policy):
        yield problem


# --- mode `warn` ------------------------------------------------------------------------------------------


def _check_warn_mode(snapshot: Snapshot) -> Iterator[Assessment]:
    """Warn of fabrics that are not enforced; fail if the admission policies deny their pods, which have no record."""
    policy = policies.require_policy(snapshot)
    fabrics = [name for name in policy.document.fabrics if not intent.is_enforced(policy.document, name)]
    if not fabrics:
        yield ok("each fabric is enforced")
    elif admission.denies_uninjected(snapshot):
        detail = "the admission policies deny its pods, because mode warn adds no record"
        yield from (fail(detail, subject=name) for name in fabrics)
    else:
        yield from (warn("its pods are admitted unchanged, with a warning", subject=name) for name in fabrics)


CHECKS: Checks = {
    "uninjected": _check_uninjected,
    "placed-without-extender": _check_placements,
    "refused": _check_rejected,
    "workload-keys": _check_keys,
    "warn-mode": _check_warn_mode,
}
