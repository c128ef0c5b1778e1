"""Caches responses for equal pods, so that the later pods of a gang cost a look-up instead of a plan.

A response is reused for the same policy, the same networks and nodes, and an equal key of
`railwright.fabric.injection.plan_cache_key`. Rejections are not cached, because their messages name the pod.
"""

import msgspec

from railwright.fabric import bounded_cache, views
from railwright.fabric.injection import facts, plan_cache_key
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering

_MAX_RESPONSES = 256  # a few KiB each; covers the gangs, roles and sizes that start within minutes


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
        self._responses: bounded_cache.BoundedCache[bytes, CachedResponse] = bounded_cache.BoundedCache(_MAX_RESPONSES)

    def build_key(self, pod: views.Pod, policy: policies.Policy, cluster_facts: facts.ClusterFacts) -> bytes | None:
        """Return the pod's cache key, or None if its response must not be cached.

        Clears the cache if the policy or the facts have changed.
        """
        if cluster_facts.version is None:
            return None
        version = (policy.digest, cluster_facts.version)
        if version != self._version:
            self._responses.clear()
            self._version = version
        rank_variables = policy.compile_once(plan_cache_key.find_rank_variables)
        by_gang = policy.compile_once(plan_cache_key.has_claims)
        return plan_cache_key.build_key(pod, cluster_facts, rank_variables, by_gang=by_gang)

    def find(self, key: bytes) -> CachedResponse | None:
        """Return the response to an earlier pod with this key."""
        return self._responses.get(key)

    def add(self, key: bytes, response: CachedResponse) -> None:
        """Add a response."""
        self._responses.add(key, response)
