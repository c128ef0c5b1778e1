"""Notices that the API server has dropped the topology of a Job (docs/interface.md 5.2)."""

from railwright.fabric import topology_record, views
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import kubernetes


def verify(pod: applied_pod.AppliedPod, _: context.InjectionContext) -> pod_changes.Contribution:
    """Warn if a pod of a Job with `spec.scheduling` is in no PodGroup: without its gates the API drops the field."""
    if not is_dropped(pod):
        return pod_changes.EMPTY
    job = pod.metadata.labels[kubernetes.JOB]
    dropped = reason.make(AdmissionCode.TOPOLOGY_DROPPED, field="spec.scheduling", job=job)
    return pod_changes.Contribution(skipped={"topology": dropped}, warnings=(dropped,))


def is_dropped(pod: views.Pod) -> bool:
    """True for a pod of a Job whose `spec.scheduling` was written, if the pod is in no PodGroup."""
    if (
        kubernetes.JOB not in pod.metadata.labels or pod.spec.scheduling_group is not None
    ):  # a template has no such label
        return False
    return topology_record.JOB_SCHEDULING in topology_record.read(pod).fields
