"""From a scheduler's request to an ask: the pod's fabric, gang, rank and needs by the policy in force."""

from collections.abc import Mapping, Sequence

from extender import volcano_wire
from fabric import resources, views, workload
from fabric.placement import ask, fleet, rails
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
    task: volcano_wire.Task,
    nodes: list[volcano_wire.Node],
    policy: model.Policy | None,
    pools: Pools,
    state: fleet.Fleet,
) -> ask.Ask | None:
    """The ask of Volcano: every node comes with what its running session holds free."""
    if task.pod is None:
        return None
    offers = {node.name: _offer(node, state) for node in nodes if node.idle}
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


def _offer(node: volcano_wire.Node, state: fleet.Fleet) -> ask.Offer:
    """What Volcano says of a node, less the devices of pods that another scheduler has bound since its session began.

    Volcano works on the snapshot of its session. What the watch has shown since is not in it, and would be given twice.
    """
    free = volcano_wire.amounts(node.idle)
    promised = volcano_wire.promised(node) if node.releasing and node.releasing.scalars else None
    bound = state.free(node.name) if node.name in state.nodes else {}
    for name in [name for name in free if "/" in name and free[name] > bound.get(name, free[name])]:
        if promised is not None:
            promised[name] -= free[name] - bound[name]
        free[name] = bound[name]
    return ask.Offer(free=free, promised=promised)
