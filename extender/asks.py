"""From a scheduler's request to an ask: the pod's fabric, gang, rank and needs by the policy in force."""

from collections.abc import Mapping, Sequence

from extender import volcano_wire
from fabric import resources, views, workload
from fabric.placement import ask, rails
from fabric.policy import model, presets

Pools = Mapping[tuple[str, str], str]
"""(namespace, name) of a network -> the resource it draws on."""


def from_pod(  # noqa: PLR0913 - one argument a fact of the protocol
    pod: views.Pod,
    policy: model.Policy | None,
    pools: Pools,
    nodes: Sequence[str],
    *,
    offers: Mapping[str, ask.Offer] | None = None,
    requests: resources.Amounts,
    volcano_job: str = "",
    uid: str = "",
) -> ask.Ask | None:
    """The ask for a pod; None for one that did not opt in, or while there is no policy: it is neutral."""
    if policy is None:
        return None
    fabric_name, fabric = rails.fabric_of(pod, policy.document)
    if fabric is None:
        return None
    fabric = rails.counted(fabric, pools)
    return ask.Ask(
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


def from_kube(pod: views.Pod, nodes: list[str], policy: model.Policy | None, pools: Pools) -> ask.Ask | None:
    """The ask of kube-scheduler: names only, so the fleet says what is free."""
    return from_pod(pod, policy, pools, nodes, requests=resources.requests_of(pod.spec))


def from_volcano(
    task: volcano_wire.Task, nodes: list[volcano_wire.Node], policy: model.Policy | None, pools: Pools
) -> ask.Ask | None:
    """The ask of Volcano: every node comes with what its running session holds free."""
    if task.pod is None:
        return None
    offers = {
        node.name: ask.Offer(
            free=volcano_wire.amounts(node.idle),
            promised=volcano_wire.promised(node) if node.releasing and node.releasing.scalars else None,
        )
        for node in nodes
        if node.idle
    }
    return from_pod(
        task.pod,
        policy,
        pools,
        [node.name for node in nodes],
        offers=offers,
        requests=requested(task),
        volcano_job=task.job,
        uid=task.uid,
    )


def requested(task: volcano_wire.Task) -> resources.Amounts:
    """What Volcano counts the task at, without the resources it asks none of."""
    if task.request is None:
        return resources.requests_of(task.pod.spec) if task.pod else {}
    return {name: amount for name, amount in volcano_wire.amounts(task.request).items() if amount > 0}
