"""Builds scheduling requests from the schedulers' messages and the policy in force."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from extender import state as states
from extender import volcano_wire
from railwright.fabric import resources, views
from railwright.fabric.placement import ask, fleet, ledger, rails, standing
from railwright.fabric.policy import model


def from_kube(pod: views.Pod, nodes: list[str], policy: model.Policy | None, pools: ask.Pools) -> ask.Ask | None:
    """Build a request of kube-scheduler. It has node names only, so free resources come from the cluster state."""
    return ask.of_pod(pod, policy, pools, list(dict.fromkeys(nodes)), requests=resources.requests_of(pod.spec))


def from_volcano(  # noqa: PLR0913 - one argument a fact
    task: volcano_wire.Task,
    nodes: list[volcano_wire.Node],
    policy: model.Policy | None,
    state: states.State,
    *,
    scope: str = ledger.DEFAULT_SCOPE,
    inferred: Mapping[str, resources.Amounts] | None = None,
    evicting: bool = False,
) -> ask.Ask | None:
    """Build a request of Volcano. Each node comes with the free resources of Volcano's running session.

    `scope` is the Volcano instance. What other instances have announced is subtracted, and so are the `inferred`
    requests by node of pods that kube-scheduler is placing. With `evicting`, a node without room for the task counts
    with what it would have without its pods: Volcano's allocate scores feasible nodes only, but its preempt scores
    nodes to choose victims.
    """
    if task.pod is None:
        return None
    requested_amounts = get_requests(task)
    fabric = rails.fabric_of(task.pod, policy.document)[1] if policy is not None else None
    strict = fabric is not None and fabric.placement.rails == "required"
    others_by_node = _sum_other_schedulers(state, scope, task.uid, inferred or {})
    offers = _build_offers(nodes, requested_amounts, state.fleet, others_by_node, evicting=evicting, strict=strict)
    return ask.of_pod(
        task.pod,
        policy,
        state.pools,
        list(dict.fromkeys(node.name for node in nodes)),  # a repeated name would count the node twice
        offers=offers,
        requests=requested_amounts,
        volcano_job=task.job,
        uid=task.uid,
    )


def find_conflict(  # noqa: PLR0913 - one argument a fact
    entry: ledger.Entry,
    pod: views.Pod,
    policy: model.Policy | None,
    state: states.State,
    *,
    scope: str,
    inferred: Mapping[str, resources.Amounts],
) -> str:
    """Return the reason why Volcano's allocation conflicts with other schedulers, or "" if it does not.

    Volcano's session uses a snapshot, which lacks what others have bound or announced since. `inferred` are the
    requests, by node, of pods that kube-scheduler is placing now.
    """
    fabric = rails.fabric_of(pod, policy.document)[1] if policy is not None else None
    if policy is None or fabric is None or entry.node not in state.fleet.nodes:
        return ""
    bound = state.fleet.free(entry.node)
    others = _sum_other_schedulers(state, scope, entry.uid, inferred).get(entry.node, _NO_OTHERS).firm
    own = _sum(
        [
            other.requests
            for other in state.ledger.on_node(entry.node)
            if other.uid != entry.uid and state.ledger.scope_of(other.uid) == scope and _is_firm(other, state)
        ]
    )
    needs = rails.needs_of(pod, entry.requests, rails.counted(fabric, state.pools))
    demands = [(need.label, need.resource, need.amount) for need in needs]
    demands += [(name, name, entry.requests[name]) for name in policy.document.accelerators if name in entry.requests]
    required = {need.resource for need in needs} if fabric.placement.rails == "required" else set()
    for label, resource, amount in demands:
        assumed = others.get(resource, 0)
        left = bound.get(resource, 0) - assumed
        if assumed and resource in entry.requests and left - own.get(resource, 0) < amount:
            return standing.promised_elsewhere(label, resource, left - own.get(resource, 0), amount, entry.node)
        if resource in required and left < amount:
            amounts = f"{max(0, left) // resources.UNIT} {resource} free, {amount // resources.UNIT} needed"
            return f"railwright: {label} of {entry.node} was allocated by another scheduler in the meantime: {amounts}"
    return ""


class _OtherSchedulers(msgspec.Struct, frozen=True):
    """Requests of other schedulers' assumed pods on a node."""

    firm: resources.Amounts  # of pods that use resources which are free now
    all: resources.Amounts  # also of pipelined pods, which use resources of pods that terminate


_NO_OTHERS = _OtherSchedulers(firm={}, all={})


def _sum_other_schedulers(
    state: states.State, scope: str, uid: str, inferred: Mapping[str, resources.Amounts]
) -> Mapping[str, _OtherSchedulers]:
    """Return by node what other schedulers have announced or are very likely placing."""
    firm = {node: [amounts] for node, amounts in inferred.items()}
    later: dict[str, list[resources.Amounts]] = {}
    for entry in state.ledger.of_others(scope):
        if entry.uid != uid:
            if _is_firm(entry, state):
                firm.setdefault(entry.node, []).append(entry.requests)
            elif entry.state is ledger.State.PIPELINED:
                later.setdefault(entry.node, []).append(entry.requests)
    return {
        node: _OtherSchedulers(
            firm=_sum(firm.get(node, ())),
            all=_sum([*firm.get(node, ()), *later.get(node, ())]),
        )
        for node in {**firm, **later}
    }


def _is_firm(entry: ledger.Entry, state: states.State) -> bool:
    """True if an assumed pod uses resources that are free now, and was not observed bound yet."""
    pod = state.fleet.pods.get(entry.uid)
    return entry.state is not ledger.State.PIPELINED and not (pod is not None and pod.node)


def _sum(amounts_list: Sequence[resources.Amounts]) -> resources.Amounts:
    total: Counter[str] = Counter()
    for amounts in amounts_list:
        total.update(amounts)
    return total


def _build_offers(  # noqa: PLR0913 - one argument a fact
    nodes: Sequence[volcano_wire.Node],
    requested_amounts: resources.Amounts,
    cluster: fleet.Fleet,
    others_by_node: Mapping[str, _OtherSchedulers],
    *,
    evicting: bool,
    strict: bool,
) -> Mapping[str, ask.Offer]:
    """Return the offer of each node. Nodes with equal session state and equal free resources share one offer.

    With `strict`, a node that is feasible by Volcano's session but not by later bindings of other schedulers is not
    considered for eviction, because the predicate rejects it.
    """
    offer_cache: dict[tuple[int, int], tuple[ask.Offer, resources.Amounts, ask.Offer, bool]] = {}
    offers = {}
    for node in nodes:
        session_offer = volcano_wire.decode_offer(node)
        if session_offer is None:
            continue
        bound = cluster.free(node.name) if node.name in cluster.nodes else _NO_NODE
        cache_key = (id(session_offer), id(bound))
        cached = offer_cache.get(cache_key)
        if cached is None:
            corrected_offer = _subtract_newly_bound(session_offer, bound)
            fits = _fits(corrected_offer, requested_amounts) or (strict and _fits(session_offer, requested_amounts))
            cached = offer_cache[cache_key] = (
                session_offer,
                bound,
                corrected_offer,
                fits,
            )  # keeps both objects alive, so that their ids stay unique
        corrected_offer, fits = cached[2:]
        offer = (
            corrected_offer if fits or not evicting else volcano_wire.decode_offer_without_pods(node) or corrected_offer
        )
        others = others_by_node.get(node.name)
        offers[node.name] = offer if others is None else _subtract_others(offer, others)
    return offers


_NO_NODE: resources.Amounts = {}


def _subtract_others(offer: ask.Offer, others: _OtherSchedulers) -> ask.Offer:
    """Subtract what other schedulers have announced from an offer.

    A device that a terminating pod leaves to another scheduler's pipelined pod is not free now either, unless more
    devices become free than pipelined pods request.
    """
    later = _subtract(offer.free if offer.promised is None else offer.promised, others.all)
    now = {name: min(amount, later.get(name, amount)) for name, amount in _subtract(offer.free, others.firm).items()}
    return ask.Offer(
        free=now,
        promised=None if offer.promised is None else later,
        emptied=offer.emptied,
        elsewhere=others.all,
    )


def _subtract_newly_bound(offer: ask.Offer, bound: resources.Amounts) -> ask.Offer:
    """Subtract the devices of pods that other schedulers have bound since Volcano's session began.

    Volcano uses its session's snapshot, which lacks later bindings, and would allocate these devices twice.
    """
    newly_bound = {
        name: free - bound[name] for name, free in offer.free.items() if "/" in name and free > bound.get(name, free)
    }
    if not newly_bound:
        return offer
    promised = offer.promised
    return ask.Offer(
        free=_subtract(offer.free, newly_bound),
        promised=promised if promised is None else _subtract(promised, newly_bound),
    )


def _subtract(amounts: resources.Amounts, used: resources.Amounts) -> resources.Amounts:
    return {name: amount - used.get(name, 0) for name, amount in amounts.items()}


def _fits(offer: ask.Offer, requested_amounts: resources.Amounts) -> bool:
    return _has_enough(offer.free, requested_amounts) or (
        offer.promised is not None and _has_enough(offer.promised, requested_amounts)
    )


def _has_enough(free: resources.Amounts, requested_amounts: resources.Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in requested_amounts.items())


def get_requests(task: volcano_wire.Task) -> resources.Amounts:
    """Return the non-zero requests of a task as Volcano counts them."""
    if task.request is None:
        return resources.requests_of(task.pod.spec) if task.pod else {}
    return {name: amount for name, amount in volcano_wire.convert_amounts(task.request).items() if amount > 0}
