"""Mounts a fabric needs: /dev/infiniband where the policy says so, memory at /dev/shm where nothing is mounted.

Owns the names of our volumes. What is mounted at a path already is left alone, whoever put it there.
"""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import model, pod_security

INFINIBAND, SHARED_MEMORY, NCCL_CONF = (f"{names.VOLUME_PREFIX}{name}" for name in ("infiniband", "shm", "nccl-conf"))

_DEV = names.DEV_SHM.rpartition("/")[0]


class Wanted(msgspec.Struct, frozen=True):
    """A volume of ours and where it goes; `is_ours` tells it from a user's volume of the same name."""

    entry: str
    reason: str
    volume: Mapping[str, Any]
    mount: Mapping[str, Any]
    is_ours: Callable[[views.Volume], bool]

    @property
    def name(self) -> str:
        """The volume's name."""
        return str(self.volume["name"])

    @property
    def path(self) -> str:
        """Where it is mounted."""
        return str(self.mount["mountPath"])


def mount(aim: aims.Aim) -> model.Part:
    """The mounts of the policy. Raises RefusedError."""
    wanted = aim.fabric.mounts
    if not aim.role.rails or not (wanted.dev_infiniband or wanted.shared_memory is not None):
        return model.NOTHING
    if "mounts" in aim.wishes.skip:
        return model.Part(skipped={"mounts": f"by annotation {names.SKIP}"})
    parts = []
    if wanted.dev_infiniband and aim.rails:
        parts.append(_infiniband(aim))
    if wanted.shared_memory is not None:
        parts.append(_shared(aim, _shared_memory(wanted.shared_memory)))
    return model.join(parts)


def place(aim: aims.Aim, wanted: Wanted, containers: tuple[int, ...]) -> model.Part:
    """Our volume mounted into these containers, where nothing else is mounted at its path. Raises RefusedError."""
    free, ours = [], []
    for index in containers:
        there = _mounted_at(aim.container(index), wanted.path)
        if there is None:
            free.append(index)
        elif there == wanted.name:
            ours.append(index)
    if not free and not ours:
        theirs = model.listed(aim.container(index).name for index in containers)
        return model.Part(skipped={wanted.entry: f"container {theirs} mounts {wanted.path} itself"})
    volume = _volume(aim, wanted)
    changes: list[model.AnyChange] = [volume] if volume else []
    changes += [
        model.AddMount(entry=wanted.entry, reason=wanted.reason, container=index, mount=wanted.mount) for index in free
    ]
    return model.Part(changes=tuple(changes), entries=(wanted.entry,))


def mounts_itself(container: views.Container, wanted: Wanted) -> bool:
    """True where the container has something of its own at the path."""
    return _mounted_at(container, wanted.path) not in {None, wanted.name}


def _shared(aim: aims.Aim, memory: Wanted) -> model.Part:
    """Mount shared memory, unless the pod has the host's: NCCL takes ranks with another /dev/shm for another host's."""
    if aim.pod.spec.host_ipc:
        return model.Part(skipped={memory.entry: f"spec.hostIPC is true: {names.DEV_SHM} is the host's"})
    own = tuple([index for index in aim.targets if not _has_host_devices(aim, index)])
    if not own:
        theirs = model.listed(aim.container(index).name for index in aim.targets)
        return model.Part(skipped={memory.entry: f"container {theirs} mounts {_DEV} of the host"})
    return place(aim, memory, own)


def _has_host_devices(aim: aims.Aim, index: int) -> bool:
    """Return True if the container mounts /dev of the host, and so has the host's /dev/shm."""
    volumes = {mount.name for mount in aim.container(index).volume_mounts if mount.path == _DEV}
    return any(_is_host_dev(volume) for volume in aim.pod.spec.volumes if volume.name in volumes)


def _is_host_dev(volume: views.Volume) -> bool:
    path = (volume.host_path or {}).get("path")
    return isinstance(path, str) and posixpath.normpath(f"/{path.lstrip('/')}") == _DEV


def _infiniband(aim: aims.Aim) -> model.Part:
    level = pod_security.level(aim.known)
    entry = f"mounts.{names.DEV_INFINIBAND}"
    if level is None:
        return place(aim, _INFINIBAND, aim.targets)
    problem = f"namespace {aim.known.namespace} enforces pod-security level {level}, which forbids hostPath"
    if pod_security.only_way(aim):
        raise model.RefusedError(
            "pod-security",
            f"{problem}, and hostPath {names.DEV_INFINIBAND} is the only way to the devices of fabric "
            f"{aim.fabric_name}; run the pod in a privileged namespace or name a device-plugin resource in the policy",
        )
    return model.Part(
        skipped={entry: f"pod-security level {level}"},
        warnings=(f"{problem}: {names.DEV_INFINIBAND} is not mounted; {pod_security.ELSEWHERE}",),
    )


def _shared_memory(size: str | int) -> Wanted:
    return Wanted(
        entry=f"mounts.{names.DEV_SHM}",
        reason=f"{size} of memory for NCCL's host buffers; the runtime's default of 64 MiB makes NCCL fail",
        volume={"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}},
        mount={"name": SHARED_MEMORY, "mountPath": names.DEV_SHM},
        is_ours=lambda volume: volume.empty_dir is not None,
    )


_INFINIBAND = Wanted(
    entry=f"mounts.{names.DEV_INFINIBAND}",
    reason="no device plugin provides these devices",
    volume={"name": INFINIBAND, "hostPath": {"path": names.DEV_INFINIBAND}},
    mount={"name": INFINIBAND, "mountPath": names.DEV_INFINIBAND},
    is_ours=lambda volume: volume.host_path is not None and volume.host_path.get("path") == names.DEV_INFINIBAND,
)


# No ConfigMap in the user's namespace, and allowed at every pod-security level.
NCCL_CONF_FILE = Wanted(
    entry="nccl.conf",
    reason="delivers NCCL's settings to ranks that do not inherit the container's environment",
    volume={
        "name": NCCL_CONF,
        "downwardAPI": {
            "items": [{"path": "nccl.conf", "fieldRef": {"fieldPath": f"metadata.annotations['{names.NCCL_CONF}']"}}]
        },
    },
    mount={"name": NCCL_CONF, "mountPath": names.NCCL_CONF_PATH, "subPath": "nccl.conf", "readOnly": True},
    is_ours=lambda volume: volume.secret is None and volume.host_path is None and volume.empty_dir is None,
)


def _mounted_at(container: views.Container, path: str) -> str | None:
    """The volume at a path, mounted or as a block device: the API server allows one of the two at a path."""
    there = [(each.path, each.name) for each in container.volume_mounts]
    there += [(each.path, each.name) for each in container.volume_devices or ()]
    return next((name for at, name in there if at == path), None)


def _volume(aim: aims.Aim, wanted: Wanted) -> model.AddVolume | None:
    """The volume, unless the pod has it. Raises RefusedError where another volume has its name."""
    there = next((volume for volume in aim.pod.spec.volumes if volume.name == wanted.name), None)
    if there is None:
        return model.AddVolume(entry=wanted.entry, reason=wanted.reason, volume=wanted.volume)
    if not wanted.is_ours(there):
        raise model.RefusedError(
            "volume", f"spec.volumes has another volume named {wanted.name}, which is railwright's name; rename it"
        )
    return None
