"""The fields of pods that placement uses."""

import msgspec

from railwright.fabric import intent, interning, resources, views
from railwright.fabric.claims import claim_index
from railwright.fabric.workloads import membership


class PodInfo(msgspec.Struct, gc=False, frozen=True):
    """The fields of a pod that placement uses."""

    uid: str
    key: str  # namespace/name; one string object shared by all explanations
    node: str  # "" until bound
    gang: membership.GangKey
    rank: membership.Rank
    requests: resources.FrozenAmounts  # of its containers and of its claims
    container_requests: resources.FrozenAmounts
    claim_names: tuple[str, ...]  # namespace/name of the claims that its spec names
    templates: tuple[claim_index.NamedTemplate, ...] = ()  # from which claims are generated for it
    bound_at: str = ""  # RFC 3339 in seconds, by the API server's clock; "" until bound or if unknown
    policy: str = ""  # digest of the policy it was admitted under; "" if it was not injected
    priority: int = 0
    scheduler: str = ""  # spec.schedulerName

    @property
    def claims(self) -> claim_index.PodKey:
        """Return the key of its claims."""
        return claim_index.PodKey(self.uid, self.claim_names, self.templates)


def read_pod(
    pod: views.Pod, interner: interning.StringInterner, container_requests: resources.FrozenAmounts
) -> PodInfo:
    """Return the fields of a pod. Its requests are those of its containers, without those of its claims."""
    claims = claim_index.identify_claims(pod)
    return PodInfo(
        uid=claims.uid,
        key=f"{pod.metadata.namespace}/{pod.metadata.name}",
        node=interner.intern(pod.spec.node_name),
        gang=membership.GangKey(interner.intern(membership.find_gang(pod))),
        rank=membership.find_rank(pod),
        requests=container_requests,
        container_requests=container_requests,
        claim_names=claims.claims,
        templates=claims.templates,
        bound_at=pod.status.bound_at if pod.spec.node_name else "",
        policy=interner.intern(intent.read_record(pod).digest),
        priority=pod.spec.priority or 0,
        scheduler=interner.intern(pod.spec.scheduler_name),
    )
