"""The check before NCCL starts, as an init container (`railwright preflight`).

Owns whether there is one, and how ours is told from a user's container of its name. What is in it is
`preflight_container`'s.
"""

from collections.abc import Sequence

from railwright.fabric import names, networks, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import model, preflight_container


def check(aim: aims.Aim, selections: Sequence[networks.Selection], so_far: Sequence[model.Part]) -> model.Part:
    """The init container, behind those the pod has; `so_far` is what the other concerns do. Raises RefusedError."""
    if not aim.role.rails:
        return model.NOTHING
    if why := _why_not(aim, so_far):
        return model.Part(skipped={"preflight": why})
    if any(_is_ours(each) for each in aim.pod.spec.init_containers or ()):
        return model.Part(entries=("preflight",))
    _check_name(aim)
    change = model.AddInitContainer(
        entry="preflight",
        reason=f"a rail of fabric {aim.fabric_name} that does not work stops the pod before NCCL crawls over TCP",
        init_container=preflight_container.build(aim, selections, so_far),
    )
    return model.Part(changes=(change,), entries=("preflight",))


def _why_not(aim: aims.Aim, so_far: Sequence[model.Part]) -> str:
    if "preflight" in aim.wishes.skip:
        return f"by annotation {names.SKIP}"
    if not aim.fabric.preflight.enabled:
        return "disabled by policy"
    if not aim.rails:
        return "no rails"
    if "devices" in aim.wishes.skip and not preflight_container.has_devices(aim, so_far):
        return f"annotation {names.SKIP} leaves out the devices that it would check"
    return ""


def _is_ours(container: views.InitContainer) -> bool:
    """By name and program: defaults of the API server and other webhooks may have touched the rest."""
    program = tuple((container.command or ())[: len(preflight_container.PROGRAM)])
    return container.name == names.PREFLIGHT_CONTAINER and program == preflight_container.PROGRAM


def _check_name(aim: aims.Aim) -> None:
    spec = aim.pod.spec
    for place, there in (("initContainers", spec.init_containers or ()), ("containers", spec.containers)):
        if any(each.name == names.PREFLIGHT_CONTAINER for each in there):
            raise model.RefusedError(
                "preflight",
                f"spec.{place} has a container named {names.PREFLIGHT_CONTAINER}, which is railwright's name; "
                f"rename it, or set annotation {names.SKIP} to preflight",
            )
