"""Adds the mounts of a fabric: /dev/infiniband if the policy requires it, and memory at /dev/shm.

A path where something is already mounted is left unchanged (docs/interface.md 3).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.injection import context, drafts, facts
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

INFINIBAND, SHARED_MEMORY, NCCL_CONF = (f"{names.VOLUME_PREFIX}{name}" for name in ("infiniband", "shm", "nccl-conf"))

_DIGEST = 8  # hexadecimal digits
_DEV = names.DEV_SHM.rpartition("/")[0]
_SOURCES = ("host_path", "empty_dir", "config_map", "downward_api")  # of a volume, in its view


class FabricVolume(msgspec.Struct, frozen=True):
    """A volume that railwright adds, with its mount."""

    entry: str  # of the record
    volume: Mapping[str, Any]
    mount: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the volume's name."""
        return str(self.volume["name"])

    @property
    def path(self) -> str:
        """Return the mount path."""
        return str(self.mount["mountPath"])

    def is_added_by_railwright(self, existing: views.Volume) -> bool:
        """True if a volume of the pod with the same name was added by railwright: it has the same source.

        The size of memory, which may be that of an older policy, and defaults by the API server are ignored.
        """
        volume = msgspec.convert(self.volume, views.Volume)
        sources = [(getattr(volume, kind), getattr(existing, kind)) for kind in _SOURCES]
        return any(
            own is not None and other is not None and all(own.get(key) == other.get(key) for key in ("path", "name"))
            for own, other in sources
        )


def mount_volumes(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Mount the volumes that the policy gives the fabric. Raises RefusedError."""
    settings = ctx.fabric.mounts
    if settings.dev_infiniband and ctx.rails:
        _mount_infiniband(draft, ctx)
    if settings.shared_memory is not None:
        _mount_shared_memory(draft, ctx, str(settings.shared_memory))
    level = facts.find_security_level(ctx.known)
    if settings.host_paths and level is not None:
        path = next(iter(settings.host_paths.values()))
        raise reasons.RefusedError(
            "security",
            f"{facts.format_forbidden(ctx.known, level, 'hostPath')}, and fabric {ctx.fabric_name} needs {path} of the "
            "node; run the pod in a privileged namespace",
        )
    for kind, sources in (("host", settings.host_paths), ("config", settings.config_maps)):
        for path, source in sources.items():
            mount_volume(draft, _build_volume(kind, path, source), ctx.targets)


def add_volume(draft: drafts.Draft, fabric_volume: FabricVolume) -> None:
    """Add a volume without mounting it, unless the pod has it. Raises RefusedError if another has its name."""
    existing = next((volume for volume in draft.pod.spec.volumes if volume.name == fabric_volume.name), None)
    if existing is None:
        draft.spec.append("volumes", fabric_volume.volume, fabric_volume.entry)
    elif not fabric_volume.is_added_by_railwright(existing):
        raise reasons.RefusedError(
            "name-taken",
            f"the pod has another volume named {fabric_volume.name}, and railwright needs this name; rename it in "
            "spec.volumes, or in the volume claim templates of its workload",
        )


def mount_volume(draft: drafts.Draft, fabric_volume: FabricVolume, containers: tuple[int, ...]) -> None:
    """Mount a volume into these containers, unless something else is mounted at its path. Raises RefusedError."""
    pod = draft.pod
    unmounted, existing = [], []
    for index in containers:
        mounted = pod.spec.containers[index].volume_by_path.get(fabric_volume.path)
        if mounted is None:
            unmounted.append(index)
        elif mounted == fabric_volume.name:
            existing.append(index)
    if not unmounted and not existing:
        draft.record_skip(fabric_volume.entry, explain_occupied_path(pod, containers, fabric_volume.path))
        return
    add_volume(draft, fabric_volume)
    for index in unmounted:
        draft.edit_container(index).append("volumeMounts", fabric_volume.mount, fabric_volume.entry)
    draft.add_entry(fabric_volume.entry)


def explain_occupied_path(pod: drafts.EditedPod, containers: tuple[int, ...], path: str) -> reasons.Reason:
    """Return the reason why the policy's volume is not mounted at a path: the containers mount something else there."""
    return reasons.Reason(
        AdmissionCode.PATH_OCCUPIED, f"container {_join_container_names(pod, containers)} mounts {path} itself"
    )


def _join_container_names(pod: drafts.EditedPod, containers: tuple[int, ...]) -> str:
    return text.join_fitting([pod.spec.containers[index].name for index in containers])


def _mount_shared_memory(draft: drafts.Draft, ctx: context.InjectionContext, size: str) -> None:
    """Mount shared memory, unless the pod has the host's.

    NCCL treats ranks with different /dev/shm as ranks on different hosts.
    """
    memory = FabricVolume(  # of NCCL's host buffers, for which the container runtime's default of 64 MiB is too small
        entry=f"mounts.{names.DEV_SHM}",
        volume={"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        mount={"name": SHARED_MEMORY, "mountPath": names.DEV_SHM},
    )
    pod = draft.pod
    if pod.spec.host_ipc:
        shared = reasons.Reason(AdmissionCode.PATH_OCCUPIED, "spec.hostIPC is true: /dev/shm is the host's")
        draft.record_skip(memory.entry, shared)
        return
    containers = tuple([index for index in ctx.targets if not _has_host_devices(pod, index)])
    if containers:
        mount_volume(draft, memory, containers)
    else:
        message = f"container {_join_container_names(pod, ctx.targets)} mounts /dev of the host"
        draft.record_skip(memory.entry, reasons.Reason(AdmissionCode.PATH_OCCUPIED, message))


def _has_host_devices(pod: drafts.EditedPod, index: int) -> bool:
    """True if the author mounts the host's /dev, which contains /dev/shm."""
    if _DEV not in pod.spec.containers[index].volume_by_path:
        return False
    volume_names = {mount.name for mount in pod.spec.containers[index].volume_mounts if mount.path == _DEV}
    return any(
        views.clean_path(str((volume.host_path or {}).get("path"))) == _DEV
        for volume in pod.spec.volumes
        if volume.name in volume_names and not volume.name.startswith(names.VOLUME_PREFIX)
    )


def _mount_infiniband(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    level = facts.find_security_level(ctx.known)
    if level is None:
        mount_volume(draft, _INFINIBAND, ctx.targets)
        return
    draft.record_skip_and_warn(
        _INFINIBAND.entry, context.explain_left_out(ctx, level, f"hostPath {names.DEV_INFINIBAND}")
    )


def _build_volume(kind: str, mount_path: str, source: str) -> FabricVolume:
    """Return the volume and the mount of a directory of the node, or of a ConfigMap."""
    path = views.clean_path(mount_path)
    # the name depends on the source only, so that a template of an older policy keeps it
    name = f"{names.VOLUME_PREFIX}{kind}-{hashlib.sha256(source.encode()).hexdigest()[:_DIGEST]}"
    volume = {"hostPath": {"path": source}} if kind == "host" else {"configMap": {"name": source}}
    return FabricVolume(
        entry=f"mounts.{path}",
        volume={"name": name, **volume},
        mount={"name": name, "mountPath": path, "readOnly": True},
    )


_INFINIBAND = FabricVolume(
    entry=f"mounts.{names.DEV_INFINIBAND}",
    volume={"name": INFINIBAND, "hostPath": {"path": names.DEV_INFINIBAND}},
    mount={"name": INFINIBAND, "mountPath": names.DEV_INFINIBAND},
)


RAILS = f"{names.VOLUME_PREFIX}rails"
RAILS_ENV = "rails.env"
_FOUND_VOLUME = {"name": RAILS, "emptyDir": {}}
FOUND = FabricVolume(
    entry="found",
    volume=_FOUND_VOLUME,
    mount={"name": RAILS, "mountPath": names.RAILS_PATH, "readOnly": True},
)
FOUND_NCCL_CONF = FabricVolume(
    entry="nccl.conf",
    volume=_FOUND_VOLUME,
    mount={"name": RAILS, "mountPath": names.NCCL_CONF_PATH, "subPath": "nccl.conf", "readOnly": True},
)

FOUND_UCX_CONF = FabricVolume(
    entry="ucx.conf",  # for ranks that ssh starts: UCX reads this file of the home directory
    volume=_FOUND_VOLUME,
    mount={"name": RAILS, "mountPath": f"{names.ROOT_HOME}/ucx.conf", "subPath": "ucx.conf", "readOnly": True},
)


def build_file_reference(variable: str) -> Mapping[str, Any]:
    """Return the `valueFrom` that reads a variable from the init container's file. It may be missing there."""
    return {"fileKeyRef": {"volumeName": RAILS, "path": RAILS_ENV, "key": variable, "optional": True}}


_CONF_FILE = names.NCCL_CONF_PATH.rpartition("/")[2]
# A downwardAPI volume needs no ConfigMap in the user's namespace, and every pod-security level allows it.
_CONF_SOURCE = {"path": _CONF_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{names.NCCL_CONF}']"}}
NCCL_CONF_FILE = FabricVolume(
    entry="nccl.conf",
    volume={"name": NCCL_CONF, "downwardAPI": {"items": [_CONF_SOURCE]}},
    mount={"name": NCCL_CONF, "mountPath": names.NCCL_CONF_PATH, "subPath": _CONF_FILE, "readOnly": True},
)
