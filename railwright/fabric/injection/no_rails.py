"""Explains why a pod gets no rails. Changes nothing."""

from railwright.fabric import names
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.admission_codes import AdmissionCode


def explain(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Record why a pod has no rails. Warn an author who selected containers for them."""
    cause = ctx.role.no_rails
    if cause is None:
        return pod_changes.EMPTY
    user_value = pod.metadata.annotations.get(names.CONTAINERS)
    if user_value is None:
        return pod_changes.Contribution(skipped={"rails": cause})
    warning = reason.make(AdmissionCode.CONTAINERS_IGNORED, value=repr(user_value), cause=cause)
    return pod_changes.Contribution(skipped={"rails": cause}, warnings=(warning,))
