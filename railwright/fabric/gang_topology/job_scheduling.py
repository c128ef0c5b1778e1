"""The outlet for Jobs of kube-scheduler: the field `spec.scheduling` (batch/v1, Kubernetes 1.37).

The Job controller makes a PodGroup from it, and kube-scheduler places all pods of the group in one domain of the key,
or none. The field is immutable, also whether it is set. An API server whose feature gate WorkloadWithJob is off drops
it without an error; `railwright.fabric.injection.explanations` notices that by the pods.
"""

from railwright.fabric import topology_record
from railwright.fabric.gang_topology import requests
from railwright.fabric.gang_topology.writings import Context, Writing
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

API = "scheduling.k8s.io/v1beta1"  # API of the PodGroups that the Job controller makes


def write(context: Context) -> Writing | reason.Reason:
    """Return the field with the key of the lowest level that holds the gang: the constraint is always a hard one."""
    if cause := _find_obstacle(context):
        return cause
    request = context.request
    if not request.is_required:
        return reason.make(AdmissionCode.TOPOLOGY_HARD_ONLY, field="spec.scheduling")
    level = request.find_lowest(requests.is_label)
    if isinstance(level, reason.Reason):
        return level
    value = {
        "schedulingPolicy": {"gang": {}},  # all pods of the Job at once: minCount is its parallelism
        "schedulingConstraints": {"topology": [{"key": level.key}]},
    }
    return Writing(level.key, {topology_record.JOB_SCHEDULING: value})


def _find_obstacle(context: Context) -> reason.Reason | None:
    """Return why the Job controller would make no PodGroup, or one that does not suit the Job."""
    if context.get("spec", "scheduling") is not None:
        return reason.make(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="spec.scheduling")
    if context.get("spec", "template", "spec", "schedulingGroup") is not None:
        return reason.make(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="spec.template.spec.schedulingGroup")
    # job_scheduling_manager.go, getManagementMode: no PodGroup for a Job with a controller
    if cause := context.find_owner("spec.scheduling") or context.find_later_pods():
        return cause
    if context.cluster.served is None or API not in context.cluster.served:
        return reason.make(AdmissionCode.TOPOLOGY_NOT_SERVED, api=API)
    return None
