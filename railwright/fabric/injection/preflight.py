"""Adds the init container that checks the rails before NCCL starts (`railwright preflight`).

`preflight_container` builds the container.
"""

from railwright.fabric import names, views
from railwright.fabric.injection import (
    applied_pod,
    claimed_rails,
    context,
    mounts,
    pod_changes,
    preflight_container,
    user_options,
)
from railwright.fabric.reasons import reason, rejections
from railwright.fabric.reasons.codes import AdmissionCode

_DISABLED = reason.make(AdmissionCode.DISABLED_BY_POLICY)
_NO_RAILS = reason.make(AdmissionCode.NO_RAILS)
_NO_DEVICES = reason.make(AdmissionCode.PREFLIGHT_WITHOUT_DEVICES)


def add_init_container(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Append the init container. Raises RefusedError."""
    if not ctx.role.rails:
        return pod_changes.EMPTY
    if skip_reason := _find_skip_reason(pod, ctx):
        return pod_changes.Contribution(skipped={"preflight": skip_reason})
    if any(_is_ours(container) for container in pod.spec.init_containers or ()):
        return pod_changes.Contribution(entries=("preflight",))
    _check_name(pod)
    change = pod_changes.AddInitContainer(
        entry="preflight",
        reason=f"stops the pod if a rail of fabric {ctx.fabric_name} does not work, before NCCL runs over TCP",
        init_container=preflight_container.build(pod, ctx),
    )
    volumes = mounts.add_volume(pod, mounts.PLACEMENT_FILE) if claimed_rails.has_claimed_rails(pod, ctx) else ()
    return pod_changes.Contribution(changes=(*volumes, change), entries=("preflight",))


def _find_skip_reason(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> reason.Reason | None:
    """Return the reason why the pod gets no preflight, None if it gets one."""
    if "preflight" in ctx.options.skip:
        return user_options.SKIPPED
    if not ctx.fabric.preflight.enabled:
        return _DISABLED
    if not ctx.rails:
        return _NO_RAILS
    if "devices" in ctx.options.skip and not preflight_container.has_devices(pod, ctx):
        return _NO_DEVICES
    return None


def _is_ours(container: views.InitContainer) -> bool:
    """True if railwright added the container.

    Compares name and program: the API server and webhooks change the rest.
    """
    program = tuple((container.command or ())[: len(preflight_container.PROGRAM)])
    return container.name == names.PREFLIGHT_CONTAINER and program == preflight_container.PROGRAM


def _check_name(pod: applied_pod.AppliedPod) -> None:
    """Raise RefusedError if the user has a container with the preflight's name."""
    spec = pod.spec
    for field, containers in (("initContainers", spec.init_containers or ()), ("containers", spec.containers)):
        if any(container.name == names.PREFLIGHT_CONTAINER for container in containers):
            raise rejections.RefusedError(
                "preflight",
                f"spec.{field} has a container named {names.PREFLIGHT_CONTAINER}, which is railwright's name; "
                f"rename it, or set annotation {names.SKIP} to preflight",
            )
