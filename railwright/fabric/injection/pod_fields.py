"""Sets the pod's network namespace and scheduler, and the privileges of its target containers."""

from collections.abc import Iterator

from railwright.fabric import text, views
from railwright.fabric.injection import context, drafts, facts
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_DEFAULT_DNS = ("", "ClusterFirst")  # the API server writes ClusterFirst into pods without a DNS policy
_DEFAULT_SCHEDULER = "default-scheduler"
_HOST_DNS = "ClusterFirstWithHostNet"  # without it, a pod on the host network does not use the cluster's DNS


def set_host_network(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Put a pod on the host network if the fabric is used there. Raises RefusedError if that is forbidden."""
    if level := facts.find_security_level(ctx.known):
        problem = facts.format_forbidden(ctx.known, level, "hostNetwork")
        message = (
            f"{problem}, and fabric {ctx.fabric_name} works on the host network only; run the pod in a namespace with "
            "pod-security level privileged, or use another fabric"
        )
        raise reasons.RefusedError("security", message)
    reason, spec = f"fabric {ctx.fabric_name} is used on the host network", draft.pod.spec
    if not spec.host_network:
        if spec.host_users is False:  # the API server rejects both in one pod
            message = f"spec.hostUsers is false, and {reason}, which a pod with its own user namespace cannot use"
            raise reasons.RefusedError("security", f"{message}; remove hostUsers or use another fabric")
        draft.spec.set_field("hostNetwork", True, "pod.hostNetwork")
    draft.add_entry("pod.hostNetwork")
    if spec.dns_policy in _DEFAULT_DNS:
        draft.spec.set_field("dnsPolicy", _HOST_DNS, "pod.dnsPolicy")
    if spec.dns_policy in {*_DEFAULT_DNS, _HOST_DNS}:
        draft.add_entry("pod.dnsPolicy")


def set_scheduler(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Set the fabric's scheduler if the pod has the default scheduler, which the API server writes before admission."""
    name = ctx.fabric.placement.scheduler_name
    if name is None or draft.pod.spec.scheduler_name not in ("", _DEFAULT_SCHEDULER, name):
        return
    if draft.pod.spec.scheduler_name != name:
        draft.spec.set_field("schedulerName", name, "pod.schedulerName")
    draft.add_entry("pod.schedulerName")


# --- capabilities and privilege (docs/interface.md 3.4) ------------------------------------------------

# Settings of the container itself are checked before the pod-security level of the namespace.
_LOCK = "IPC_LOCK"
_NO_CONTEXT = views.SecurityContext()
_NO_CAPABILITIES = views.Capabilities()


def set_privileges(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add the policy's capabilities and privileged mode to the target containers. Raises RefusedError."""
    settings = ctx.fabric.security
    pod, level = draft.pod, facts.find_security_level(ctx.known)
    for capability in dict.fromkeys(settings.capabilities):
        entry = f"security.{capability}"
        if not facts.allows_capability(level, capability):
            draft.record_skip_and_warn(entry, facts.explain_forbidden(ctx.known, level, f"capability {capability}"))
            continue
        dropping_containers = [
            pod.spec.containers[index].name for index in ctx.targets if _drops_capability(pod, index, capability)
        ]
        draft.warn(*[_explain_dropped_capability(ctx, (name,), capability) for name in dropping_containers])
        if len(dropping_containers) == len(ctx.targets):
            draft.record_skip(entry, _explain_dropped_capability(ctx, tuple(dropping_containers), capability))
            continue
        for index in ctx.targets:
            equivalent = {capability, f"CAP_{capability}", "ALL"} & set(_get_capabilities(pod, index).add or ())
            if not equivalent and not _drops_capability(pod, index, capability):
                draft.edit_container(index).add_capability(capability, entry)
        draft.add_entry(entry)
        if capability == _LOCK:
            draft.warn(*_warn_of_ignored_ipc_lock(pod, ctx))
    if settings.privileged and level is not None:
        draft.record_skip_and_warn("security.privileged", context.explain_left_out(ctx, level, "privileged"))
    elif settings.privileged:
        _set_privileged(draft, pod, ctx)
        draft.add_entry("security.privileged")


def _warn_of_ignored_ipc_lock(pod: drafts.EditedPod, ctx: context.InjectionContext) -> Iterator[reasons.Reason]:
    """Warn if the kernel ignores IPC_LOCK, so that only the runtime's own limit applies.

    The kernel checks the capability in the host's user namespace (mm/mlock.c, can_do_mlock). A process that is not root
    does not have the container's capabilities, because Kubernetes sets no ambient capabilities.
    """
    if pod.spec.host_users is False:
        yield _explain_ignored_ipc_lock("spec.hostUsers is false", "remove hostUsers")
        return
    granted = [index for index in ctx.targets if not _drops_capability(pod, index, _LOCK)]
    non_root = [pod.spec.containers[index].name for index in granted if not pod.runs_as_root(index)]
    if non_root:
        yield _explain_ignored_ipc_lock(
            f"container {text.join_fitting(non_root)} does not run as root", "run it as root"
        )


def _explain_ignored_ipc_lock(cause: str, fix: str) -> reasons.Reason:
    return reasons.Reason(
        AdmissionCode.LOCKING_WITHOUT_EFFECT,
        f"{cause}: {_LOCK} has no effect, and NCCL may fail to register memory",
        fix=f"{fix}, or ask the operator for LimitMEMLOCK=infinity of the container runtime",
    )


def _drops_capability(pod: drafts.EditedPod, index: int, capability: str) -> bool:
    """True if a container drops the capability by name, which is its author's decision."""
    dropped = _get_capabilities(pod, index).drop
    return dropped is not None and not {capability, f"CAP_{capability}"}.isdisjoint(dropped)


def _explain_dropped_capability(
    ctx: context.InjectionContext, containers: tuple[str, ...], capability: str
) -> reasons.Reason:
    return reasons.Reason(
        AdmissionCode.LOCKING_WITHOUT_EFFECT,
        f"container {text.join_fitting(containers)} drops {capability} by name, so fabric {ctx.fabric_name} does not "
        "add it",
        fix=f"remove {capability} from securityContext.capabilities.drop if NCCL is to register memory with the NIC",
    )


def _set_privileged(draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext) -> None:
    for index in ctx.targets:
        container = pod.spec.containers[index]
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
                    f"a privileged container; remove {key} or use another fabric",
                )
        draft.edit_container(index).set_privileged("security.privileged")


def _get_capabilities(pod: drafts.EditedPod, index: int) -> views.Capabilities:
    return (pod.spec.containers[index].security_context or _NO_CONTEXT).capabilities or _NO_CAPABILITIES
