"""Explains why a pod gets no rails. Changes nothing."""

from railwright.fabric import names, text
from railwright.fabric.injection import applied_pod, context, pod_changes


def explain(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Record why a pod has no rails. Warn an author who selected containers for them."""
    if ctx.role.rails:
        return pod_changes.EMPTY
    user_value = pod.metadata.annotations.get(names.CONTAINERS)
    warnings = []
    if user_value is not None:
        warnings.append(
            f"annotation {names.CONTAINERS} {text.join_fitting([repr(user_value)])} has no effect: "
            f"{ctx.role.reason}; if a container is a rank, request an accelerator in it"
        )
    return pod_changes.Contribution(skipped={"rails": ctx.role.reason}, warnings=tuple(warnings))
