"""Removes from the view of a pod what differs between pods of one gang, so that equal pods have equal cache keys.

A difference that is not removed here costs time and never causes a wrong result.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import registry

# Labels and annotations with the index of a pod in its job. Roles depend on their presence, never on their value.
_INDEX_KEYS = frozenset(key for framework in registry.FRAMEWORKS for key in framework.index_keys)
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a volume's name: the API server appends five random letters
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - the mount path of that volume
_TOKEN = views.Volume(name=_TOKEN_VOLUME)  # views show only the name of a projected volume


def remove_indexes(values: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return labels or annotations with empty values for the index of a pod in its job."""
    if values is None or _INDEX_KEYS.isdisjoint(values):
        return values
    return {name: "" if name in _INDEX_KEYS else value for name, value in values.items()}


def normalize_volumes(spec: views.PodSpec) -> Sequence[views.Volume] | None:
    """Return the pod's volumes. The volume of the service account token gets a name that all pods share."""
    pod_volumes = spec.volumes_or_none
    if pod_volumes is None:
        return None
    return [
        _TOKEN if volume.name.startswith(_TOKEN_VOLUME) and _is_token_volume(volume) else volume
        for volume in pod_volumes
    ]


def normalize_mounts(container: views.Container) -> Sequence[views.VolumeMount | str] | None:
    """Return the container's mounts. The mount of the service account token is reduced to its path."""
    container_mounts = container.volume_mounts_or_none
    if container_mounts is None:
        return None
    return [
        _TOKEN_PATH if mount.mount_path == _TOKEN_PATH and _is_token_name(mount.name) else mount
        for mount in container_mounts
    ]


def _is_token_volume(volume: views.Volume) -> bool:
    """True for a projected token volume. Views show only the name of such a volume."""
    return _is_token_name(volume.name) and msgspec.structs.replace(volume, name=_TOKEN_VOLUME) == _TOKEN


def _is_token_name(name: str) -> bool:
    """True for the prefix and random letters. A name with a further dash may be that of a job's Secret."""
    return name.startswith(_TOKEN_VOLUME) and "-" not in name[len(_TOKEN_VOLUME) :]
