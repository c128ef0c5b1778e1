"""Checks of pods and workloads: what admission has missed, rejected or would change, and keys without effect."""

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from railwright.cli.checking import snapshots, webhook_configurations
from railwright.cli.checking.check_rows import Assessment, Checks, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_map, get_path
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import facts, keys, missed, plan, pod_changes, templates
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import kinds

_RECENT = dt.timedelta(hours=1)  # the API server keeps Events this long (--event-ttl)


def _list_pods(snapshot: Snapshot) -> list[views.Pod]:
    """Return the pods with the label, and those of opted-in namespaces without it."""
    unlabelled = (pod for pod in snapshot.namespaced_pods if names.FABRIC not in pod.metadata.labels)
    return [*snapshot.get_all("pods"), *unlabelled]


def _check_uninjected(snapshot: Snapshot) -> Assessment:
    labels = snapshot.namespace_labels
    accelerators = snapshot.policy.accelerators if snapshot.policy else ()
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    injected, missing = 0, []
    for pod in _list_pods(snapshot):
        namespace = pod.metadata.namespace
        label = missed.find_label(pod, labels.get(namespace), accelerators, excluded)
        if label is not None and not missed.is_in_audit(label, snapshot.policy):  # those have the row audit-mode
            missing.append(f"{namespace}/{pod.metadata.name}")
        injected += names.INJECTION in pod.metadata.annotations and not intent.read_record(pod).is_audit
    if missing:
        return fail(f"{len(missing)} of {injected + len(missing)}: {text.join_first(missing, 5)}")
    if snapshots.NAMESPACED_PODS in snapshot.unread:
        return skip(snapshot.unread[snapshots.NAMESPACED_PODS], unread=True)
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
    recent = [event for event in snapshot.get_all("refusals") if snapshot.now - _get_time(event) < _RECENT]
    if not recent:
        return ok("none in the last hour")
    newest = max(recent, key=_get_time)
    involved = get_map(newest, "involvedObject")
    owner = f"{involved.get('kind')} {involved.get('namespace')}/{involved.get('name')}"
    return warn(f"{len(recent)} in the last hour; most recently {owner}: {get_path(newest, 'message') or ''}")


def _get_time(event: Any) -> dt.datetime:
    times = (
        get_path(event, "series", "lastObservedTime"),
        get_path(event, "lastTimestamp"),
        get_path(event, "eventTime"),
        get_path(event, "metadata", "creationTimestamp"),
    )
    return snapshots.parse_time(next(filter(None, times), None))


# --- labels and annotations without effect ----------------------------------------------------------------

_MAX_LINES = 10  # findings in the detail
_FINISHED = frozenset({"Complete", "Completed", "Failed", "Succeeded"})  # conditions of Jobs, JobSets, Kubeflow's jobs


class _Condition(views.View, frozen=True):
    type: str = ""
    status: str = ""


class _Status(views.View, frozen=True):
    conditions: list[_Condition] | None = None


class _Stored(views.View, frozen=True):
    """Has what decides whether the keys of a workload are checked."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    status: _Status | None = None

    def has_ended(self) -> bool:
        """True if a workload creates no more pods."""
        conditions = (self.status and self.status.conditions) or ()
        is_finished = any(item.type in _FINISHED and item.status == "True" for item in conditions)
        return is_finished or self.metadata.deletion_timestamp is not None


def _check_keys(snapshot: Snapshot) -> Assessment:
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    workloads = [(kind, body) for source, kind in snapshots.WORKLOADS.items() for body in snapshot.get_all(source)]
    lines = [*_check_namespaces(snapshot, excluded)]
    for kind, body in workloads:
        lines += _check_workload(kind, body, snapshot, excluded)
    if lines:
        more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
        return warn("\n".join([*lines[:_MAX_LINES], *more]))
    if unread := [snapshot.unread[source] for source in snapshots.WORKLOADS if source in snapshot.unread]:
        return skip("; ".join(dict.fromkeys(unread)), unread=True)
    return ok(text.format_count(len(workloads), "workload"))


def _check_namespaces(snapshot: Snapshot, excluded: Collection[str]) -> Iterator[str]:
    for namespace in snapshot.get_all("namespaces"):
        metadata = msgspec.convert(get_path(namespace, "metadata"), views.ObjectMeta)
        if metadata.name not in excluded:
            yield from (f"Namespace {metadata.name}: {message.line}" for message in keys.check_namespace(metadata))


def _check_workload(
    kind: kinds.WorkloadKind, body: bytes, snapshot: Snapshot, excluded: Collection[str]
) -> Iterator[str]:
    """Yield the findings of a workload that no controller owns, and that may still create pods."""
    try:
        stored = msgspec.json.decode(body, type=_Stored)
        if stored.metadata.namespace in excluded or stored.metadata.controller is not None or stored.has_ended():
            return
        workload = templates.read(kind, body)
    except (msgspec.DecodeError, templates.UnreadableError):
        return  # its controller cannot read it either
    problems = [*_check_label(workload, snapshot), *(message.line for message in keys.check_stored(workload))]
    yield from (f"{kind.name} {stored.metadata.namespace}/{stored.metadata.name}: {problem}" for problem in problems)


def _check_label(workload: templates.Workload, snapshot: Snapshot) -> Iterator[str]:
    """Yield a problem if admission would have copied the label into a template, and has not."""
    kind, label = workload.kind, workload.label
    if not kind.is_injected or label in (None, names.FABRIC_NONE) or missed.is_in_audit(label, snapshot.policy):
        return
    lacking = [template for template in workload.templates if names.FABRIC not in template.pod.metadata.labels]
    if lacking and kind.is_frozen:
        yield rendering.describe(reason.make(AdmissionCode.LABEL_TOO_LATE, value=label, kind=kind.name)).line
    elif lacking:
        yield (
            f"label {names.FABRIC} {label!r} of the {kind.name} does not reach its pods: railwright was not called "
            f"when it was set, and has not copied it to the template; set it in {lacking[0].title}.metadata.labels"
        )


# --- audit mode -------------------------------------------------------------------------------------------

_MAX_PODS = 5000  # planned; each takes a third of a millisecond
# written by railwright or at binding; a pod that is created again has none of them
_WRITTEN = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF, names.UCX_NET_DEVICES)
_ENDED = frozenset({"Succeeded", "Failed"})


def _check_audit_mode(snapshot: Snapshot) -> Iterator[Assessment]:
    """Say what would change for the existing pods if they were created again and the fabrics in audit mode enforced."""
    policy = snapshot.policy_result
    if not isinstance(policy, model.Policy):
        yield skip("there is no valid policy")
        return
    fabrics = [name for name in policy.document.fabrics if intent.is_in_audit(policy.document, name)]
    outcomes: dict[str, list[pod_changes.Audit]] = {name: [] for name in fabrics}
    for outcome in _plan_pods(snapshot, policy) if fabrics else ():
        outcomes.setdefault(outcome.fabric, []).append(outcome)
    for name, audits in outcomes.items():
        yield warn(_describe_audits(audits), subject=name or "other labels")
    if not fabrics:
        yield ok("no fabric is in audit mode")


def _describe_audits(audits: list[pod_changes.Audit]) -> str:
    """Return what enforcing would do to pods, with an example of each rejection."""
    if not audits:
        return "audit: no pod of now would change"
    refusals = [audit.refusal for audit in audits if audit.refusal is not None]
    changed = sum(audit.injection is not None and len(audit.injection.changes) > len(audit.changes) for audit in audits)
    counts = Counter(refusal.reason for refusal in refusals)
    examples = {refusal.reason: refusal.message for refusal in reversed(refusals)}
    parts = [f"{count} rejected ({code}), such as {examples[code]}" for code, count in counts.most_common(3)]
    pods = text.format_count(len(audits), "pod")
    return "; ".join([f"audit: of {pods} of now, created again, {changed} would be injected", *parts])


def _plan_pods(snapshot: Snapshot, policy: model.Policy) -> Iterator[pod_changes.Audit]:
    """Yield the outcomes of audit mode for the running and pending pods that are not injected."""
    labels = snapshot.namespace_labels
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    networks = None if "networks" in snapshot.unread else _read_networks(snapshot)
    nodes = snapshot.get_all("nodes")
    offered = frozenset(name for node in nodes for name in node.status.allocatable) if nodes else None
    for pod in [pod for pod in _list_pods(snapshot) if _is_candidate(pod, excluded)][:_MAX_PODS]:
        namespace = pod.metadata.namespace
        known = facts.ClusterFacts(namespace, labels.get(namespace), networks, offered)
        outcome = plan.plan(_undo_creation(pod), policy, known)
        if isinstance(outcome, pod_changes.Audit):
            yield outcome


def _is_candidate(pod: views.Pod, excluded: frozenset[str]) -> bool:
    """True for a live pod that admission covers and has not injected."""
    record = intent.read_record(pod)
    return (
        (record.rails is None or record.is_audit)
        and missed.is_covered(pod, excluded)
        and pod.status.phase not in _ENDED
        and pod.metadata.deletion_timestamp is None
    )


def _undo_creation(pod: views.Pod) -> views.Pod:
    """Return a pod as its creator would send it again: without a node, and without what admission and binding wrote."""
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key not in _WRITTEN}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=annotations)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _read_networks(snapshot: Snapshot) -> Mapping[tuple[str, str], str | None]:
    """Return each network with the resource that its annotation names."""
    networks = [get_map(item, "metadata") for item in snapshot.get_all("networks")]
    return {
        (str(network.get("namespace")), str(network.get("name"))): get_map(network, "annotations").get(
            names.NAD_RESOURCE_NAME
        )
        for network in networks
    }


CHECKS: Checks = {
    "uninjected": _check_uninjected,
    "placed-without-extender": _check_placements,
    "refused": _check_rejected,
    "workload-keys": _check_keys,
    "audit-mode": _check_audit_mode,
}
