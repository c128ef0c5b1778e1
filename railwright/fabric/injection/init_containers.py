"""Adds init containers: the one that checks the rails before NCCL starts (`railwright preflight`), and native sidecars.

The preflight has the rails, mounts and values of the first target container after all other changes. It costs the pod
nothing: Kubernetes counts the larger of init containers and app containers, and kubelet reuses the devices of an init
container. It does not change the pod's QoS class, and it is allowed at every pod-security level that allows the pod.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from railwright.fabric import device_names, names, quantity, views
from railwright.fabric.injection import (
    accelerators,
    applied_pod,
    claim_requests,
    context,
    env_tables,
    facts,
    mounts,
    pod_changes,
)
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_DISABLED = reason.make(AdmissionCode.DISABLED_BY_POLICY)
_NO_RAILS = reason.make(AdmissionCode.NO_RAILS)
_NO_DEVICES = reason.make(AdmissionCode.PREFLIGHT_WITHOUT_DEVICES)


def add_preflight(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
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
        added=_build_container(pod, ctx),
    )
    volumes = mounts.add_volume(pod, mounts.PLACEMENT_FILE) if claim_requests.has_claimed_rails(pod, ctx) else ()
    return pod_changes.Contribution(changes=(*volumes, change), entries=("preflight",))


def _find_skip_reason(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> reason.Reason | None:
    """Return the reason why the pod gets no preflight, None if it gets one."""
    if "preflight" in ctx.options.skip:
        return context.SKIPPED
    if not ctx.fabric.preflight.enabled:
        return _DISABLED
    if not ctx.rails:
        return _NO_RAILS
    if ctx.fabric.transport is policies.Transport.PLUGIN:
        return _NO_DEVICES
    if "devices" in ctx.options.skip and not _has_devices(pod, ctx):
        return _NO_DEVICES
    return None


def _is_ours(container: views.Container) -> bool:
    """True if railwright added the container.

    Compares name and program: the API server and webhooks change the rest.
    """
    program = tuple((container.command or ())[: len(PROGRAM)])
    return container.name == names.PREFLIGHT_CONTAINER and program == PROGRAM


def _check_name(pod: applied_pod.AppliedPod) -> None:
    """Raise RefusedError if the user has a container with the preflight's name."""
    spec = pod.spec
    for field, containers in (("initContainers", spec.init_containers or ()), ("containers", spec.containers)):
        if any(container.name == names.PREFLIGHT_CONTAINER for container in containers):
            raise reason.RefusedError(
                "preflight",
                f"spec.{field} has a container named {names.PREFLIGHT_CONTAINER}, which is railwright's name; "
                f"rename it, or set annotation {names.SKIP} to preflight",
            )


# --- the container --------------------------------------------------------------------------------------------


PROGRAM = ("railwright", "preflight")
_WAIT_SECONDS = "30"  # a subnet manager sweeps every 10 s (opensm's sweep_interval); a GID appears within 1 s
_USER = 65532  # the image's user, set because a pod's own runAsUser would replace it
_LOCK = "IPC_LOCK"
_OF_GIDS = ("NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY")
_NO_CONTEXT = views.SecurityContext()


def _build_container(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Mapping[str, Any]:
    """Return the container for a pod with all other changes."""
    container: dict[str, Any] = {
        "name": names.PREFLIGHT_CONTAINER,
        "image": ctx.fabric.preflight.image,
        "command": [*PROGRAM, *_build_arguments(pod, ctx)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _build_resources(pod, ctx),
        "securityContext": _build_security_context(pod.container(ctx.targets[0])),
    }
    values = [(name, _find_value(pod.container(ctx.targets[0]), name)) for name in (env_tables.HCA, *_OF_GIDS)]
    if env := [{"name": name, "value": value} for name, value in values if value]:
        container["env"] = env
    volume_mounts = list(_list_mounts(pod.container(ctx.targets[0])))
    if claim_requests.has_claimed_rails(pod, ctx):
        volume_mounts.append(mounts.PLACEMENT_FILE.mount)
    if volume_mounts:
        container["volumeMounts"] = volume_mounts
    return container


def _has_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> bool:
    """True if the container would have RDMA devices: by its resources, by a mount or by privilege."""
    if "privileged" in _build_security_context(pod.container(ctx.targets[0])) or any(
        mount["name"] != mounts.NCCL_CONF for mount in _list_mounts(pod.container(ctx.targets[0]))
    ):
        return True
    return bool(_list_claims(pod, ctx) or _count_devices(pod, ctx))


# --- arguments --------------------------------------------------------------------------------------------


def _build_arguments(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Iterator[str]:
    yield from ("--transport", str(ctx.fabric.transport))
    rails = [rail.rail for rail in ctx.rails]
    by_claims = claim_requests.has_claimed_rails(pod, ctx)
    known = None if by_claims else device_names.resolve_before_binding(pod, ctx.document, rails).devices
    devices = known or ("",) * len(rails)
    interfaces = _assign_interfaces(pod, ctx)
    for rail, device, interface in zip(rails, devices, interfaces, strict=True):
        options = (rail.name, f"device={device}" if device else "", f"interface={interface}" if interface else "")
        yield from ("--rail", ",".join(option for option in options if option))
    if by_claims:
        yield from ("--allocation", names.PLACEMENT_PATH)
    if ctx.fabric.preflight.mtu is not None:
        yield from ("--mtu", str(ctx.fabric.preflight.mtu))
    if not pod.runs_as_root(ctx.targets[0]) or pod.spec.host_users is False:  # then IPC_LOCK has no effect
        yield "--non-root"
    yield from ("--wait", _WAIT_SECONDS)
    if ctx.fabric.preflight.on_failure == "warn":
        yield "--warn"


def _assign_interfaces(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> list[str]:
    """Return the interface of each rail, by the attachment to its network. "" for a rail without an attachment."""
    interface_names = network_selection.name_interfaces(pod.attached, ctx.document.cluster_wide_networks)
    unassigned = list(zip(pod.attached, interface_names, strict=True))
    result = []
    for rail in ctx.rails:
        candidates = [pair for pair in unassigned if pair[0].key == rail.network]
        same_name = [pair for pair in candidates if pair[1] == rail.rail.interface]
        pair = next(iter(same_name or candidates), None)
        if pair is not None:
            unassigned.remove(pair)
        result.append(pair[1] if pair else "")
    return result


# --- resources, mounts and environment --------------------------------------------------------------------


def _build_resources(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Mapping[str, Any]:
    """Return equal requests and limits, so that the pod keeps its QoS class and its exclusive CPUs; and its claims."""
    amounts = {name: str(count) for name, count in _count_devices(pod, ctx).items()}
    for name, limit, format_amount in _LIMITS:
        if requested := _sum_requests(pod, name):
            amounts[name] = format_amount(min(limit, requested))
    claims = _list_claims(pod, ctx)
    return {
        **({"requests": amounts, "limits": amounts} if amounts else {}),
        **({"claims": claims} if claims else {}),
    }


def _list_claims(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> list[Mapping[str, str]]:
    """Return the claims of the target containers: a container sees the devices of its own claims only."""
    targets = [pod.container(index).resources for index in ctx.targets]
    used = [claim.name for resources in targets if resources is not None for claim in resources.claims]
    return [{"name": name} for name in dict.fromkeys(used)]


# Upper limits in thousandths of resources that the pod itself requests. The program takes 70 ms of CPU and 14 MiB.
_LIMITS: tuple[tuple[str, int, Callable[[int], str]], ...] = (
    ("cpu", 100, lambda amount: f"{amount}m"),
    ("memory", 64 * 2**20 * 1000, lambda amount: str(-(-amount // 1000))),
)


def _count_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Mapping[str, int]:
    """Return the devices of the rails as the target containers request them. Then kubelet reuses the same devices."""
    resources = dict.fromkeys(rail.resource for rail in ctx.rails if rail.resource)
    amounts = {
        resource: max(accelerators.read_amount(pod.container(index), resource) for index in ctx.targets)
        for resource in resources
    }
    return {resource: amount for resource, amount in amounts.items() if amount}


def _sum_requests(pod: applied_pod.AppliedPod, resource: str) -> int:
    """Return the sum of a resource over the app containers, in thousandths, or 0 if a quantity is invalid."""
    total = 0
    try:
        for resources in [container.resources for container in pod.spec.containers if container.resources is not None]:
            amount = resources.requests.get(resource, resources.limits.get(resource))
            total += quantity.parse_milli(amount) if amount is not None else 0
    except quantity.InvalidQuantityError:
        return 0
    return max(0, total)


def _build_security_context(target: views.Container) -> Mapping[str, Any]:
    security = target.security_context or _NO_CONTEXT
    base = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "readOnlyRootFilesystem": True}
    if security.privileged:
        return {**base, "privileged": True}
    added = {*((security.capabilities or views.Capabilities()).add or ())}
    additions = {"add": [_LOCK]} if added & {_LOCK, f"CAP_{_LOCK}", "ALL"} else {}
    return {
        **base,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **additions},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _list_mounts(target: views.Container) -> Iterator[Mapping[str, Any]]:
    """Yield the mounts of the device files and of nccl.conf in the target container, railwright's volumes first."""
    for mount in sorted(target.volume_mounts, key=lambda mount: not mount.name.startswith(names.VOLUME_PREFIX)):
        if mount.name == mounts.NCCL_CONF:
            yield mounts.NCCL_CONF_FILE.mount
        elif mount.path == names.DEV_INFINIBAND:
            yield {"name": mount.name, "mountPath": mount.mount_path}


def _find_value(target: views.Container, name: str) -> str | None:
    """Return the literal value of a variable, or None if it is unset or unknown. The last entry of a name counts."""
    entries = [entry for entry in target.env if entry.name == name]
    return entries[-1].value if entries else None


# --- native sidecars of a fabric: init containers that run as long as the pod --------------------------


# A container of the pod with the same name is left unchanged (docs/interface.md 3).
def add_sidecars(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Append the sidecars that the pod lacks. Raises RefusedError if the namespace forbids what one needs."""
    if not ctx.fabric.sidecars or not ctx.role.rails:
        return pod_changes.EMPTY
    if "sidecars" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"sidecars": context.SKIPPED})
    contributions = []
    for sidecar in ctx.fabric.sidecars:
        contribution = _add_sidecar(pod, ctx, sidecar)
        contributions.append(contribution)
        pod = pod_changes.apply(pod, contribution.changes)  # two sidecars may share a volume
    return pod_changes.merge(contributions)


def _add_sidecar(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, sidecar: policies.Sidecar
) -> pod_changes.Contribution:
    entry = f"sidecars.{sidecar.name}"
    restart_policies = [one.restart_policy for one in pod.spec.init_containers or () if one.name == sidecar.name]
    if restart_policies == [accelerators.SIDECAR]:
        return pod_changes.Contribution(entries=(entry,))
    if restart_policies or any(container.name == sidecar.name for container in pod.spec.containers):
        own = reason.make(AdmissionCode.CONTAINER_OF_POD, container=sidecar.name)
        return pod_changes.Contribution(skipped={entry: own})
    _check_level(ctx, sidecar)
    volumes = [mounts.build_host_path(host_path) for host_path in sidecar.host_paths]
    changes: list[pod_changes.Change] = []
    for volume in volumes:
        added = mounts.add_volume(pod, volume)
        changes += added
        pod = pod_changes.apply(pod, added)
    change = pod_changes.AddInitContainer(
        entry=entry,
        reason=f"fabric {ctx.fabric_name} needs it beside its ranks",
        added=_build_sidecar(sidecar, [volume.mount for volume in volumes]),
    )
    return pod_changes.Contribution((*changes, change), (entry,))


def _check_level(ctx: context.InjectionContext, sidecar: policies.Sidecar) -> None:
    level = facts.find_level(ctx.known)
    needs = [
        *(["privileged"] if sidecar.privileged else []),
        *(["hostPath"] if sidecar.host_paths else []),
        *[f"capability {name}" for name in sidecar.capabilities if not facts.allows(level, name)],
    ]
    if level is not None and needs:
        problem = facts.format_problem(ctx.known, level, needs[0])
        message = f"{problem}, and sidecar {sidecar.name} of fabric {ctx.fabric_name} needs it; run the pod in a "
        raise reason.RefusedError("pod-security", f"{message}privileged namespace")


def _build_sidecar(sidecar: policies.Sidecar, volume_mounts: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    security: dict[str, Any] = {"privileged": True} if sidecar.privileged else {}
    if sidecar.capabilities:
        security["capabilities"] = {"add": [*sidecar.capabilities]}
    written = msgspec.to_builtins(sidecar.startup_probe) if sidecar.startup_probe else {}
    probe = {key: value for key, value in written.items() if value is not None}
    fields = {
        "command": [*sidecar.command],
        "args": [*sidecar.args],
        "env": [{"name": name, "value": value} for name, value in sidecar.env.items()],
        "securityContext": security,
        "volumeMounts": volume_mounts,
        "startupProbe": probe,
    }
    used = {name: value for name, value in fields.items() if value}
    return {"name": sidecar.name, "image": sidecar.image, "restartPolicy": accelerators.SIDECAR, **used}
