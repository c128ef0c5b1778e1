"""Warns of a pod that no node can hold: it requests more accelerators than a node of its fabric has."""

from railwright.fabric.injection import accelerators, applied_pod, context, pod_changes
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode


def check(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Warn of accelerators beyond `gpusPerNode`. Such a pod is not rejected: a larger node type may be added."""
    limit = ctx.fabric.gpus_per_node
    resources = ctx.document.accelerators
    count = accelerators.count_at_once(pod, resources) if limit is not None else 0
    if limit is None or count <= limit:
        return pod_changes.EMPTY
    warning = reason.make(
        AdmissionCode.GPUS_EXCEED_NODE,
        count=str(count),
        resource=" and ".join(resources),
        fabric=ctx.fabric_name,
        limit=str(limit),
    )
    return pod_changes.Contribution(warnings=(warning,))
