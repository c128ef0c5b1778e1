"""Finds pods whose rails come as claims (Dynamic Resource Allocation), and brings them to the schedulers' extender.

A pod has claims of its own, or requests extended resources that a DeviceClass maps; kube-scheduler makes a claim of
these.
"""

from railwright.fabric import names, views
from railwright.fabric.claims import objects
from railwright.fabric.injection import accelerators, applied_pod, context, pod_changes


def request_call(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the limit that makes the schedulers call the extender.

    They call it for pods that name a managed resource. A pod with claims alone names none, so it gets a limit of "0".
    """
    if not ctx.role.rails or not has_claims_alone(pod, ctx) or _names_call(pod):
        return pod_changes.EMPTY
    reason = "kube-scheduler and Volcano call the extender only for pods that name a managed resource"
    change = pod_changes.AddResource(
        entry="", reason=reason, container=ctx.targets[0], resource=names.MANAGED_RESOURCE, quantity=0
    )
    return pod_changes.Contribution(changes=(change,))


def has_claimed_rails(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if the pod's rails come as claims, or may do so on some nodes."""
    if not ctx.role.rails:
        return False
    resources, extended = ctx.selected.resources, ctx.known.extended
    return (
        (bool(extended) and not resources.isdisjoint(extended or ()))
        or any(resource.startswith(objects.IMPLICIT_RESOURCE_PREFIX) for resource in resources)
        or has_claims_alone(pod, ctx)
    )


def has_claims_alone(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if target containers use claims, and no container requests the rails of the pod as extended resources."""
    containers = pod.spec.containers
    return any(accelerators.uses_claims(containers[index]) for index in ctx.targets) and not any(
        accelerators.read_amount(container, resource) for resource in ctx.selected.resources for container in containers
    )


def _names_call(pod: views.Pod) -> bool:
    return any(accelerators.mentions(container, names.MANAGED_RESOURCE) for container in pod.spec.containers)
