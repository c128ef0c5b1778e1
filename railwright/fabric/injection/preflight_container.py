"""The preflight container of one pod, as its JSON: the view of the rails that the chosen container will have.

Owns what it is given. It sees what the first chosen container sees, and costs the pod nothing: Kubernetes counts the
larger of init containers and app containers, and the kubelet hands devices of an init container on to the others. It
leaves the pod's QoS class as it is, and passes every pod-security level that the pod itself passes.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from railwright.fabric import names, networks, quantity, views
from railwright.fabric.injection import accelerators, model, mounts, shapes, tables
from railwright.fabric.injection import aim as aims

Kind = TypeVar("Kind", bound=model.Change)
PROGRAM = ("railwright", "preflight")
_WAIT_SECONDS = "30"  # a subnet manager sweeps every ten (opensm's sweep_interval); an address' GID takes less than one
_USER = 65532  # that of the image, said here because a pod's own runAsUser would replace it
_LOCK = "IPC_LOCK"
_GID_INDEX = "NCCL_IB_GID_INDEX"
_NO_CONTEXT = views.SecurityContext()


def build(aim: aims.Aim, selections: Sequence[networks.Selection], so_far: Sequence[model.Part]) -> Mapping[str, Any]:
    """The container. `so_far` is what the other concerns do to the pod."""
    container: dict[str, Any] = {
        "name": names.PREFLIGHT_CONTAINER,
        "image": aim.fabric.preflight.image,
        "command": [*PROGRAM, *_arguments(aim, selections), *_on_failure(aim)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": _resources(aim, so_far),
        "securityContext": _security(aim, so_far),
    }
    values = [(name, _value(aim, so_far, name)) for name in (tables.HCA, _GID_INDEX)]
    if known := [{"name": name, "value": value} for name, value in values if value]:
        container["env"] = known
    if mounted := list(_mounts(aim, so_far)):
        container["volumeMounts"] = mounted
    return container


def has_devices(aim: aims.Aim, so_far: Sequence[model.Part]) -> bool:
    """True where the container would see RDMA devices: by its resources, by a mount or by privilege."""
    if "privileged" in _security(aim, so_far) or any(
        mount["name"] != mounts.NCCL_CONF for mount in _mounts(aim, so_far)
    ):
        return True
    return bool(_devices(aim, so_far))


# --- what it is told --------------------------------------------------------------------------------------


def _on_failure(aim: aims.Aim) -> Iterator[str]:
    if aim.fabric.preflight.on_failure == "warn":
        yield "--warn"


def _arguments(aim: aims.Aim, selections: Sequence[networks.Selection]) -> Iterator[str]:
    yield from ("--transport", str(aim.fabric.transport))
    rails = [chosen.rail for chosen in aim.rails]
    devices = shapes.before_binding(aim.pod, aim.document, rails).devices or ("",) * len(rails)
    interfaces = _interfaces(aim, selections)
    for rail, device, interface in zip(rails, devices, interfaces, strict=True):
        parts = (rail.name, f"device={device}" if device else "", f"interface={interface}" if interface else "")
        yield from ("--rail", ",".join(part for part in parts if part))
    if aim.fabric.preflight.mtu is not None:
        yield from ("--mtu", str(aim.fabric.preflight.mtu))
    if not aim.runs_as_root(aim.targets[0]) or aim.pod.spec.host_users is False:  # then IPC_LOCK has no effect
        yield "--non-root"
    yield from ("--wait", _WAIT_SECONDS)


def _interfaces(aim: aims.Aim, selections: Sequence[networks.Selection]) -> list[str]:
    """The interface of each rail: that of the attachment to its network; "" where it has none of its own."""
    named = networks.interfaces(selections, aim.document.cluster_wide_networks)
    free = list(zip(selections, named, strict=True))
    found = []
    for chosen in aim.rails:
        of_network = [pair for pair in free if pair[0].key == chosen.network]
        same_name = [pair for pair in of_network if pair[1] == chosen.rail.interface]
        pair = next(iter(same_name or of_network), None)
        if pair is not None:
            free.remove(pair)
        found.append(pair[1] if pair else "")
    return found


# --- what it is given -------------------------------------------------------------------------------------


def _resources(aim: aims.Aim, so_far: Sequence[model.Part]) -> Mapping[str, Mapping[str, str]]:
    """Requests and limits alike, or the pod would lose its QoS class and with it its exclusive CPUs."""
    amounts = {name: str(count) for name, count in _devices(aim, so_far).items()}
    for name, ours, spell in _SMALL:
        if theirs := _requested(aim, name):
            amounts[name] = spell(min(ours, theirs))
    return {"requests": amounts, "limits": amounts} if amounts else {}


def _millis(amount: int) -> str:
    return f"{amount}m"


def _bytes(amount: int) -> str:
    return str(-(-amount // 1000))


# Of what the pod itself names, in thousandths: the program takes 70 ms of CPU time and 14 MiB.
_SMALL: tuple[tuple[str, int, Callable[[int], str]], ...] = (
    ("cpu", 100, _millis),
    ("memory", 64 * 2**20 * 1000, _bytes),
)


def _devices(aim: aims.Aim, so_far: Sequence[model.Part]) -> Mapping[str, int]:
    """The rails' devices as the chosen containers have them, so that the kubelet hands the same ones on."""
    amounts = {}
    for resource in dict.fromkeys(chosen.resource for chosen in aim.rails if chosen.resource):
        own = [accelerators.amount(aim.container(index), resource) for index in aim.targets]
        added = [each.quantity for each in _of(so_far, model.AddResource) if each.resource == resource]
        if most := max(*own, *added, 0):
            amounts[resource] = most
    return amounts


def _requested(aim: aims.Aim, resource: str) -> int:
    """What the app containers request together, in thousandths; 0 where that is unreadable and refused anyway."""
    total = 0
    try:
        for resources in [each.resources for each in aim.pod.spec.containers if each.resources is not None]:
            written = resources.requests.get(resource, resources.limits.get(resource))
            total += _thousandths(written) if written is not None else 0
    except quantity.InvalidQuantityError:
        return 0
    return max(0, total)


_thousandths = functools.lru_cache(maxsize=1024)(quantity.milli)  # pods of a gang bring the same amounts


def _security(aim: aims.Aim, so_far: Sequence[model.Part]) -> Mapping[str, Any]:
    target = aim.targets[0]
    own = aim.container(target).security_context or _NO_CONTEXT
    least = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "readOnlyRootFilesystem": True}
    if own.privileged or any(each.container == target for each in _of(so_far, model.SetPrivileged)):
        return {**least, "privileged": True}
    added = {each.capability for each in _of(so_far, model.AddCapability) if each.container == target}
    added.update((own.capabilities or views.Capabilities()).add or ())
    granted = {"add": [_LOCK]} if added & {_LOCK, f"CAP_{_LOCK}", "ALL"} else {}
    return {
        **least,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **granted},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _mounts(aim: aims.Aim, so_far: Sequence[model.Part]) -> Iterator[Mapping[str, Any]]:
    """The device files and NCCL's file where the first chosen container has them mounted."""
    target = aim.targets[0]
    for change in _of(so_far, model.AddMount):
        if change.container == target and change.mount["name"] in {mounts.INFINIBAND, mounts.NCCL_CONF}:
            yield change.mount
    for mount in aim.container(target).volume_mounts:
        if mount.name == mounts.NCCL_CONF:
            yield mounts.NCCL_CONF_FILE.mount
        elif mount.path == names.DEV_INFINIBAND:
            yield {"name": mount.name, "mountPath": mount.mount_path}


def _value(aim: aims.Aim, so_far: Sequence[model.Part], name: str) -> str | None:
    """The literal value that the first chosen container will have for a variable; None where none is known."""
    target = aim.targets[0]
    for change in _of(so_far, model.SetEnv):
        if change.container == target and change.name == name:
            return change.value
    if any(each.name == name for each in _unset(aim, so_far)):
        return None
    there = [each for each in aim.container(target).env if each.name == name]
    return there[-1].value if there else None


def _unset(aim: aims.Aim, so_far: Sequence[model.Part]) -> Iterator[views.EnvVar]:
    target = aim.targets[0]
    for change in _of(so_far, model.UnsetEnv):
        if change.container == target:
            yield aim.container(target).env[change.index]


def _of(parts: Sequence[model.Part], kind: type[Kind]) -> Iterator[Kind]:
    return (change for part in parts for change in part.changes if isinstance(change, kind))
