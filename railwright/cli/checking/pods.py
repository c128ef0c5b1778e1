"""Checks of pods and workloads: what admission has missed, rejected or would change, and keys without effect."""

import contextlib
import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from railwright.cli.checking import check_rows, snapshots, webhook_configurations
from railwright.cli.checking import policy as policies
from railwright.cli.checking.check_rows import Assessment, Checks, fail, ok, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_path
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import facts, keys, opt_in, plan, pod_changes, template_plan, templates
from railwright.fabric.policy import model
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
        if label is not None and not opt_in.is_label_in_audit(label, snapshot.policy):  # those have the row audit-mode
            missing.append(f"{namespace}/{pod.metadata.name}")
        injected += names.INJECTION in pod.metadata.annotations and not intent.read_record(pod).is_audit
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
    if problem and not opt_in.is_label_in_audit(workload.label or "", snapshot.policy):
        yield problem


# --- audit mode -------------------------------------------------------------------------------------------

_MAX_PODS = 5000  # planned; each takes a third of a millisecond
# written by railwright or at binding; a pod that is created again has none of them
_WRITTEN = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF, names.UCX_NET_DEVICES)
_BuildFacts = Callable[[str], facts.ClusterFacts]


class _Audits(NamedTuple):
    """Outcomes of one fabric: of each pod, and of the templates of each workload."""

    pods: list[pod_changes.Audit]
    workloads: list[list[pod_changes.Audit]]


def _check_audit_mode(snapshot: Snapshot) -> Iterator[Assessment]:
    """Say what would change for the existing pods if they were created again and the fabrics in audit mode enforced."""
    policy = policies.require_policy(snapshot)
    fabrics = [name for name in policy.document.fabrics if intent.is_in_audit(policy.document, name)]
    if not fabrics:
        yield ok("no fabric is in audit mode")
        return
    audits = {name: _Audits([], []) for name in fabrics}
    build_facts = _prepare_facts(snapshot)
    for outcome in _plan_pods(snapshot, policy, build_facts):
        audits.setdefault(outcome.fabric, _Audits([], [])).pods.append(outcome)
    for outcomes in _plan_workloads(snapshot, policy, build_facts):
        audits.setdefault(outcomes[0].fabric, _Audits([], [])).workloads.append(outcomes)
    for name, planned in audits.items():
        yield warn(_describe_audits(planned), subject=name or "other labels")


def _describe_audits(planned: _Audits) -> str:
    """Return what enforcing would do to pods and workloads, with an example of each rejection."""
    if not planned.pods and not planned.workloads:
        return "audit: no existing pod would change"
    parts = []
    if planned.pods:
        pods = text.format_count(len(planned.pods), "existing pod")
        changed = sum(map(_is_changed, planned.pods))
        parts.append(f"of {pods}, created again, {changed} would be injected")
    if planned.workloads:
        workloads = text.format_count(len(planned.workloads), "workload")
        changed = sum(any(map(_is_changed, outcomes)) for outcomes in planned.workloads)
        parts.append(f"of {workloads} with the label only on the workload, created again, {changed} would be injected")
    refusals = [audit.refusal for audit in (*planned.pods, *itertools.chain(*planned.workloads)) if audit.refusal]
    counts = Counter(refusal.reason for refusal in refusals)
    examples = {refusal.reason: refusal.message for refusal in reversed(refusals)}
    parts += [f"{count} rejected ({code}), such as {examples[code]}" for code, count in counts.most_common(3)]
    return f"audit: {'; '.join(parts)}"


def _is_changed(audit: pod_changes.Audit) -> bool:
    return audit.injection is not None and len(audit.injection.changes) > len(audit.changes)


def _prepare_facts(snapshot: Snapshot) -> _BuildFacts:
    """Return a function that returns what admission knows of the cluster for a pod of a namespace."""
    labels = snapshot.namespace_labels
    networks = None if "networks" in snapshot.unread else policies.read_networks(snapshot)
    nodes = snapshot.get_all("nodes")
    offered = frozenset(name for node in nodes for name in node.status.allocatable) if nodes else None
    return lambda namespace: facts.ClusterFacts(namespace, labels.get(namespace), networks, offered)


def _plan_workloads(
    snapshot: Snapshot, policy: model.Policy, build_facts: _BuildFacts
) -> Iterator[list[pod_changes.Audit]]:
    """Yield the outcomes of audit mode for the templates of each workload whose label is not in them.

    Audit mode does not copy the label, so that nothing marks the pods of such a workload.
    """
    for workload in _list_workloads(snapshot):
        known = build_facts(workload.metadata.namespace)
        outcomes = []
        for template in keys.list_unlabelled(workload):
            is_accelerated = template.is_job_accelerated(policy.document.accelerators)
            known = msgspec.structs.replace(known, job_accelerated=is_accelerated)
            title = f"{_format_name(workload)}: {template.title}"
            outcomes.append(plan.plan(template_plan.build_pod(template), policy, known, title))
        if audits := [outcome for outcome in outcomes if isinstance(outcome, pod_changes.Audit)]:
            yield audits


def _plan_pods(snapshot: Snapshot, policy: model.Policy, build_facts: _BuildFacts) -> Iterator[pod_changes.Audit]:
    """Yield the outcomes of audit mode for the running and pending pods that are not injected."""
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    for pod in [pod for pod in _list_pods(snapshot) if _is_candidate(pod, excluded)][:_MAX_PODS]:
        outcome = plan.plan(_undo_creation(pod), policy, build_facts(pod.metadata.namespace))
        if isinstance(outcome, pod_changes.Audit):
            yield outcome


def _is_candidate(pod: views.Pod, excluded: frozenset[str]) -> bool:
    """True for a live pod that admission covers and has not injected."""
    record = intent.read_record(pod)
    return (
        (record.rails is None or record.is_audit)
        and opt_in.is_covered(pod, excluded)
        and not pod.status.has_ended
        and pod.metadata.deletion_timestamp is None
    )


def _undo_creation(pod: views.Pod) -> views.Pod:
    """Return a pod as its creator would send it again: without a node, and without what admission and binding wrote."""
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key not in _WRITTEN}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=annotations)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


CHECKS: Checks = {
    "uninjected": _check_uninjected,
    "placed-without-extender": _check_placements,
    "refused": _check_rejected,
    "workload-keys": _check_keys,
    "audit-mode": _check_audit_mode,
}
