"""Builds the cache key of a plan: equal pods get one plan, so that the pods of a gang are planned once.

The key has everything in the view of a pod except a short list of fields that differ between peers. A field missing
from the list costs time and never causes a wrong plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import registry

_MAX_KEY = 16384  # bytes; longer keys are not worth the memory
# In characters of up to four bytes. Below this size, the length of annotations cannot affect the plan.
_MAX_ANNOTATIONS = 32 * 1024
# Labels, annotations and variables that differ between the pods of a job and whose value no plan depends on: those of
# the frameworks, and variables that users set in any job.
_INDEX_KEYS = frozenset(key for framework in registry.FRAMEWORKS for key in framework.index_keys)
_RANK_VARIABLES = frozenset(name for framework in registry.FRAMEWORKS for name in framework.rank_variables) | {
    "POD_NAME",
    "POD_IP",
    "HOSTNAME",
}
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a volume's name: the API server appends five random letters
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - the mount path of that volume
_TOKEN = views.Volume(name=_TOKEN_VOLUME)  # views show only the name of a projected volume
_encode = msgspec.msgpack.Encoder().encode


def ranks(document: policies.FabricPolicy) -> frozenset[str]:
    """Return the variables with values that no plan under the policy reads. The policy's own literals are excluded."""
    return _RANK_VARIABLES.difference(*([*fabric.env, *fabric.force_env] for fabric in document.fabrics.values()))


def key(pod: views.Pod, cluster: facts.Facts, rank_variables: frozenset[str]) -> bytes | None:
    """Return the cache key of a pod under one policy and one version of networks and nodes.

    Return None for a pod that is not to be cached. `rank_variables` is the result of `ranks`.
    """
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations_or_none
    if annotations and sum(map(len, annotations.values())) > _MAX_ANNOTATIONS:
        return None
    inputs = (
        cluster.namespace,
        cluster.namespace_labels,
        cluster.watched,
        _remove_indexes(metadata.labels_or_none),
        _remove_indexes(annotations),
        msgspec.structs.replace(spec, containers_or_none=None, volumes_or_none=None),
        volumes(spec),
        [_normalize_container(container, rank_variables) for container in spec.containers],
    )
    try:
        encoded = _encode(inputs)
    except OverflowError:  # a number beyond 64 bits
        return None
    return encoded if len(encoded) <= _MAX_KEY else None


def _remove_indexes(values: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if values is None or _INDEX_KEYS.isdisjoint(values):
        return values
    return {name: "" if name in _INDEX_KEYS else value for name, value in values.items()}


def volumes(spec: views.PodSpec) -> Sequence[views.Volume] | None:
    """Return the pod's volumes. The volume of the service account token gets a name that all pods share."""
    pod_volumes = spec.volumes_or_none
    if pod_volumes is None:
        return None
    return [_TOKEN if _is_token_volume(volume) else volume for volume in pod_volumes]


def _is_token_volume(volume: views.Volume) -> bool:
    """True for a projected token volume. Views show only the name of such a volume."""
    return _is_token_name(volume.name) and msgspec.structs.replace(volume, name=_TOKEN_VOLUME) == _TOKEN


def mounts(container: views.Container) -> Sequence[views.VolumeMount | str] | None:
    """Return the container's mounts. The mount of the service account token is reduced to its path."""
    container_mounts = container.volume_mounts_or_none
    return (
        None if container_mounts is None else [_TOKEN_PATH if _is_token(mount) else mount for mount in container_mounts]
    )


def _normalize_container(container: views.Container, rank_variables: frozenset[str]) -> tuple[Any, ...]:
    env = container.env_or_none
    return (
        msgspec.structs.replace(container, env_or_none=None, volume_mounts_or_none=None),
        mounts(container),
        None if env is None else [entry.name if entry.name in rank_variables else entry for entry in env],
    )


def _is_token(mount: views.VolumeMount) -> bool:
    return mount.mount_path == _TOKEN_PATH and _is_token_name(mount.name)


def _is_token_name(name: str) -> bool:
    """True for the prefix and random letters. A name with a further dash may be that of a job's Secret."""
    return name.startswith(_TOKEN_VOLUME) and "-" not in name[len(_TOKEN_VOLUME) :]
