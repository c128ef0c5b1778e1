"""Builds scheduling requests from the schedulers' messages and the policy in force."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec

from extender import state as states
from extender import volcano_wire
from railwright.fabric import intent, resources, views
from railwright.fabric.claims import claim_index
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_usage
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.serving import turns

_OFFERS_PER_STEP = 50  # different offers that are built between two turns; one takes up to a millisecond


def build_kube_request(
    pod: views.Pod,
    nodes: Sequence[str],
    policy: model.Policy | None,
    state: states.State,
    of_containers: resources.FrozenAmounts | None = None,
) -> scheduling_request.SchedulingRequest | None:
    """Build the request for a call of kube-scheduler, which sends node names only.

    The free resources of the nodes come from the cluster state. `of_containers` are the requests of the pod's
    containers; None: they are computed.
    """
    if of_containers is None:
        of_containers = resources.compute_requests(pod.spec)
    requests = state.cluster.compute_requests(pod, of_containers)
    pairs = state.cluster.read_pairs(claim_index.identify_claims(pod))
    return scheduling_request.build_request(
        pod, policy, state.pools, nodes, requests=requests, of_containers=of_containers, pairs=pairs
    )


def repeat_kube_request(  # noqa: PLR0913, PLR0917 - one argument for each input
    earlier: scheduling_request.SchedulingRequest,
    pod: views.Pod,
    nodes: Sequence[str],
    policy: model.Policy | None,
    state: states.State,
    of_containers: resources.FrozenAmounts,
    offered: frozenset[str] | None = None,
) -> scheduling_request.SchedulingRequest | None:
    """Return what `build_kube_request` does from an earlier request for the same pod; None if it has to be built.

    `offered` are the same nodes; None: they are computed.
    """
    distinct = frozenset(nodes) if offered is None else offered
    if policy is None or len(distinct) < len(nodes):
        return None
    requests = state.cluster.compute_requests(pod, of_containers)
    pairs = state.cluster.read_pairs(claim_index.identify_claims(pod))
    return scheduling_request.repeat_request(
        earlier, policy, state.pools, (nodes, distinct), requests=requests, pairs=pairs
    )


def build_volcano_request(  # noqa: PLR0913 - one argument for each input
    task: volcano_wire.Task,
    nodes: volcano_wire.Nodes,
    policy: model.Policy | None,
    state: states.State,
    *,
    scope: str = assumed_pods.DEFAULT_SCOPE,
    inferred: Mapping[str, resources.Amounts] | None = None,
    evicting: bool = False,
) -> turns.Steps[scheduling_request.SchedulingRequest | None]:
    """Build the request for a call of Volcano, which sends each node with the free resources in its session.

    `scope` is the Volcano instance. Subtracts the requests that other instances have announced, and `inferred`: the
    requests, by node, of pods that kube-scheduler is placing. With `evicting`, a node without room for the task is
    offered as if it had no pods, because Volcano's preempt also scores nodes to choose victims (its allocate scores
    feasible nodes only).
    """
    fabric = intent.find_fabric(task.pod, policy.document)[1] if policy is not None and task.pod is not None else None
    if task.pod is None or fabric is None:
        return None
    requested_amounts = get_requests(task, state.cluster)
    rails_required = fabric.placement.rails == "required" or fabric.claims is not None
    others_by_node = _sum_other_schedulers(state, scope, task.uid, inferred or {})
    offers = yield from _build_offers(
        nodes, requested_amounts, state, others_by_node, scope=scope, evicting=evicting, rails_required=rails_required
    )
    request = scheduling_request.build_request(
        task.pod,
        policy,
        state.pools,
        list(nodes),
        offers=offers,
        requests=requested_amounts,
        pairs=state.cluster.read_pairs(claim_index.identify_claims(task.pod)),
        volcano_job=task.job,
        uid=task.uid,
    )
    is_confined = request is not None and state.cluster.is_confined(request.gang)
    return msgspec.structs.replace(request, is_confined=True) if request is not None and is_confined else request


def find_conflict(  # noqa: PLR0913 - one argument for each input
    assumed_pod: assumed_pods.AssumedPod,
    pod: views.Pod,
    policy: model.Policy | None,
    state: states.State,
    *,
    scope: str,
    inferred: Mapping[str, resources.Amounts],
) -> reason.Reason | None:
    """Return the reason why Volcano's allocation conflicts with other schedulers, or None if it does not.

    Volcano's session uses a snapshot, which lacks what others have bound or announced since. `inferred` are the
    requests, by node, of pods that kube-scheduler is placing now.
    """
    name, fabric = intent.find_fabric(pod, policy.document) if policy is not None else ("", None)
    if policy is None or fabric is None or assumed_pod.node not in state.cluster.nodes:
        return None
    pairs = state.cluster.read_pairs(claim_index.identify_claims(pod))
    observed_free = Counter(state.cluster.get_free(assumed_pod.node))
    observed_free.update(state.cluster.claimed.inventory.count_further(assumed_pod.node, pairs).free)
    others = _sum_other_schedulers(state, scope, assumed_pod.uid, inferred).get(assumed_pod.node, _NO_OTHERS).allocated
    own = resources.add_up(
        [
            _count_unobserved(other, state)
            for other in state.assumed.list_on_node(assumed_pod.node)
            if other.uid != assumed_pod.uid
            and state.assumed.get_scope(other.uid) == scope
            and _holds_free_resources(other, state)
        ]
    )
    needs = intent.find_needs(pod, assumed_pod.requests, intent.fill_resources(name, fabric, state.pools))
    demands = [(need.label, need.resource, need.amount) for need in needs]
    demands += [
        (name, name, assumed_pod.requests[name])
        for name in policy.document.accelerators
        if name in assumed_pod.requests
    ]
    required = {need.resource for need in needs} if fabric.placement.rails == "required" else set()
    if fabric.claims is not None or pairs.is_open:  # the allocator gives no other rail than the one that a claim names
        required = assumed_pod.requests.keys() & {need.resource for need in needs}
    for label, resource, amount in demands:
        assumed = others.get(resource, 0)
        free = observed_free.get(resource, 0) - assumed - own.get(resource, 0)
        if assumed and resource in assumed_pod.requests and free < amount:
            return node_evaluation.describe_assumed_elsewhere(label, resource, free, amount, assumed_pod.node)
        if resource in required and free < amount:
            return reason.make(
                Code.DEVICE_ALLOCATED_ELSEWHERE,
                device=label,
                node=assumed_pod.node,
                resource=intent.format_resource(resource),
                free=max(0, free) // resources.UNIT,
                needed=amount // resources.UNIT,
            )
    return None


class _OtherSchedulers(msgspec.Struct, frozen=True):
    """Requests of other schedulers' assumed pods on a node."""

    allocated: resources.FrozenAmounts  # of pods that use resources which are free now
    with_pipelined: resources.FrozenAmounts  # also of pipelined pods, which use resources of pods that terminate


_NO_OTHERS = _OtherSchedulers(resources.NO_AMOUNTS, resources.NO_AMOUNTS)


def _sum_other_schedulers(
    state: states.State, scope: str, uid: str, inferred: Mapping[str, resources.Amounts]
) -> Mapping[str, _OtherSchedulers]:
    """Return the requests of pods that other schedulers have announced or are very likely placing, by node."""
    allocated = {node: [amounts] for node, amounts in inferred.items()}
    pipelined: dict[str, list[resources.Amounts]] = {}
    for assumed_pod in state.assumed.list_of_other_scopes(scope):
        if assumed_pod.uid != uid:
            if _holds_free_resources(assumed_pod, state):
                allocated.setdefault(assumed_pod.node, []).append(_count_unobserved(assumed_pod, state))
            elif assumed_pod.state is assumed_pods.State.PIPELINED:
                pipelined.setdefault(assumed_pod.node, []).append(assumed_pod.requests)
    return {
        node: _OtherSchedulers(
            allocated=resources.add_up(allocated.get(node, ())),
            with_pipelined=resources.add_up([*allocated.get(node, ()), *pipelined.get(node, ())]),
        )
        for node in {**allocated, **pipelined}
    }


def _holds_free_resources(assumed_pod: assumed_pods.AssumedPod, state: states.State) -> bool:
    """True if an assumed pod uses resources that are free now, and was not observed bound yet."""
    pod = state.cluster.pods.get(assumed_pod.uid)
    return assumed_pod.state is not assumed_pods.State.PIPELINED and not (pod is not None and pod.node)


def _count_unobserved(assumed_pod: assumed_pods.AssumedPod, state: states.State) -> resources.Amounts:
    """Return what an assumed pod uses that the cluster state does not count yet."""
    return pod_usage.count_unobserved(state.cluster, assumed_pod.uid, assumed_pod.node, assumed_pod.requests)


def _build_offers(  # noqa: PLR0913 - one argument for each input
    nodes: volcano_wire.Nodes,
    requested_amounts: resources.Amounts,
    state: states.State,
    others_by_node: Mapping[str, _OtherSchedulers],
    *,
    scope: str,
    evicting: bool,
    rails_required: bool,
) -> turns.Steps[Mapping[str, scheduling_request.NodeOffer]]:
    """Return the offer of each known node. Nodes with equal session state and equal free resources share one offer.

    With `rails_required`, a node that is feasible by Volcano's session, but not by later bindings of others, is not
    considered for eviction, because the predicate rejects it.
    """
    frees = state.cluster.find_free(nodes)
    # of equal amounts, those of the cluster are mostly one object; the devices of slices are added by node
    kinds: list[Hashable] = list(zip(nodes.values(), map(id, frees), strict=True))
    if state.cluster.has_slices:
        kinds = list(zip(kinds, nodes, strict=True))
    offer_by_kind: dict[Hashable, scheduling_request.NodeOffer | None] = {}
    rows = dict(zip(kinds, zip(nodes, frees, strict=True), strict=True))
    for number, (kind, (name, free)) in enumerate(rows.items()):
        amounts = nodes[name]
        if number % _OFFERS_PER_STEP == _OFFERS_PER_STEP - 1:
            yield
        offer = session_offer = volcano_wire.decode_offer(amounts) if free is not None else None
        if session_offer is not None and free is not None:
            if state.cluster.has_slices:
                session_offer = _add_claimable(session_offer, name, state, scope)
            offer = _subtract_newly_bound(session_offer, free)
            fits = _fits(offer, requested_amounts) or (rails_required and _fits(session_offer, requested_amounts))
            if evicting and not fits:
                offer = volcano_wire.decode_offer_without_pods(amounts) or offer
        offer_by_kind[kind] = offer
    pairs = zip(nodes, map(offer_by_kind.__getitem__, kinds), strict=True)
    offers = {name: offer for name, offer in pairs if offer is not None}
    for name in others_by_node.keys() & offers.keys():
        offers[name] = _subtract_others(offers[name], others_by_node[name])
    return offers


def _add_claimable(
    offer: scheduling_request.NodeOffer, node: str, state: states.State, scope: str
) -> scheduling_request.NodeOffer:
    """Add the devices of ResourceSlices, which Volcano's session does not count: those that are free and not announced.

    What other scopes have announced is subtracted later, for all resources alike.
    """
    names = state.cluster.list_claimable(node)
    if not names:
        return offer
    free = state.cluster.get_free(node)
    own = [
        _count_unobserved(assumed_pod, state)
        for assumed_pod in state.assumed.list_on_node(node)
        if state.assumed.get_scope(assumed_pod.uid) == scope and _holds_free_resources(assumed_pod, state)
    ]
    claimable = {name: free.get(name, 0) - sum(requests.get(name, 0) for requests in own) for name in names}
    return _change_amounts(offer, lambda amounts: resources.FrozenAmounts({**amounts, **claimable}))


def _subtract_others(offer: scheduling_request.NodeOffer, others: _OtherSchedulers) -> scheduling_request.NodeOffer:
    """Subtract what other schedulers have announced from an offer.

    A device that a terminating pod leaves to another scheduler's pipelined pod is not free now either, unless more
    devices become free than pipelined pods request.
    """
    future_idle = _subtract(offer.idle if offer.future_idle is None else offer.future_idle, others.with_pipelined)
    idle_now = _subtract(offer.idle, others.allocated)
    idle = {name: min(amount, future_idle.get(name, amount)) for name, amount in idle_now.items()}
    return scheduling_request.NodeOffer(
        idle=resources.FrozenAmounts(idle),
        future_idle=None if offer.future_idle is None else future_idle,
        if_preempted=offer.if_preempted,
        used_elsewhere=others.with_pipelined,
    )


def _subtract_newly_bound(
    offer: scheduling_request.NodeOffer, observed_free: resources.Amounts
) -> scheduling_request.NodeOffer:
    """Subtract the devices of pods that other schedulers have bound since Volcano's session began.

    Volcano uses its session's snapshot, which lacks later bindings, and would allocate these devices twice.
    """
    newly_bound = {
        name: free - observed_free[name]
        for name, free in offer.idle.items()
        if "/" in name and free > observed_free.get(name, free)
    }
    if not newly_bound:
        return offer
    return _change_amounts(offer, lambda amounts: _subtract(amounts, newly_bound))


def _change_amounts(
    offer: scheduling_request.NodeOffer, change: Callable[[resources.Amounts], resources.FrozenAmounts]
) -> scheduling_request.NodeOffer:
    """Change what is idle now and what will be."""
    future_idle = None if offer.future_idle is None else change(offer.future_idle)
    return msgspec.structs.replace(offer, idle=change(offer.idle), future_idle=future_idle)


def _subtract(amounts: resources.Amounts, used: resources.Amounts) -> resources.FrozenAmounts:
    return resources.FrozenAmounts({name: amount - used.get(name, 0) for name, amount in amounts.items()})


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
