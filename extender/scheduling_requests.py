"""Builds scheduling requests from the schedulers' messages and the policy in force."""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from extender import state as states
from extender import volcano_wire
from railwright.fabric import resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_usage
from railwright.fabric.policy import model
from railwright.serving import turns

_OFFERS_PER_STEP = 50  # different offers that are built between two turns; one takes up to a millisecond


def build_kube_request(
    pod: views.Pod, nodes: Sequence[str], policy: model.Policy | None, state: states.State
) -> scheduling_request.SchedulingRequest | None:
    """Build the request for a call of kube-scheduler, which sends node names only.

    The free resources of the nodes come from the cluster state.
    """
    requests = state.cluster.compute_requests(pod, resources.compute_requests(pod.spec))
    return scheduling_request.build_request(pod, policy, state.pools, nodes, requests=requests)


def build_volcano_request(
    task: volcano_wire.Task, nodes: Sequence[str], policy: model.Policy | None, state: states.State
) -> scheduling_request.SchedulingRequest | None:
    """Build the request for a call of Volcano, without what is free on the nodes."""
    if task.pod is None:
        return None
    request = scheduling_request.build_request(
        task.pod,
        policy,
        state.pools,
        nodes,
        requests=get_requests(task, state.cluster),
        volcano_job=task.job,
        uid=task.uid,
    )
    is_confined = request is not None and state.cluster.is_confined(request.gang)
    return msgspec.structs.replace(request, is_confined=True) if request is not None and is_confined else request


def build_offers(
    nodes: volcano_wire.Nodes, requested_amounts: resources.Amounts, state: states.State
) -> turns.Steps[Mapping[str, scheduling_request.NodeOffer]]:
    """Return the offer of each known node: what is free there in Volcano's session. Nodes with equal texts share one.

    A node without room is offered as if it had no pods, because Volcano's preempt also scores nodes to choose victims
    (its allocate scores feasible nodes only).
    """
    known = [(name, amounts) for name, amounts in nodes.items() if name in state.cluster.nodes]
    # the devices of slices are added by node
    kinds: list[Hashable] = [(amounts, name) if state.cluster.has_slices else amounts for name, amounts in known]
    offer_by_kind: dict[Hashable, scheduling_request.NodeOffer | None] = {}
    for number, (kind, (name, amounts)) in enumerate(dict(zip(kinds, known, strict=True)).items()):
        if number % _OFFERS_PER_STEP == _OFFERS_PER_STEP - 1:
            yield
        offer = volcano_wire.decode_offer(amounts)
        if offer is not None:
            if state.cluster.has_slices:
                offer = _add_claimable(offer, name, state)
            if not _fits(offer, requested_amounts):
                offer = volcano_wire.decode_offer_without_pods(amounts) or offer
        offer_by_kind[kind] = offer
    pairs = zip(known, map(offer_by_kind.__getitem__, kinds), strict=True)
    return {name: offer for (name, _), offer in pairs if offer is not None}


def _add_claimable(offer: scheduling_request.NodeOffer, node: str, state: states.State) -> scheduling_request.NodeOffer:
    """Add the devices of ResourceSlices, which Volcano's session does not count: those that are free and not announced.

    A pipelined pod waits for devices of pods that terminate, so it takes none that are free.
    """
    names = state.cluster.list_claimable(node)
    if not names:
        return offer
    free = state.cluster.get_free(node)
    announced = [
        pod_usage.count_unobserved(state.cluster, pod.uid, node, pod.requests)
        for pod in state.assumed.list_on_node(node)
        if pod.state is not assumed_pods.State.PIPELINED
    ]
    claimable = {name: free.get(name, 0) - sum(requests.get(name, 0) for requests in announced) for name in names}
    future_idle = None if offer.future_idle is None else resources.FrozenAmounts({**offer.future_idle, **claimable})
    idle = resources.FrozenAmounts({**offer.idle, **claimable})
    return msgspec.structs.replace(offer, idle=idle, future_idle=future_idle)


def _fits(offer: scheduling_request.NodeOffer, requested_amounts: resources.Amounts) -> bool:
    return _has_enough(offer.idle, requested_amounts) or (
        offer.future_idle is not None and _has_enough(offer.future_idle, requested_amounts)
    )


def _has_enough(free: resources.Amounts, requested_amounts: resources.Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in requested_amounts.items())


def get_requests(task: volcano_wire.Task, cluster: cluster_state.ClusterState) -> resources.FrozenAmounts:
    """Return the non-zero requests of a task as Volcano counts them, and the devices that its claims request."""
    if task.request is None:
        requests = resources.compute_requests(task.pod.spec) if task.pod else resources.NO_AMOUNTS
    else:
        counted = volcano_wire.convert_amounts(task.request)
        requests = resources.FrozenAmounts({name: amount for name, amount in counted.items() if amount > 0})
    return cluster.compute_requests(task.pod, requests) if task.pod is not None else requests
