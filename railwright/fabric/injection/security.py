"""What the chosen containers are granted: capabilities, and privilege where the policy needs it (ruling 16).

Owns the order of objections: the container's own words, then the namespace's pod-security level.
"""

from collections.abc import Iterator

from railwright.fabric import names, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import model, pod_security

_LOCK = "IPC_LOCK"
_NO_CONTEXT = views.SecurityContext()
_NO_CAPABILITIES = views.Capabilities()


def grant(aim: aims.Aim) -> model.Part:
    """The grants of the policy. Raises RefusedError."""
    wanted = aim.fabric.security
    if not aim.role.rails or not (wanted.capabilities or wanted.privileged):
        return model.NOTHING
    if "security" in aim.wishes.skip:
        return model.Part(skipped={"security": f"by annotation {names.SKIP}"})
    level = pod_security.level(aim.known)
    changes: list[model.AnyChange] = []
    entries, warnings, skipped = [], [], {}
    for capability in dict.fromkeys(wanted.capabilities):
        entry = f"security.{capability}"
        if not pod_security.allows(level, capability):
            skipped[entry] = f"pod-security level {level}"
            warnings.append(
                _forbidden(aim, level, f"capability {capability}") + f": it is not added; {pod_security.ELSEWHERE}"
            )
            continue
        dropping = [aim.container(index).name for index in aim.targets if _drops(aim, index, capability)]
        warnings += [_dropped(aim, name, capability) for name in dropping]
        if len(dropping) == len(aim.targets):
            skipped[entry] = f"container {model.listed(dropping)} drops it"
            continue
        changes += _capability(aim, capability, entry)
        entries.append(entry)
        if capability == _LOCK:
            warnings += _without_effect(aim)
    if wanted.privileged and (refused := _privileged_refused(aim, level)):
        skipped["security.privileged"] = f"pod-security level {level}"
        warnings.append(refused)
    elif wanted.privileged:
        changes += _privileged(aim)
        entries.append("security.privileged")
    return model.Part(tuple(changes), tuple(entries), tuple(warnings), skipped=skipped)


def _capability(aim: aims.Aim, capability: str, entry: str) -> Iterator[model.AddCapability]:
    for index in aim.targets:
        there = {capability, f"CAP_{capability}", "ALL"} & set(_capabilities(aim, index).add or ())
        if not there and not _drops(aim, index, capability):
            reason = f"fabric {aim.fabric_name} registers memory with the NIC"
            yield model.AddCapability(entry=entry, reason=reason, container=index, capability=capability)


def _without_effect(aim: aims.Aim) -> Iterator[str]:
    """The warning where the kernel does not honour IPC_LOCK, so that only the runtime's own limit counts.

    It asks for the capability in the host's user namespace (mm/mlock.c, can_do_mlock), and processes that are not root
    do not have what a container is granted: Kubernetes sets no ambient capabilities.
    """
    if aim.pod.spec.host_users is False:
        yield (
            f"spec.hostUsers is false: {_LOCK} has no effect in a user namespace, and NCCL may fail to register "
            "memory; remove hostUsers, or ask the operator for LimitMEMLOCK=infinity of the container runtime"
        )
        return
    granted = [index for index in aim.targets if not _drops(aim, index, _LOCK)]
    others = [aim.container(index).name for index in granted if not aim.runs_as_root(index)]
    if others:
        yield (
            f"container {model.some(others)} does not run as root: {_LOCK} has no effect, and NCCL may fail to "
            "register memory; run it as root, or ask the operator for LimitMEMLOCK=infinity of the container runtime"
        )


def _drops(aim: aims.Aim, index: int, capability: str) -> bool:
    """True where a container drops the capability by name: its author means it."""
    return not {capability, f"CAP_{capability}"}.isdisjoint(_capabilities(aim, index).drop or ())


def _dropped(aim: aims.Aim, container: str, capability: str) -> str:
    return (
        f"container {container}: remove {capability} from securityContext.capabilities.drop if NCCL is to register "
        f"memory with the NIC; fabric {aim.fabric_name} does not add what a container drops by name"
    )


def _privileged_refused(aim: aims.Aim, level: str | None) -> str | None:
    """The warning where privilege is left out. Raises RefusedError where the fabric cannot work without."""
    if level is None:
        return None
    problem = _forbidden(aim, level, "privileged")
    if pod_security.only_way(aim):
        raise model.RefusedError(
            "pod-security",
            f"{problem}, and it is the only way to the devices of fabric {aim.fabric_name}; "
            "run the pod in a privileged namespace or name a device-plugin resource in the policy",
        )
    return f"{problem}: it is not set; {pod_security.ELSEWHERE}"


def _privileged(aim: aims.Aim) -> Iterator[model.SetPrivileged]:
    for index in aim.targets:
        container = aim.container(index)
        context = container.security_context or _NO_CONTEXT
        if context.privileged:
            continue
        for key, value in (
            ("privileged", context.privileged),
            ("allowPrivilegeEscalation", context.allow_privilege_escalation),
        ):
            if value is False:
                raise model.RefusedError(
                    "security",
                    f"container {container.name}: securityContext.{key} is false, and fabric {aim.fabric_name} needs "
                    f"a privileged container; remove it or use another fabric",
                )
        reason = f"fabric {aim.fabric_name} has no other way to its devices"
        yield model.SetPrivileged(entry="security.privileged", reason=reason, container=index)


def _forbidden(aim: aims.Aim, level: str | None, what: str) -> str:
    return f"namespace {aim.known.namespace} enforces pod-security level {level}, which forbids {what}"


def _capabilities(aim: aims.Aim, index: int) -> views.Capabilities:
    return (aim.container(index).security_context or _NO_CONTEXT).capabilities or _NO_CAPABILITIES
