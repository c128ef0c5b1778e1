"""Check of fabrics in audit mode: what would change for the existing pods if they were created again and enforced."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from railwright.cli.checking import check_rows, snapshots, webhook_configurations, workloads
from railwright.cli.checking.check_rows import ok, skip, warn
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import facts, missed, plan, pod_changes, template_plan
from railwright.fabric.policy import model as documents

_MAX_PODS = 5000  # planned; each takes a third of a millisecond
# written by railwright or at binding; a pod that is created again has none of them
_WRITTEN = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF, names.UCX_NET_DEVICES)
_FINISHED = frozenset({"Succeeded", "Failed"})
_BuildFacts = Callable[[str], facts.ClusterFacts]


class _Audits(NamedTuple):
    """Outcomes of one fabric: of each pod, and of the templates of each workload."""

    pods: list[pod_changes.Audit]
    workloads: list[list[pod_changes.Audit]]


def _check_audit_mode(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
    policy = snapshot.policy_result
    if not isinstance(policy, documents.Policy):
        yield skip("there is no valid policy")
        return
    fabrics = [name for name in policy.document.fabrics if intent.is_in_audit(policy.document, name)]
    if not fabrics:
        yield ok("no fabric is in audit mode")
        return
    build_facts = _prepare_facts(snapshot)
    audits = {name: _Audits([], []) for name in fabrics}
    for outcome in _plan_pods(snapshot, policy, build_facts):
        audits.setdefault(outcome.fabric, _Audits([], [])).pods.append(outcome)
    for outcomes in _plan_workloads(snapshot, policy, build_facts):
        audits.setdefault(outcomes[0].fabric, _Audits([], [])).workloads.append(outcomes)
    for name, planned in audits.items():
        yield warn(_describe(planned), subject=name or "other labels")


def _describe(planned: _Audits) -> str:
    """Return what enforcing would do to pods and workloads, with an example of each rejection."""
    if not planned.pods and not planned.workloads:
        return "audit: no pod of now would change"
    parts = []
    if planned.pods:
        pods = text.format_count(len(planned.pods), "pod")
        changed = sum(map(_is_changed, planned.pods))
        parts.append(f"of {pods} of now, created again, {changed} would be injected")
    if planned.workloads:
        workloads_of_now = text.format_count(len(planned.workloads), "workload")
        changed = sum(any(map(_is_changed, outcomes)) for outcomes in planned.workloads)
        parts.append(
            f"of {workloads_of_now} with the label only on the workload, created again, {changed} would be injected"
        )
    refusals = [audit.refusal for audit in (*planned.pods, *itertools.chain(*planned.workloads)) if audit.refusal]
    counts = Counter(refusal.reason for refusal in refusals)
    examples = {refusal.reason: refusal.message for refusal in reversed(refusals)}
    parts += [f"{count} rejected ({code}), such as {examples[code]}" for code, count in counts.most_common(3)]
    return f"audit: {'; '.join(parts)}"


def _is_changed(audit: pod_changes.Audit) -> bool:
    return audit.injection is not None and len(audit.injection.changes) > len(audit.changes)


def _prepare_facts(snapshot: snapshots.ClusterSnapshot) -> _BuildFacts:
    """Return a function that returns what admission knows of the cluster for a pod of a namespace."""
    labels = {
        snapshots.get_name(item): snapshots.get_map(item, "metadata", "labels")
        for item in snapshot.get_all("namespaces")
    }
    networks = None if "networks" in snapshot.unread else _read_networks(snapshot)
    nodes = snapshot.get_all("nodes")
    offered = frozenset(name for node in nodes for name in node.status.allocatable) if nodes else None
    return lambda namespace: facts.ClusterFacts(namespace, labels.get(namespace), networks, offered)


def _plan_workloads(
    snapshot: snapshots.ClusterSnapshot, policy: documents.Policy, build_facts: _BuildFacts
) -> Iterator[list[pod_changes.Audit]]:
    """Yield the outcomes of audit mode for the templates of each workload whose label is not in them.

    Audit mode does not copy the label, so that nothing marks the pods of such a workload.
    """
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    for source, kind in workloads.KINDS.items():
        for body in snapshot.get_all(source):
            workload = workloads.read_live(kind, body, excluded)
            if workload is None:
                continue
            name = f"{kind.name} {workload.metadata.namespace}/{workload.metadata.name}"
            outcomes = [
                plan.plan(
                    template_plan.build_pod(template),
                    policy,
                    msgspec.structs.replace(
                        build_facts(workload.metadata.namespace),
                        job_accelerated=template.is_job_accelerated(policy.document.accelerators),
                    ),
                    f"{name}: {template.title}",
                )
                for template in workloads.list_unlabelled(workload)
            ]
            if audits := [outcome for outcome in outcomes if isinstance(outcome, pod_changes.Audit)]:
                yield audits


def _plan_pods(
    snapshot: snapshots.ClusterSnapshot, policy: documents.Policy, build_facts: _BuildFacts
) -> Iterator[pod_changes.Audit]:
    """Yield the outcomes of audit mode for the running and pending pods that are not injected."""
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    unlabelled = (pod for pod in snapshot.namespaced_pods if names.FABRIC not in pod.metadata.labels)
    pods = [pod for pod in (*snapshot.get_all("pods"), *unlabelled) if _is_candidate(pod, excluded)]
    for pod in pods[:_MAX_PODS]:
        outcome = plan.plan(_undo_creation(pod), policy, build_facts(pod.metadata.namespace))
        if isinstance(outcome, pod_changes.Audit):
            yield outcome


def _is_candidate(pod: views.Pod, excluded: frozenset[str]) -> bool:
    """True for a live pod that admission covers and has not injected."""
    record = intent.read_record(pod)
    return (
        (record.rails is None or record.is_audit)
        and missed.is_covered(pod, excluded)
        and pod.status.phase not in _FINISHED
        and pod.metadata.deletion_timestamp is None
    )


def _undo_creation(pod: views.Pod) -> views.Pod:
    """Return a pod as its creator would send it again: without a node, and without what admission and binding wrote."""
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key not in _WRITTEN}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=annotations)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _read_networks(snapshot: snapshots.ClusterSnapshot) -> Mapping[tuple[str, str], str | None]:
    """Return each network with the resource that its annotation names."""
    networks: dict[tuple[str, str], str | None] = {}
    for item in snapshot.get_all("networks"):
        metadata = snapshots.get_map(item, "metadata")
        resource = (metadata.get("annotations") or {}).get(names.NAD_RESOURCE_NAME)
        networks[str(metadata.get("namespace")), str(metadata.get("name"))] = resource
    return networks


CHECKS: check_rows.Checks = {
    "audit-mode": _check_audit_mode,
}
