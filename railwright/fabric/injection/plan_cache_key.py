"""Builds the cache key of a plan: equal pods get one plan, so that the pods of a gang are planned once.

The key has everything in the view of a pod except a few fields that differ between peers (`pod_normalization`, and the
variables with the number of a rank).
"""

from typing import Any

import msgspec

from railwright.fabric import pod_normalization, views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies
from railwright.fabric.workloads import membership, registry

_MAX_KEY = 16384  # bytes; longer keys are not worth the memory
# In characters of up to four bytes. Below this size, the length of annotations cannot affect the plan.
_MAX_ANNOTATIONS = 32 * 1024
# Variables that differ between the pods of a job and whose value no plan depends on: those of the frameworks, and
# variables that users set in any job.
_RANK_VARIABLES = frozenset(name for framework in registry.FRAMEWORKS for name in framework.rank_variables) | {
    "POD_NAME",
    "POD_IP",
    "HOSTNAME",
}
_encode = msgspec.msgpack.Encoder().encode


def find_rank_variables(document: policies.FabricPolicy) -> frozenset[str]:
    """Return the variables with values that no plan under the policy reads. The policy's own literals are excluded."""
    return _RANK_VARIABLES.difference(*([*fabric.env, *fabric.force_env] for fabric in document.fabrics.values()))


def has_claims(document: policies.FabricPolicy) -> bool:
    """True if the rails of a fabric come as claims."""
    return any(fabric.claims is not None for fabric in document.fabrics.values())


def build_key(
    pod: views.Pod, cluster: facts.ClusterFacts, rank_variables: frozenset[str], *, by_gang: bool = False
) -> bytes | None:
    """Return the cache key of a pod under one policy and one version of networks and nodes.

    Return None for a pod that is not to be cached. `rank_variables` is the result of `find_rank_variables`. `by_gang`:
    the plan depends on the gang, which its labels may not show.
    """
    metadata, spec = pod.metadata, pod.spec
    annotations = metadata.annotations_or_none
    if annotations and sum(map(len, annotations.values())) > _MAX_ANNOTATIONS:
        return None
    inputs = (
        cluster.namespace,
        cluster.namespace_labels,
        cluster.watched,
        pod_normalization.remove_indexes(metadata.labels_or_none),
        pod_normalization.remove_indexes(annotations),
        membership.find_gang(pod) if by_gang else None,
        msgspec.structs.replace(spec, containers_or_none=None, volumes_or_none=None),
        pod_normalization.normalize_volumes(spec),
        [_normalize_container(container, rank_variables) for container in spec.containers],
    )
    try:
        encoded = _encode(inputs)
    except OverflowError:  # a number beyond 64 bits
        return None
    return encoded if len(encoded) <= _MAX_KEY else None


def _normalize_container(container: views.Container, rank_variables: frozenset[str]) -> tuple[Any, ...]:
    env = container.env_or_none
    return (
        msgspec.structs.replace(container, env_or_none=None, volume_mounts_or_none=None),
        pod_normalization.normalize_mounts(container),
        None if env is None else [entry.name if entry.name in rank_variables else entry for entry in env],
    )
