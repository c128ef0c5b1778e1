"""Adds the init container that finds the rails of a pod and checks them (`railwright preflight`).

The init container has the rails, mounts and values of the first target container after all other changes. It costs the
pod nothing: Kubernetes counts the larger of init containers and app containers, and kubelet reuses the devices of an
init container. It does not change the pod's QoS class, and it is allowed at every pod-security level that allows the
pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from railwright.fabric import device_names, names, quantity, views
from railwright.fabric.injection import (
    accelerators,
    claim_requests,
    context,
    drafts,
    mounts,
    rank_settings,
)
from railwright.fabric.multus import network_selection
from railwright.fabric.nccl import derive
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_NO_DEVICES = reason.Reason(
    AdmissionCode.SKIPPED_BY_ANNOTATION,
    f"annotation {names.SKIP} leaves out the devices that preflight checks",
)
_NOT_ON_PLUGIN = reason.Reason(
    AdmissionCode.TRANSPORT_WITHOUT_PREFLIGHT, "transport plugin has no RDMA devices for preflight to check"
)


def add_preflight(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add the init container, or move it before those that other webhooks have added. Raises RefusedError.

    The init container comes first: a container before it that reads its files would wait forever.
    """
    pod = draft.pod
    if not _is_wanted(pod, ctx):
        return
    if missing := _explain_missing_devices(pod, ctx):
        draft.record_skip("preflight", missing)
        return
    draft.add_entry("preflight")
    _check_preflight_name(pod)
    mounts.add_volume(draft, mounts.FOUND)
    mounts.mount_volume(draft, mounts.FOUND, ctx.targets)
    position = next((index for index, init in enumerate(pod.spec.init_containers or ()) if _is_preflight(init)), None)
    if position is None:
        draft.spec.put_first("initContainers", _build_container(draft, pod, ctx), "preflight")
    elif position:
        draft.spec.move_first("initContainers", position, "preflight")


def _is_wanted(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if a pod needs the init container: `resolve` is always, or the policy does not state all values."""
    if not ctx.rails or ctx.fabric.resolve == "never":
        return False
    return ctx.fabric.resolve == "always" or bool(list_unstated_variables(pod, ctx))


def gets_found_variables(pod: drafts.EditedPod, ctx: context.InjectionContext) -> bool:
    """True if a pod gets variables whose values the init container finds. `pod` has its devices and mounts."""
    has_variables = ctx.fabric.transport is not policies.Transport.EFA and ctx.fabric.nccl.derive
    is_skipped = "preflight" in ctx.options.skip
    return has_variables and not is_skipped and _is_wanted(pod, ctx) and _explain_missing_devices(pod, ctx) is None


def list_unstated_variables(pod: views.Pod, ctx: context.InjectionContext) -> tuple[str, ...]:
    """Return the names of variables that the libraries of a pod need, and whose values the policy does not state."""
    if "env" in ctx.options.skip or not ctx.fabric.nccl.derive:
        return ()
    by_claims = claim_requests.has_claimed_rails(pod, ctx)
    return derive.list_unstated_variables(ctx.fabric, None if by_claims else ctx.devices)


def _is_preflight(container: views.Container) -> bool:
    """True if railwright added the container.

    Compares name and program: the API server and webhooks change the rest.
    """
    program = tuple((container.command or ())[: len(PROGRAM)])
    return container.name == names.PREFLIGHT_CONTAINER and program == PROGRAM


def _check_preflight_name(pod: drafts.EditedPod) -> None:
    """Raise RefusedError if the user has a container with the preflight's name."""
    spec = pod.spec
    for field, containers in (("initContainers", spec.init_containers or ()), ("containers", spec.containers)):
        if any(item.name == names.PREFLIGHT_CONTAINER and not _is_preflight(item) for item in containers):
            raise reason.RefusedError(
                "name-taken",
                f"spec.{field} has a container named {names.PREFLIGHT_CONTAINER}, which is railwright's name; "
                f"rename it, or set annotation {names.SKIP} to preflight",
            )


# --- the container --------------------------------------------------------------------------------------------


PROGRAM = ("railwright", "preflight")
_WAIT_SECONDS = "30"  # a subnet manager sweeps every 10 s (opensm's sweep_interval); a GID appears within 1 s
_USER = 65532  # the image's user, set because a pod's own runAsUser would replace it
_LOCK = "IPC_LOCK"
_NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
# Upper limits in thousandths of resources that the pod itself requests. The program takes 70 ms of CPU and 14 MiB.
_LIMITS: tuple[tuple[str, int, Callable[[int], str]], ...] = (
    ("cpu", 100, lambda amount: f"{amount}m"),
    ("memory", 64 * 2**20 * 1000, lambda amount: str(-(-amount // 1000))),
)


def _build_container(draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext) -> Mapping[str, Any]:
    """Return the container for a pod with all other changes."""
    target = pod.spec.containers[ctx.targets[0]]
    return {
        "name": names.PREFLIGHT_CONTAINER,
        "image": ctx.fabric.preflight.image or ctx.known.image,
        "command": [*PROGRAM, *_list_preflight_arguments(pod, ctx), *draft.settings.arguments],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _build_resources(pod, ctx),
        "securityContext": _build_security_context(target),
        "env": [*_list_author_values(target, draft.settings), _NODE_NAME],
        "volumeMounts": [*_list_mounts(target), {"name": mounts.RAILS, "mountPath": names.RAILS_PATH}],
    }


def _explain_missing_devices(pod: drafts.EditedPod, ctx: context.InjectionContext) -> reason.Reason | None:
    """Return why the init container would have no RDMA devices; None if resources, a mount or privilege give it any."""
    if ctx.fabric.transport is policies.Transport.PLUGIN:
        return _NOT_ON_PLUGIN
    if "devices" not in ctx.options.skip:
        return None
    target = pod.spec.containers[ctx.targets[0]]
    is_privileged = target.security_context is not None and bool(target.security_context.privileged)
    has_devices = is_privileged or any(_list_mounts(target)) or _list_claims(pod, ctx) or _count_devices(pod, ctx)
    return None if has_devices else _NO_DEVICES


# --- arguments --------------------------------------------------------------------------------------------


def _list_preflight_arguments(pod: drafts.EditedPod, ctx: context.InjectionContext) -> Iterator[str]:
    yield from ("--transport", str(ctx.fabric.transport))
    yield from _list_rail_arguments(pod, ctx)
    nccl, preflight = ctx.fabric.nccl, ctx.fabric.preflight
    if nccl.gid_index is not None and nccl.gid_index >= 0:  # -1 leaves the choice to NCCL
        yield from ("--gid-index", str(nccl.gid_index))
    if nccl.address_range is not None and bool(pod.spec.host_network) == ctx.fabric.host_network:
        yield from ("--address-range", nccl.address_range)
    if ctx.fabric.has_isolated_rails:
        yield "--isolated"
    for name in nccl.vendor_variables:
        yield from ("--vendor-variable", name)
    if preflight.mtu is not None:
        yield from ("--mtu", str(preflight.mtu))
    if not pod.runs_as_root(ctx.targets[0]) or pod.spec.host_users is False:  # then IPC_LOCK has no effect
        yield "--non-root"
    yield from ("--write", names.RAILS_PATH, "--wait", _WAIT_SECONDS)
    if preflight.on_failure == "warn":
        yield "--warn"


def _list_rail_arguments(pod: drafts.EditedPod, ctx: context.InjectionContext) -> Iterator[str]:
    devices: Sequence[str] = ("",) * len(ctx.rails)
    if not claim_requests.has_claimed_rails(pod, ctx):
        devices = ctx.devices or device_names.find_device_of_each_rail(pod, ctx.document, ctx.selected.policy_rails)
    requests_devices = "devices" not in ctx.options.skip
    unassigned: dict[compiled.Network, list[str]] = {}  # interfaces of the attachments
    for selection, interface in zip(pod.attached, network_selection.name_interfaces(pod.attached), strict=True):
        unassigned.setdefault(selection.key, []).append(interface)
    for selected, device in zip(ctx.rails, devices, strict=True):
        options = [selected.rail.name]
        if device:
            options.append(f"device={device}")
        if selected.resource and requests_devices:
            options.append(f"resource={selected.resource}")
        if selected.network is not None and (interfaces := unassigned.get(selected.network)):
            own = selected.rail.interface
            options.append(f"interface={interfaces.pop(interfaces.index(own) if own in interfaces else 0)}")
        yield from ("--rail", ",".join(options))
    containers = [pod.spec.containers[index] for index in ctx.targets] if len(ctx.targets) > 1 else ()
    requesting = [
        container
        for container in containers
        if any(accelerators.read_amount(container, name) for name in ctx.selected.resources)
    ]
    if len(requesting) > 1:
        yield "--several-containers"


def _list_author_values(target: views.Container, settings: rank_settings.Settings) -> Iterator[Mapping[str, str]]:
    """Yield the author's values of variables that the init container finds or writes to files.

    A value with `$(` names another variable, which the init container does not have.
    """
    existing, stated = target.env_by_name, {setting.name: setting.value for setting in settings.all}
    for name in dict.fromkeys([name for name in (*derive.FOUND, *stated) if name in existing]):
        value = existing[name][1].value
        if value and "$(" not in value and value != stated.get(name):
            yield {"name": name, "value": value}


# --- resources, mounts and privileges ---------------------------------------------------------------------


def _build_resources(pod: drafts.EditedPod, ctx: context.InjectionContext) -> Mapping[str, Any]:
    """Return the claims, and equal requests and limits, so that the pod keeps its QoS class and exclusive CPUs."""
    amounts = {name: str(count) for name, count in _count_devices(pod, ctx).items()}
    for name, limit, format_amount in _LIMITS:
        if requested := _sum_requests(pod, name):
            amounts[name] = format_amount(min(limit, requested))
    claims = _list_claims(pod, ctx)
    return {
        **({"requests": amounts, "limits": amounts} if amounts else {}),
        **({"claims": claims} if claims else {}),
    }


def _list_claims(pod: drafts.EditedPod, ctx: context.InjectionContext) -> list[Mapping[str, str]]:
    """Return the claims of the target containers: a container sees the devices of its own claims only."""
    targets = [pod.spec.containers[index].resources for index in ctx.targets]
    used = [claim.name for resources in targets if resources is not None for claim in resources.claims]
    return [{"name": name} for name in dict.fromkeys(used)]


def _count_devices(pod: drafts.EditedPod, ctx: context.InjectionContext) -> Mapping[str, int]:
    """Return the rails' resources in the amounts of the target containers, so that kubelet reuses the devices."""
    targets = [pod.spec.containers[index] for index in ctx.targets]
    amounts = {
        resource: max([accelerators.read_amount(container, resource) for container in targets])
        for resource in dict.fromkeys([rail.resource for rail in ctx.rails if rail.resource])
    }
    return {resource: amount for resource, amount in amounts.items() if amount}


def _sum_requests(pod: drafts.EditedPod, resource: str) -> int:
    """Return the sum of a resource over the app containers, in thousandths, or 0 if a quantity is invalid."""
    resources = [container.resources for container in pod.spec.containers if container.resources is not None]
    amounts = [one.requests.get(resource, one.limits.get(resource, 0)) for one in resources]
    try:
        return max(0, sum(map(quantity.parse_milli, amounts)))
    except quantity.InvalidQuantityError:
        return 0


def _build_security_context(target: views.Container) -> Mapping[str, Any]:
    security = target.security_context or views.SecurityContext()
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
    """Yield the target container's mounts that the init container needs, railwright's volumes first."""
    for mount in sorted(target.volume_mounts, key=lambda mount: not mount.name.startswith(names.VOLUME_PREFIX)):
        if mount.path == names.DEV_INFINIBAND:
            yield {"name": mount.name, "mountPath": mount.mount_path}
