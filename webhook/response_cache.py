"""Caches responses for equal pods, so that the later pods of a gang cost a look-up instead of a plan.

A response is reused under the same policy, networks and nodes, for a pod with an equal key. The key has everything in
the view of a pod except what differs between pods of one gang and no plan depends on: a difference that is not removed
costs time and never causes a wrong result. Rejections are not cached, because their messages name the pod.
"""

from collections.abc import Mapping

import msgspec

from railwright.fabric import bounded_cache, views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import membership, registry

_MAX_RESPONSES = 256  # a few KiB each; covers the gangs, roles and sizes that start within minutes
_MAX_KEY = 16384  # bytes; longer keys are not worth the memory
_MAX_ANNOTATIONS = 32 * 1024  # characters of up to four bytes; below, the length of annotations affects no plan
# Labels and annotations with the index of a pod in its job. Roles depend on their presence, never on their value.
_INDEX_KEYS = frozenset(key for framework in registry.FRAMEWORKS for key in framework.index_keys)
# Variables that differ between the pods of a job: those of the frameworks, and variables that users set in any job.
_RANK_VARIABLES = frozenset(
    {"POD_NAME", "POD_IP", "HOSTNAME"}.union(*(row.rank_variables for row in registry.FRAMEWORKS))
)
_TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - a volume's name: the API server appends five random letters
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - the mount path of that volume
_TOKEN = views.Volume(name=_TOKEN_VOLUME)  # views show only the name of a projected volume
_encode = msgspec.msgpack.Encoder().encode


class CachedResponse(msgspec.Struct, frozen=True):
    """A response without the request's uid, and what metrics and Events report about it."""

    response: bytes  # the fields of `response` after the uid
    outcome: str
    fabric: str
    role: str
    operations: int
    warnings: tuple[rendering.Message, ...]


class ResponseCache:
    """Holds the responses under one version of the policy and of the cluster facts. Used by one event loop."""

    def __init__(self) -> None:
        self._version: tuple[str, int] | None = None
        self.by_key: bounded_cache.BoundedCache[bytes, CachedResponse] = bounded_cache.BoundedCache(_MAX_RESPONSES)

    def build_key(self, pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> bytes | None:
        """Return what the pod's plan may depend on; None if its response must not be cached or that is too long.

        Clears the cache of another version.
        """
        metadata, spec = pod.metadata, pod.spec
        annotations = metadata.annotations
        if cluster.version is None or sum(map(len, annotations.values())) > _MAX_ANNOTATIONS:
            return None
        version = (policy.digest, cluster.version)
        if version != self._version:
            self.by_key.clear()
            self._version = version
        rank_variables, has_claims = policy.compile_once(_find_inputs)
        inputs = (
            (cluster.namespace, cluster.namespace_labels, cluster.watched),
            (_remove_indexes(metadata.labels), metadata.annotations_or_none is None, _remove_indexes(annotations)),
            membership.find_gang(pod) if has_claims else None,  # a claim depends on the gang, which labels may not show
            msgspec.structs.replace(spec, containers_or_none=None, volumes_or_none=None),
            (spec.volumes_or_none is None, [_TOKEN if _is_token(volume) else volume for volume in spec.volumes]),
            [_normalize(container, rank_variables) for container in spec.containers],
        )
        try:
            key = _encode(inputs)
        except OverflowError:  # a number beyond 64 bits
            return None
        return key if len(key) <= _MAX_KEY else None


def _find_inputs(document: policies.FabricPolicy) -> tuple[frozenset[str], bool]:
    """Return the variables with values that no plan under the policy reads, and whether a fabric has claims."""
    fabrics = document.fabrics.values()
    read = [name for fabric in fabrics for name in (*fabric.env, *fabric.force_env)]
    return _RANK_VARIABLES.difference(read), any(fabric.claims is not None for fabric in fabrics)


def _normalize(container: views.Container, rank_variables: frozenset[str]) -> tuple[object, ...]:
    env, mounts = container.env_or_none, container.volume_mounts_or_none
    return (
        msgspec.structs.replace(container, env_or_none=None, volume_mounts_or_none=None),
        None if env is None else [entry.name if entry.name in rank_variables else entry for entry in env],
        None if mounts is None else [_TOKEN_PATH if _is_token_mount(mount) else mount for mount in mounts],
    )


def _remove_indexes(values: Mapping[str, str]) -> Mapping[str, str]:
    return {name: "" if name in _INDEX_KEYS else value for name, value in values.items()}


def _is_token(volume: views.Volume) -> bool:
    """True for the projected volume of the service account's token."""
    return _is_token_name(volume.name) and msgspec.structs.replace(volume, name=_TOKEN_VOLUME) == _TOKEN


def _is_token_mount(mount: views.VolumeMount) -> bool:
    return mount.mount_path == _TOKEN_PATH and _is_token_name(mount.name)


def _is_token_name(name: str) -> bool:
    """True for the prefix and random letters. A name with a further dash may be that of a job's Secret."""
    return name.startswith(_TOKEN_VOLUME) and "-" not in name[len(_TOKEN_VOLUME) :]
