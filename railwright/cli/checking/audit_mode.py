"""Check of fabrics in audit mode: what would change for the existing pods if they were created again and enforced."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from railwright.cli.checking import check_rows, snapshots, webhook_configurations
from railwright.cli.checking.check_rows import ok, skip, warn
from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import facts, missed, plan, pod_changes
from railwright.fabric.policy import model as documents

_MAX_PODS = 5000  # planned; each takes a third of a millisecond
# written by railwright or at binding; a pod that is created again has none of them
_WRITTEN = (names.INJECTION, names.PLACEMENT, names.NCCL_CONF, names.UCX_NET_DEVICES)
_FINISHED = frozenset({"Succeeded", "Failed"})


def _check_audit_mode(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
    policy = snapshot.policy_result
    if not isinstance(policy, documents.Policy):
        yield skip("there is no valid policy")
        return
    fabrics = [name for name in policy.document.fabrics if intent.is_in_audit(policy.document, name)]
    if not fabrics:
        yield ok("no fabric is in audit mode")
        return
    outcomes: dict[str, list[pod_changes.Audit]] = {name: [] for name in fabrics}
    for outcome in _plan_pods(snapshot, policy):
        outcomes.setdefault(outcome.fabric, []).append(outcome)
    for name, audits in outcomes.items():
        subject = name or "other labels"
        yield warn(_describe(audits), subject=subject)


def _describe(audits: list[pod_changes.Audit]) -> str:
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


def _plan_pods(snapshot: snapshots.ClusterSnapshot, policy: documents.Policy) -> Iterator[pod_changes.Audit]:
    """Yield the outcomes of audit mode for the running and pending pods that are not injected."""
    labels = {
        snapshots.get_name(item): snapshots.get_map(item, "metadata", "labels")
        for item in snapshot.get_all("namespaces")
    }
    excluded = webhook_configurations.find_excluded_namespaces(snapshot)
    networks = None if "networks" in snapshot.unread else _read_networks(snapshot)
    nodes = snapshot.get_all("nodes")
    offered = frozenset(name for node in nodes for name in node.status.allocatable) if nodes else None
    unlabelled = (pod for pod in snapshot.namespaced_pods if names.FABRIC not in pod.metadata.labels)
    pods = [pod for pod in (*snapshot.get_all("pods"), *unlabelled) if _is_candidate(pod, excluded)]
    for pod in pods[:_MAX_PODS]:
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
