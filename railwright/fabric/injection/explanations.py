"""Explains why a pod gets no rails, or rails that it can hardly use, and that its topology was dropped.

Marks a template that gets none because other templates have the accelerators.
"""

from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import applied_pod, context, pod_changes, roles
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import kubernetes

_REQUESTS = (names.RAILS, names.CONTAINERS)  # annotations by which an author says that rails are meant


def explain_missing_rails(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Record why a pod has no rails. Warn an author who selected containers for them, or who needs no rails."""
    cause = ctx.role.no_rails
    if cause is None:
        return _warn_without_accelerators(pod, ctx)
    mark = _mark(pod) if ctx.role == roles.HELPER else ()
    user_value = pod.metadata.annotations.get(names.CONTAINERS)
    if user_value is None:
        return pod_changes.Contribution(changes=mark, skipped={"rails": cause})
    warning = reason.make(AdmissionCode.CONTAINERS_IGNORED, value=repr(user_value), cause=cause)
    return pod_changes.Contribution(changes=mark, skipped={"rails": cause}, warnings=(warning,))


def _mark(pod: applied_pod.AppliedPod) -> tuple[pod_changes.SetAnnotation, ...]:
    """Return the annotation that marks a template without rails: the admission of its pods sees no other template."""
    if names.RAILS in pod.metadata.annotations:
        return ()
    why = "the accelerators of the workload are in other templates, so these pods are no ranks"
    return (pod_changes.SetAnnotation(entry="", reason=why, key=names.RAILS, value=names.RAILS_NONE),)


def _warn_without_accelerators(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    if ctx.accelerated or not ctx.rails or any(key in pod.metadata.annotations for key in _REQUESTS):
        return pod_changes.EMPTY
    warning = reason.make(
        AdmissionCode.RAILS_WITHOUT_ACCELERATORS,
        accelerators=", ".join(ctx.document.accelerators),
        rails=text.format_count(len(ctx.rails), "rail"),
        fabric=ctx.fabric_name,
    )
    return pod_changes.Contribution(warnings=(warning,))


# --- a topology that the API server has dropped (docs/interface.md 5.2) -----------------------------------


def warn_of_dropped_topology(pod: applied_pod.AppliedPod, _: context.InjectionContext) -> pod_changes.Contribution:
    """Warn if a pod of a Job with `spec.scheduling` is in no PodGroup: without its gates the API drops the field."""
    if not is_topology_dropped(pod):
        return pod_changes.EMPTY
    job = pod.metadata.labels[kubernetes.JOB]
    dropped = reason.make(AdmissionCode.TOPOLOGY_DROPPED, field="spec.scheduling", job=job)
    return pod_changes.Contribution(skipped={"topology": dropped}, warnings=(dropped,))


def is_topology_dropped(pod: views.Pod) -> bool:
    """True for a pod of a Job whose `spec.scheduling` was written, if the pod is in no PodGroup."""
    # a template has no such label
    if kubernetes.JOB not in pod.metadata.labels or pod.spec.scheduling_group is not None:
        return False
    return intent.JOB_SCHEDULING in intent.read_topology(pod).fields
