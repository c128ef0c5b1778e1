"""Notices that the API server has dropped the topology of a Job (docs/interface.md 5.2)."""

from railwright.fabric import topology_record
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import kubernetes


def verify(pod: applied_pod.AppliedPod, _: context.InjectionContext) -> pod_changes.Contribution:
    """Warn if a pod of a Job with `spec.scheduling` is in no PodGroup: without its gates the API drops the field."""
    job = pod.metadata.labels.get(kubernetes.JOB)  # only its controller's pods: a template has no such label
    if job is None or pod.spec.scheduling_group is not None:
        return pod_changes.EMPTY
    if topology_record.JOB_SCHEDULING not in topology_record.read(pod).fields:
        return pod_changes.EMPTY
    dropped = reason.make(AdmissionCode.TOPOLOGY_DROPPED, field="spec.scheduling", job=job)
    return pod_changes.Contribution(skipped={"topology": dropped}, warnings=(dropped,))
