"""What a scheduler asks, in the domain's words: the pod, its gang and the nodes it may go to.

Both protocols are translated into this one value; nothing downstream knows which of them asked.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import resources, views, workload
from railwright.fabric.placement import rails
from railwright.fabric.policy import model, presets

Pools = Mapping[tuple[str, str], str]
"""(namespace, name) of a network -> the resource it draws on."""


class Offer(msgspec.Struct, frozen=True):
    """What a scheduler itself says of a node it offers, in its running session.

    `promised` adds what is being released and not yet promised, where there is any. Both are without what pods of
    other schedulers are announced to take, which is `elsewhere`.
    """

    free: resources.Amounts
    promised: resources.Amounts | None = None
    emptied: bool = False  # True: not what is free, but what would be without the node's pods (preemption)
    elsewhere: resources.Amounts = {}


class Ask(msgspec.Struct, frozen=True):
    """One pod to be placed on one of the nodes."""

    uid: str
    namespace: str
    name: str
    spec: views.PodSpec
    gang: workload.GangKey
    rank: workload.Rank
    requests: resources.Amounts
    fabric_name: str
    fabric: model.Fabric
    domains: tuple[str, ...]
    needs: tuple[rails.Need, ...]
    accelerators: tuple[str, ...]
    nodes: Sequence[str]
    shapes: tuple[model.NodeShape, ...] = ()
    policy: str = ""  # its digest: what was worked out under another policy does not hold
    offers: Mapping[str, Offer] = {}  # by node; empty where the scheduler's protocol says nothing of what is free

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


def of_pod(  # noqa: PLR0913 - one argument a fact of the protocol
    pod: views.Pod,
    policy: model.Policy | None,
    pools: Pools,
    nodes: Sequence[str],
    *,
    offers: Mapping[str, Offer] | None = None,
    requests: resources.Amounts,
    volcano_job: str = "",
    uid: str = "",
) -> Ask | None:
    """The ask for a pod; None for one that did not opt in, or while there is no policy: it is neutral."""
    if policy is None:
        return None
    fabric_name, fabric = rails.fabric_of(pod, policy.document)
    if fabric is None:
        return None
    fabric = rails.counted(fabric, pools)
    return Ask(
        uid=uid or pod.metadata.identity,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        spec=pod.spec,
        gang=workload.gang_of(pod, volcano_job),
        rank=workload.rank_of(pod),
        requests=requests,
        fabric_name=fabric_name,
        fabric=fabric,
        domains=presets.domains(fabric.placement),
        needs=rails.needs_of(pod, requests, fabric),
        accelerators=policy.document.accelerators,
        nodes=nodes,
        shapes=policy.document.node_shapes,
        policy=policy.digest,
        offers=offers or {},
    )


def slim(spec: views.PodSpec) -> views.PodSpec:
    """What of a spec places a pod, without what may be megabytes (environment, commands, volumes)."""
    return views.PodSpec(
        containers_or_none=[views.Container(name=each.name, resources=each.resources) for each in spec.containers],
        init_containers=[
            views.InitContainer(name=each.name, resources=each.resources, restart_policy=each.restart_policy)
            for each in spec.init_containers or ()
        ],
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        scheduling_group=spec.scheduling_group,
        workload_ref=spec.workload_ref,
        resources=spec.resources,
    )
