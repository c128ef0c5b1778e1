"""Explains why a pod gets no rails. Marks a template that gets none because other templates have the accelerators."""

from railwright.fabric import names
from railwright.fabric.injection import applied_pod, context, pod_changes, roles
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.admission_codes import AdmissionCode


def explain(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Record why a pod has no rails. Warn an author who selected containers for them."""
    cause = ctx.role.no_rails
    if cause is None:
        return pod_changes.EMPTY
    mark = _mark(pod) if ctx.role == roles.HELPER else ()
    user_value = pod.metadata.annotations.get(names.CONTAINERS)
    if user_value is None:
        return pod_changes.Contribution(changes=mark, skipped={"rails": cause})
    warning = reason.make(AdmissionCode.CONTAINERS_IGNORED, value=repr(user_value), cause=cause)
    return pod_changes.Contribution(changes=mark, skipped={"rails": cause}, warnings=(warning,))


def _mark(pod: applied_pod.AppliedPod) -> tuple[pod_changes.SetAnnotation, ...]:
    """Return the annotation that tells it to the admission of a template's pods, which sees no other template."""
    if names.RAILS in pod.metadata.annotations:
        return ()
    why = "the accelerators of the workload are in other templates, so these pods are no ranks"
    return (pod_changes.SetAnnotation(entry="", reason=why, key=names.RAILS, value=names.RAILS_NONE),)
