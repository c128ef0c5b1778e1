"""Adds the mounts of a fabric: /dev/infiniband if the policy requires it, and memory at /dev/shm.

A path where something is already mounted is left unchanged (docs/interface.md 3).
"""

import hashlib
import posixpath
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import applied_pod, context, facts, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

INFINIBAND, SHARED_MEMORY, NCCL_CONF, PLACEMENT = (
    f"{names.VOLUME_PREFIX}{name}" for name in ("infiniband", "shm", "nccl-conf", "placement")
)

_DIGEST = 8  # hexadecimal digits
_DEV = names.DEV_SHM.rpartition("/")[0]


class FabricVolume(msgspec.Struct, frozen=True):
    """A volume that railwright adds, with its mount.

    `is_ours` distinguishes it from a user's volume of the same name.
    """

    entry: str
    reason: str
    volume: Mapping[str, Any]
    mount: Mapping[str, Any]
    is_ours: Callable[[views.Volume], bool]

    @property
    def name(self) -> str:
        """Return the volume's name."""
        return str(self.volume["name"])

    @property
    def path(self) -> str:
        """Return the mount path."""
        return str(self.mount["mountPath"])


def mount_volumes(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the mounts of the policy. Raises RefusedError."""
    settings = ctx.fabric.mounts
    if not ctx.role.rails or settings == policies.Mounts():
        return pod_changes.EMPTY
    if "mounts" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"mounts": context.SKIPPED})
    contributions = []
    if settings.dev_infiniband and ctx.rails:
        contributions.append(_mount_infiniband(pod, ctx))
    if settings.shared_memory is not None:
        volume = ctx.policy.compile_once(_compile_shared_memory)[ctx.fabric_name]
        contributions.append(_mount_shared_memory(pod, ctx, volume))
    _check_host_paths(ctx)
    for volume in ctx.policy.compile_once(_compile_volumes)[ctx.fabric_name]:
        contribution = mount_volume(pod, volume, ctx.targets)
        contributions.append(contribution)
        volumes = [change for change in contribution.changes if isinstance(change, pod_changes.AddVolume)]
        pod = pod_changes.apply(pod, volumes)  # two mounts may share a volume, and never a path
    return pod_changes.merge(contributions)


def add_volume(pod: applied_pod.AppliedPod, fabric_volume: FabricVolume) -> tuple[pod_changes.AddVolume, ...]:
    """Add a volume without mounting it, unless the pod has it. Raises RefusedError if another has its name."""
    existing = next((volume for volume in pod.spec.volumes if volume.name == fabric_volume.name), None)
    if existing is None:
        entry, reason = fabric_volume.entry, fabric_volume.reason
        return (pod_changes.AddVolume(entry=entry, reason=reason, added=fabric_volume.volume),)
    if not fabric_volume.is_ours(existing):
        raise reasons.RefusedError(
            "volume",
            f"the pod has another volume named {fabric_volume.name}, which is railwright's name; rename it in "
            "spec.volumes, or in the claim template that its controller makes a volume of",
        )
    return ()


def mount_volume(
    pod: applied_pod.AppliedPod, fabric_volume: FabricVolume, containers: tuple[int, ...]
) -> pod_changes.Contribution:
    """Mount a volume into these containers, unless something else is mounted at its path. Raises RefusedError."""
    unmounted, existing = [], []
    for index in containers:
        mounted = pod.container(index).volume_by_path.get(fabric_volume.path)
        if mounted is None:
            unmounted.append(index)
        elif mounted == fabric_volume.name:
            existing.append(index)
    if not unmounted and not existing:
        return pod_changes.Contribution(
            skipped={fabric_volume.entry: explain_occupied(pod, containers, fabric_volume.path)}
        )
    mounts = [
        pod_changes.AddMount(
            entry=fabric_volume.entry, reason=fabric_volume.reason, container=index, mount=fabric_volume.mount
        )
        for index in unmounted
    ]
    return pod_changes.Contribution((*add_volume(pod, fabric_volume), *mounts), (fabric_volume.entry,))


def explain_occupied(pod: applied_pod.AppliedPod, containers: tuple[int, ...], path: str) -> reasons.Reason:
    """Return the reason why nothing is mounted at a path."""
    return reasons.make(AdmissionCode.PATH_OCCUPIED, containers=_list_names(pod, containers), path=path)


def _list_names(pod: applied_pod.AppliedPod, containers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([pod.container(index).name for index in containers])


def has_other_mount(container: views.Container, fabric_volume: FabricVolume) -> bool:
    """True if the container mounts something else at the path."""
    return container.volume_by_path.get(fabric_volume.path) not in {None, fabric_volume.name}


def _mount_shared_memory(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, memory: FabricVolume
) -> pod_changes.Contribution:
    """Mount shared memory, unless the pod has the host's.

    NCCL treats ranks with different /dev/shm as ranks on different hosts.
    """
    if pod.spec.host_ipc:
        return pod_changes.Contribution(skipped={memory.entry: reasons.make(AdmissionCode.HOST_MEMORY, containers=())})
    containers = tuple([index for index in ctx.targets if not _has_host_devices(pod, index)])
    if not containers:
        host_memory = reasons.make(AdmissionCode.HOST_MEMORY, containers=_list_names(pod, ctx.targets))
        return pod_changes.Contribution(skipped={memory.entry: host_memory})
    return mount_volume(pod, memory, containers)


def _has_host_devices(pod: applied_pod.AppliedPod, index: int) -> bool:
    """True if the author of the container mounts /dev of the host, and so has the host's /dev/shm."""
    if _DEV not in pod.container(index).volume_by_path:
        return False
    volume_names = {mount.name for mount in pod.container(index).volume_mounts if mount.path == _DEV}
    return any(
        _is_host_dev(volume)
        for volume in pod.spec.volumes
        if volume.name in volume_names and not volume.name.startswith(names.VOLUME_PREFIX)
    )


def _is_host_dev(volume: views.Volume) -> bool:
    path = (volume.host_path or {}).get("path")
    return isinstance(path, str) and posixpath.normpath(f"/{path.lstrip('/')}") == _DEV


def _mount_infiniband(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    level = facts.find_level(ctx.known)
    entry = f"mounts.{names.DEV_INFINIBAND}"
    if level is None:
        return mount_volume(pod, _INFINIBAND, ctx.targets)
    if ctx.needs_privilege:
        raise reasons.RefusedError(
            "pod-security",
            f"{facts.format_problem(ctx.known, level, 'hostPath')}, and hostPath {names.DEV_INFINIBAND} is the "
            f"only way to the devices of fabric {ctx.fabric_name}; run the pod in a privileged namespace or name a "
            "device-plugin resource in the policy",
        )
    left_out = facts.explain_level(ctx.known, level, f"hostPath {names.DEV_INFINIBAND}")
    return pod_changes.Contribution(skipped={entry: left_out}, warnings=(left_out,))


def _check_host_paths(ctx: context.InjectionContext) -> None:
    """Raise RefusedError if the namespace forbids the directories of the node that the fabric needs."""
    level = facts.find_level(ctx.known)
    if ctx.fabric.mounts.host_paths and level is not None:
        path = ctx.fabric.mounts.host_paths[0].path
        raise reasons.RefusedError(
            "pod-security",
            f"{facts.format_problem(ctx.known, level, 'hostPath')}, and fabric {ctx.fabric_name} needs {path} of the "
            "node; run the pod in a privileged namespace",
        )


def _compile_volumes(document: policies.PolicyDocument) -> Mapping[str, tuple[FabricVolume, ...]]:
    """Return the host paths and ConfigMaps of each fabric, by the fabric's name."""
    return {
        name: (
            *map(build_host_path, fabric.mounts.host_paths),
            *map(_build_config_map, fabric.mounts.config_maps),
        )
        for name, fabric in document.fabrics.items()
    }


def build_host_path(host_path: policies.HostPath) -> FabricVolume:
    """Return the volume and the mount of a directory of the node."""
    mount_path = views.clean_path(host_path.mount_path or host_path.path)
    name = _name_volume("host", host_path.path)
    return FabricVolume(
        entry=f"mounts.{mount_path}",
        reason=f"the fabric needs {host_path.path} of the node",
        volume={"name": name, "hostPath": {"path": host_path.path}},
        mount={"name": name, "mountPath": mount_path} | ({"readOnly": True} if host_path.read_only else {}),
        is_ours=lambda volume: volume.host_path is not None and volume.host_path.get("path") == host_path.path,
    )


def _build_config_map(config_map: policies.ConfigMapMount) -> FabricVolume:
    mount_path = views.clean_path(config_map.mount_path)
    name = _name_volume("config", config_map.name)
    sub_path = {"subPath": config_map.key} if config_map.key else {}
    return FabricVolume(
        entry=f"mounts.{mount_path}",
        reason=f"the fabric needs ConfigMap {config_map.name}",
        volume={"name": name, "configMap": {"name": config_map.name}},
        mount={"name": name, "mountPath": mount_path, **sub_path, "readOnly": True},
        is_ours=lambda volume: volume.config_map is not None and volume.config_map.get("name") == config_map.name,
    )


def _name_volume(kind: str, source: str) -> str:
    """Return a volume's name. It depends on the source only, so that a template of an older policy keeps it."""
    return f"{names.VOLUME_PREFIX}{kind}-{hashlib.sha256(source.encode()).hexdigest()[:_DIGEST]}"


def _compile_shared_memory(document: policies.PolicyDocument) -> Mapping[str, FabricVolume]:
    """Return the memory volume of each fabric that has one, by the fabric's name."""
    sizes = {name: fabric.mounts.shared_memory for name, fabric in document.fabrics.items()}
    return {name: _build_shared_memory(size) for name, size in sizes.items() if size is not None}


def _build_shared_memory(size: str | int) -> FabricVolume:
    return FabricVolume(
        entry=f"mounts.{names.DEV_SHM}",
        reason=f"{size} of memory for NCCL's host buffers; NCCL fails with the container runtime's default of 64 MiB",
        volume={"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}},
        mount={"name": SHARED_MEMORY, "mountPath": names.DEV_SHM},
        is_ours=lambda volume: volume.empty_dir is not None,
    )


_INFINIBAND = FabricVolume(
    entry=f"mounts.{names.DEV_INFINIBAND}",
    reason="no device plugin provides these devices",
    volume={"name": INFINIBAND, "hostPath": {"path": names.DEV_INFINIBAND}},
    mount={"name": INFINIBAND, "mountPath": names.DEV_INFINIBAND},
    is_ours=lambda volume: volume.host_path is not None and volume.host_path.get("path") == names.DEV_INFINIBAND,
)


def _build_file(entry: str, reason: str, name: str, annotation: str, path: str) -> FabricVolume:
    """Return the volume of a file with an annotation of the pod.

    A downwardAPI volume needs no ConfigMap in the user's namespace, and every pod-security level allows it.
    """
    file_name = path.rpartition("/")[2]
    items = [{"path": file_name, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}]
    return FabricVolume(
        entry=entry,
        reason=reason,
        volume={"name": name, "downwardAPI": {"items": items}},
        mount={"name": name, "mountPath": path, "subPath": file_name, "readOnly": True},
        is_ours=lambda volume: volume.downward_api is not None,
    )


_RANKS_OF_SSH = "delivers NCCL's settings to ranks that do not inherit the container's environment"
NCCL_CONF_FILE = _build_file("nccl.conf", _RANKS_OF_SSH, NCCL_CONF, names.NCCL_CONF, names.NCCL_CONF_PATH)
_CLAIMED_DEVICES = "shows the preflight which devices the pod's claims hold"
PLACEMENT_FILE = _build_file("preflight", _CLAIMED_DEVICES, PLACEMENT, names.PLACEMENT, names.PLACEMENT_PATH)
