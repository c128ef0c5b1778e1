"""Caches responses for equal pods, so that later pods of a gang, and of other jobs like it, are not planned again.

A response is reused under the same policy, networks and nodes, for a pod with an equal excerpt, from which it was
planned. Rejections are not cached, because their messages name the pod.
"""

import msgspec

from railwright.fabric import bounded_cache, pod_excerpt, views
from railwright.fabric.injection import facts
from railwright.fabric.policy import model as policies
from webhook import reviews

_MAX_RESPONSES = 256  # a few KiB each; covers the jobs, roles and sizes that start within minutes
_MAX_KEY = 16384  # bytes; longer keys are not worth the memory
_encode = msgspec.msgpack.Encoder().encode


class Entry(msgspec.Struct, frozen=True):
    """The excerpt of a pod, and its key in the cache."""

    key: bytes
    excerpt: views.Pod


class ResponseCache:
    """Holds the answers under one version of the policy and of the cluster facts. Used by one event loop."""

    def __init__(self) -> None:
        self._version: tuple[str, int] | None = None
        self.by_key: bounded_cache.BoundedCache[bytes, reviews.Answer] = bounded_cache.BoundedCache(_MAX_RESPONSES)

    def build_entry(
        self, pod: views.Pod, size: int, policy: policies.Policy, cluster: facts.ClusterFacts
    ) -> Entry | None:
        """Return the excerpt and the key of a pod of at most `size` bytes. Clears the cache of another version.

        Return None for a response that must not be cached or is not worth it.
        """
        if cluster.version is None or size > pod_excerpt.MAX_POD:
            return None
        version = (policy.digest, cluster.version)
        if version != self._version:
            self.by_key.clear()
            self._version = version
        excerpt = pod_excerpt.build(pod, policy)
        try:
            key = _encode((cluster.namespace, cluster.namespace_labels, cluster.watched, excerpt))
        except OverflowError:  # a number beyond 64 bits
            return None
        return Entry(key, excerpt) if len(key) <= _MAX_KEY else None
