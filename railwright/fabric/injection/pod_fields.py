"""Sets what a fabric needs of a pod itself: fields of its spec, and privileges of the target containers.

The fields are host network, DNS policy, runtime class and tolerations. A value that the pod has itself is left
unchanged (docs/interface.md 3). The API server writes `dnsPolicy: ClusterFirst` into pods without one and leaves out
`hostNetwork: false`, so these count as unset.
"""

from collections.abc import Iterator

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import applied_pod, context, facts, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_UNSET = ("", None, False, "ClusterFirst")
_HOST_DNS = "ClusterFirstWithHostNet"


def set_fields(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the fields of the policy. Raises RefusedError if the namespace forbids the host network."""
    settings = ctx.fabric.pod
    if not ctx.role.rails or settings == policies.PodFields():
        return pod_changes.EMPTY
    if "pod" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"pod": context.SKIPPED})
    if settings.host_network and (level := facts.find_level(ctx.known)):
        problem = facts.format_problem(ctx.known, level, "hostNetwork")
        message = f"{problem}, and fabric {ctx.fabric_name} is used there only; run the pod in a privileged namespace"
        raise reasons.RefusedError("pod-security", message)
    contributions = [_set_field(pod, ctx, name, value) for name, value in list_values(settings) if value]
    contributions += [_add_toleration(pod, ctx, toleration) for toleration in settings.tolerations]
    return pod_changes.merge(contributions)


def list_values(settings: policies.PodFields) -> tuple[tuple[str, str | bool | None], ...]:
    """Return the fields with one value: their names in the view of spec, and the values of the policy."""
    dns_policy = settings.dns_policy or (_HOST_DNS if settings.host_network else None)
    return (
        ("host_network", settings.host_network),
        ("dns_policy", dns_policy),
        ("runtime_class_name", settings.runtime_class_name),
    )


def _set_field(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, name: str, value: pod_changes.FieldValue
) -> pod_changes.Contribution:
    current = getattr(pod.spec, name)
    change = pod_changes.SetField(
        entry=f"pod.{pod_changes.FIELDS[name]}",
        reason=f"fabric {ctx.fabric_name} sets it for its pods",
        name=name,
        value=value,
    )
    if current == value:
        return pod_changes.Contribution(entries=(change.entry,))
    if current not in _UNSET:
        own = reasons.make(AdmissionCode.FIELD_OF_POD, field=pod_changes.FIELDS[name], value=str(current))
        return pod_changes.Contribution(skipped={change.entry: own})
    return pod_changes.Contribution((change,), (change.entry,))


def _add_toleration(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, toleration: policies.PodToleration
) -> pod_changes.Contribution:
    written = {name: text for name, text in msgspec.structs.asdict(toleration).items() if text}
    change = pod_changes.AddToleration(
        entry=f"pod.tolerations.{toleration.key}",
        reason=f"nodes of fabric {ctx.fabric_name} have this taint",
        added=written,
    )
    has_it = views.Toleration(**written) in (pod.spec.tolerations or ())
    return pod_changes.Contribution(() if has_it else (change,), (change.entry,))


# --- capabilities and privilege (docs/interface.md 3.4) ------------------------------------------------

# Settings of the container itself are checked before the pod-security level of the namespace.
_LOCK = "IPC_LOCK"
_NO_CONTEXT = views.SecurityContext()
_NO_CAPABILITIES = views.Capabilities()


def grant(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Return the capabilities and the privilege of the policy. Raises RefusedError."""
    settings = ctx.fabric.security
    if not ctx.role.rails or not (settings.capabilities or settings.privileged):
        return pod_changes.EMPTY
    if "security" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"security": context.SKIPPED})
    level = facts.find_level(ctx.known)
    changes: list[pod_changes.Change] = []
    record_entries: list[str] = []
    warnings: list[reasons.Reason] = []
    skipped: dict[str, reasons.Reason] = {}
    for capability in dict.fromkeys(settings.capabilities):
        entry = f"security.{capability}"
        if not facts.allows(level, capability):
            skipped[entry] = facts.explain_level(ctx.known, level, f"capability {capability}")
            warnings.append(skipped[entry])
            continue
        dropping_containers = [pod.container(index).name for index in ctx.targets if _drops(pod, index, capability)]
        warnings += [_explain_drop(ctx, (name,), capability) for name in dropping_containers]
        if len(dropping_containers) == len(ctx.targets):
            skipped[entry] = _explain_drop(ctx, tuple(dropping_containers), capability)
            continue
        changes += _add_capability(pod, ctx, capability, entry)
        record_entries.append(entry)
        if capability == _LOCK:
            warnings += _warn_without_effect(pod, ctx)
    if settings.privileged and (warning := _check_privileged_allowed(ctx, level)):
        skipped["security.privileged"] = warning
        warnings.append(warning)
    elif settings.privileged:
        changes += _set_privileged(pod, ctx)
        record_entries.append("security.privileged")
    return pod_changes.Contribution(tuple(changes), tuple(record_entries), tuple(warnings), skipped=skipped)


def _add_capability(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, capability: str, entry: str
) -> Iterator[pod_changes.AddCapability]:
    for index in ctx.targets:
        equivalent = {capability, f"CAP_{capability}", "ALL"} & set(_get_capabilities(pod, index).add or ())
        if not equivalent and not _drops(pod, index, capability):
            reason = f"fabric {ctx.fabric_name} registers memory with the NIC"
            yield pod_changes.AddCapability(entry=entry, reason=reason, container=index, capability=capability)


def _warn_without_effect(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Iterator[reasons.Reason]:
    """Warn if the kernel ignores IPC_LOCK, so that only the runtime's own limit applies.

    The kernel checks the capability in the host's user namespace (mm/mlock.c, can_do_mlock). A process that is not root
    does not have the container's capabilities, because Kubernetes sets no ambient capabilities.
    """
    if pod.spec.host_users is False:
        yield reasons.make(AdmissionCode.LOCKING_IN_USER_NAMESPACE, capability=_LOCK)
        return
    granted = [index for index in ctx.targets if not _drops(pod, index, _LOCK)]
    non_root = [pod.container(index).name for index in granted if not pod.runs_as_root(index)]
    if non_root:
        yield reasons.make(AdmissionCode.LOCKING_WITHOUT_ROOT, containers=tuple(non_root), capability=_LOCK)


def _drops(pod: applied_pod.AppliedPod, index: int, capability: str) -> bool:
    """True if a container drops the capability by name. This is its author's decision."""
    dropped = _get_capabilities(pod, index).drop
    return dropped is not None and not {capability, f"CAP_{capability}"}.isdisjoint(dropped)


def _explain_drop(ctx: context.InjectionContext, containers: tuple[str, ...], capability: str) -> reasons.Reason:
    return reasons.make(
        AdmissionCode.CAPABILITY_DROPPED, containers=containers, capability=capability, fabric=ctx.fabric_name
    )


def _check_privileged_allowed(ctx: context.InjectionContext, level: str | None) -> reasons.Reason | None:
    """Return the warning if privilege is left out. Raises RefusedError if the fabric cannot work without it."""
    if level is None:
        return None
    if ctx.needs_privilege:
        raise reasons.RefusedError(
            "pod-security",
            f"{facts.format_problem(ctx.known, level, 'privileged')}, and it is the only way to the devices of "
            f"fabric {ctx.fabric_name}; run the pod in a privileged namespace or name a device-plugin resource in the "
            "policy",
        )
    return facts.explain_level(ctx.known, level, "privileged")


def _set_privileged(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Iterator[pod_changes.SetPrivileged]:
    for index in ctx.targets:
        container = pod.container(index)
        container_context = container.security_context or _NO_CONTEXT
        if container_context.privileged:
            continue
        for key, value in (
            ("privileged", container_context.privileged),
            ("allowPrivilegeEscalation", container_context.allow_privilege_escalation),
        ):
            if value is False:
                raise reasons.RefusedError(
                    "security",
                    f"container {container.name}: securityContext.{key} is false, and fabric {ctx.fabric_name} needs "
                    "a privileged container; remove it or use another fabric",
                )
        reason = f"fabric {ctx.fabric_name} has no other way to its devices"
        yield pod_changes.SetPrivileged(entry="security.privileged", reason=reason, container=index)


def _get_capabilities(pod: applied_pod.AppliedPod, index: int) -> views.Capabilities:
    return (pod.container(index).security_context or _NO_CONTEXT).capabilities or _NO_CAPABILITIES
