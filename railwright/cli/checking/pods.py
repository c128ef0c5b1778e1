"""Rows about pods and workloads: what admission has missed or rejected, and keys without effect."""

import contextlib
from collections.abc import Iterator

import msgspec

from railwright.cli.checking import rows, snapshots, webhook_configurations
from railwright.cli.checking.rows import Assessment, fail, ok, row, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import keys, opt_in, templates

GROUP = "pods"

_MAX_LINES = 10  # findings in the detail
_FINISHED = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # conditions of Jobs, JobSets, Kubeflow's jobs


def _is_enforced(snapshot: Snapshot) -> bool:
    return snapshot.policy is None or intent.is_enforced(snapshot.policy)


@row(
    "these pods were created while the webhook was not called or the policy was in mode warn, or labelled later, and "
    "use TCP; set the label in the template of their workload, if it is not there, and delete them so that their "
    "controller creates them again: kubectl -n NAMESPACE delete pod NAME",
    reads="pods namespaces",
)
def check_uninjected(snapshot: Snapshot) -> Assessment:
    """Every opted-in pod has its network.

    Fails for opted-in pods that run or are pending without an injection. They were created while the webhook was not
    called or the policy was in mode warn, or labelled later, and use TCP. Not counted: mirror pods of static pods, pods
    that have finished or are being deleted, pods of namespaces that the webhook's configuration excludes, and pods with
    so many annotations (over 48,000 characters) that the record may not have fit.
    """
    labels, accelerators = snapshot.namespace_labels, snapshot.policy.accelerators if snapshot.policy else ()
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    unlabelled = (pod for pod in snapshot.get_all("namespaced-pods") if names.FABRIC not in pod.metadata.labels)
    injected, missing = 0, []
    for pod in (*snapshot.get_all("pods"), *unlabelled):
        namespace = pod.metadata.namespace
        label = opt_in.find_missed_label(pod, labels.get(namespace), accelerators, excluded)
        if label is not None and _is_enforced(snapshot):  # otherwise the row warn-mode says so
            missing.append(f"{namespace}/{pod.metadata.name}")
        injected += names.INJECTION in pod.metadata.annotations
    if missing:
        return fail(f"{len(missing)} of {injected + len(missing)}: {text.join_first(missing, 5)}")
    rows.require_read(snapshot, "namespaced-pods")
    return ok(text.format_count(injected, "pod") if injected else "no pod has opted in")


@row(
    "the Event says how to fix it; to list all: kubectl get events -A --field-selector reason=FabricRefused",
    reads="refusals",
)
def check_refused(snapshot: Snapshot) -> Assessment:
    """No pod was rejected recently.

    Warns about Events of the last hour for rejected pods (reason `FabricRefused`); the detail quotes the newest.
    """
    recent = snapshot.list_recent("refusals")
    if not recent:
        return ok("none in the last hour")
    owner = recent[0].involved_object
    named = f"{owner.kind} {owner.namespace}/{owner.name}"
    return warn(f"{len(recent)} in the last hour; most recently {named}: {recent[0].message}")


_NOT_PULLED = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


@row(
    "let the nodes pull it: name a Secret for its registry in imagePullSecrets of the pods or of their ServiceAccount, "
    "or another image in `preflight.image` of the fabric",
    reads="pods",
)
def check_preflight_image(snapshot: Snapshot) -> Assessment:
    """The image of the preflight can be pulled in the namespaces of users.

    Fails for opted-in pods whose init container `railwright-preflight` waits for its image: they never start. The image
    is the webhook's, which needs a Secret in its own namespace only.
    """
    waiting = [
        (pod.metadata.full_name, container.image)
        for pod in snapshot.get_all("pods")
        for status in pod.status.init_container_statuses or ()
        if status.name == names.PREFLIGHT_CONTAINER and status.state and status.state.waiting
        if status.state.waiting.reason in _NOT_PULLED
        for container in pod.spec.init_containers or ()
        if container.name == names.PREFLIGHT_CONTAINER
    ]
    if not waiting:
        return ok("no pod waits for it")
    images = ", ".join(dict.fromkeys(image for _, image in waiting))
    return fail(f"{images}: {text.join_first([name for name, _ in waiting], 5)}")


# --- labels and annotations without effect ----------------------------------------------------------------


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


@row(
    "each line says what to do in the manifest; pods that exist do not change, so create them again", reads="namespaces"
)
def check_workload_keys(snapshot: Snapshot) -> Assessment:
    """Labels and annotations of railwright have an effect where they are.

    Examples of what has none: the label on a CronJob, which passes none to its pods; on a Job or JobSet that existed
    before the label, or that was created while the webhook was not called; an annotation instead of a label; a misspelt
    key; a pod's key on a workload or on a namespace. Each line names the object, what was seen, where it belongs and
    what to do, as admission and `railwright explain FILE` do. Workloads of all kinds that railwright knows are read,
    but not those that a controller owns or that have ended, and no pods.
    """
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    lines = []
    for namespace in snapshot.get_all("namespaces"):
        metadata = msgspec.convert(get_path(namespace, "metadata"), views.ObjectMeta)
        if metadata.name not in excluded:
            lines += [f"Namespace {metadata.name}: {message.line}" for message in keys.check_namespace(metadata)]
    for workload in _list_workloads(snapshot, excluded):
        name = f"{workload.kind.name} {workload.metadata.namespace}/{workload.metadata.name}"
        uncopied = keys.describe_uncopied(workload) if _is_enforced(snapshot) else ""
        problems = [*([uncopied] if uncopied else ()), *(message.line for message in keys.check_stored(workload))]
        lines += [f"{name}: {problem}" for problem in problems]
    if lines:
        more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
        return warn("\n".join([*lines[:_MAX_LINES], *more]))
    if unread := [snapshot.unread[source] for source in snapshots.WORKLOADS if source in snapshot.unread]:
        return skip("; ".join(dict.fromkeys(unread)), unread=True)
    return ok(text.format_count(sum(len(snapshot.get_all(source)) for source in snapshots.WORKLOADS), "workload"))


def _list_workloads(snapshot: Snapshot, excluded: frozenset[str]) -> Iterator[templates.Workload]:
    """Yield the workloads that admission covers, that no controller owns and that may still create pods."""
    for source, kind in snapshots.WORKLOADS.items():
        for body in snapshot.get_all(source):
            # what cannot be read here is unreadable for its controller too
            with contextlib.suppress(msgspec.DecodeError, templates.UnreadableError):
                stored = msgspec.json.decode(body, type=_Stored)
                metadata = stored.metadata
                if metadata.namespace not in excluded and metadata.controller is None and not stored.has_ended():
                    yield templates.read(kind, body)
