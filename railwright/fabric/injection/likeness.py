"""What a pod's plan follows from, as a key: pods of one key get one plan, so that the mates of a gang are planned once.

Owns the short list of what differs between mates and decides nothing; everything else that a view shows is in the key,
so that what a concern reads tomorrow is in it too. A name missing from the lists costs time, never a wrong plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies

_LONGEST = 16384  # bytes of a key: longer ones are not worth their room
# Characters, of up to four bytes each: far from the limit nothing follows from how long an annotation is exactly.
_MOST_ANNOTATIONS = 32 * 1024
# Labels and annotations that number the mates of a job. Roles look at whether one is there, never at its number.
_NUMBERS = frozenset(
    {
        names.VOLCANO_TASK_INDEX,
        names.KUBEFLOW_REPLICA_INDEX,
        names.BATCH_INDEX,
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "jobset.sigs.k8s.io/job-global-index",
        "jobset.sigs.k8s.io/job-key",
    }
)
# Variables by which job controllers tell a rank its number; no transport and no rule knows them.
_RANKS = frozenset(
    {
        "RANK",
        "NODE_RANK",
        "PET_NODE_RANK",
        "VC_TASK_INDEX",
        "VK_TASK_INDEX",
        "TF_CONFIG",
        "JOB_COMPLETION_INDEX",
        "POD_NAME",
        "POD_IP",
        "HOSTNAME",
    }
)
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a volume's name: the API server ends it with five letters of chance
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where it mounts that volume
_TOKEN = views.Volume(name=_TOKEN_VOLUME)  # of a projected volume a view shows the name alone
_encode = msgspec.msgpack.Encoder().encode


def ranks(document: policies.FabricPolicy) -> frozenset[str]:
    """The variables whose value no plan under a policy looks at: its own literals are another matter."""
    return _RANKS.difference(*([*fabric.env, *fabric.force_env] for fabric in document.fabrics.values()))


def key(pod: views.Pod, known: facts.Facts, numbers: frozenset[str]) -> bytes | None:
    """The key of a pod under one policy and one state of networks and nodes; None for one not to be remembered.

    `numbers` are the policy's `ranks`.
    """
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations_or_none
    if annotations and sum(map(len, annotations.values())) > _MOST_ANNOTATIONS:
        return None
    followed = (
        known.namespace,
        known.namespace_labels,
        known.watched,
        _unnumbered(metadata.labels_or_none),
        _unnumbered(annotations),
        msgspec.structs.replace(spec, containers_or_none=None, volumes_or_none=None),
        volumes(spec),
        [_container(each, numbers) for each in spec.containers],
    )
    try:
        found = _encode(followed)
    except OverflowError:  # a number beyond 64 bits
        return None
    return found if len(found) <= _LONGEST else None


def _unnumbered(written: Mapping[str, str] | None) -> Mapping[str, str] | None:
    if written is None or _NUMBERS.isdisjoint(written):
        return written
    return {name: "" if name in _NUMBERS else value for name, value in written.items()}


def volumes(spec: views.PodSpec) -> Sequence[views.Volume] | None:
    """The pod's volumes, that of its token under a name all pods share."""
    there = spec.volumes_or_none
    if there is None:
        return None
    return [_TOKEN if _is_token_volume(each) else each for each in there]


def _is_token_volume(volume: views.Volume) -> bool:
    """True for a projected volume of that name: of a Secret of that name it matters where it is mounted."""
    return _is_token_name(volume.name) and msgspec.structs.replace(volume, name=_TOKEN_VOLUME) == _TOKEN


def mounts(container: views.Container) -> Sequence[views.VolumeMount | str] | None:
    """The container's mounts, that of the pod's token by its path alone."""
    there = container.volume_mounts_or_none
    return None if there is None else [_TOKEN_PATH if _is_token(each) else each for each in there]


def _container(container: views.Container, numbers: frozenset[str]) -> tuple[Any, ...]:
    env = container.env_or_none
    return (
        msgspec.structs.replace(container, env_or_none=None, volume_mounts_or_none=None),
        mounts(container),
        None if env is None else [each.name if each.name in numbers else each for each in env],
    )


def _is_token(mount: views.VolumeMount) -> bool:
    return mount.mount_path == _TOKEN_PATH and _is_token_name(mount.name)


def _is_token_name(name: str) -> bool:
    """True for letters of chance behind the prefix: a name with a dash there may be that of a job's Secret."""
    return name.startswith(_TOKEN_VOLUME) and "-" not in name[len(_TOKEN_VOLUME) :]
