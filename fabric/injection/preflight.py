"""The check before NCCL starts, as an init container.

Owns whether it is asked for. This version has no such container; the record says so.
"""

from fabric import names
from fabric.injection import aim as aims
from fabric.injection import model


def check(aim: aims.Aim) -> model.Part:
    """Says in the record why there is no preflight."""
    if not aim.role.rails:
        return model.NOTHING
    if "preflight" in aim.wishes.skip:
        return model.Part(skipped={"preflight": f"by annotation {names.SKIP}"})
    why = "not in this version" if aim.fabric.preflight.enabled else "disabled by policy"
    return model.Part(skipped={"preflight": why})
