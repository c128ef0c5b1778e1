"""From a scheduler's request to an ask: the pod's fabric, gang, rank and needs by the policy in force."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from extender import state as states
from extender import volcano_wire
from railwright.fabric import resources, views
from railwright.fabric.placement import ask, fleet, ledger, rails, standing
from railwright.fabric.policy import model


def from_kube(pod: views.Pod, nodes: list[str], policy: model.Policy | None, pools: ask.Pools) -> ask.Ask | None:
    """The ask of kube-scheduler: names only, so the fleet says what is free."""
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
    """The ask of Volcano: every node comes with what its running session holds free.

    `scope`: the instance that asks; what others have announced is taken off. So is what is `inferred`, by node, of pods
    that kube-scheduler is placing. `evicting`: a node that cannot hold the task stands for what it would have without
    its pods. Volcano's allocate scores only nodes that can; its preempt scores them to choose whose pods have to go.
    """
    if task.pod is None:
        return None
    wanted = requested(task)
    fabric = rails.fabric_of(task.pod, policy.document)[1] if policy is not None else None
    strict = fabric is not None and fabric.placement.rails == "required"
    elsewhere = _elsewhere(state, scope, task.uid, inferred or {})
    offers = _offers(nodes, wanted, state.fleet, elsewhere, evicting=evicting, strict=strict)
    return ask.of_pod(
        task.pod,
        policy,
        state.pools,
        list(dict.fromkeys(node.name for node in nodes)),  # named twice, a node would count as room for two
        offers=offers,
        requests=wanted,
        volcano_job=task.job,
        uid=task.uid,
    )


def given_away(  # noqa: PLR0913 - one argument a fact
    entry: ledger.Entry,
    pod: views.Pod,
    policy: model.Policy | None,
    state: states.State,
    *,
    scope: str,
    inferred: Mapping[str, resources.Amounts],
) -> str:
    """That other schedulers have given a device that Volcano announces on this node; "" where none has.

    Its session works on a snapshot: what others have bound or announced since then, only we have seen. `inferred`: of
    pods that kube-scheduler is placing now, by node.
    """
    fabric = rails.fabric_of(pod, policy.document)[1] if policy is not None else None
    if policy is None or fabric is None or entry.node not in state.fleet.nodes:
        return ""
    bound = state.fleet.free(entry.node)
    others = _elsewhere(state, scope, entry.uid, inferred).get(entry.node, _NOTHING).firm
    own = _sum(
        [
            each.requests
            for each in state.ledger.on_node(entry.node)
            if each.uid != entry.uid and state.ledger.scope_of(each.uid) == scope and _is_firm(each, state)
        ]
    )
    needs = rails.needs_of(pod, entry.requests, rails.counted(fabric, state.pools))
    wanted = [(need.label, need.resource, need.amount) for need in needs]
    wanted += [(name, name, entry.requests[name]) for name in policy.document.accelerators if name in entry.requests]
    required = {need.resource for need in needs} if fabric.placement.rails == "required" else set()
    for label, resource, amount in wanted:
        promised = others.get(resource, 0)
        left = bound.get(resource, 0) - promised
        if promised and resource in entry.requests and left - own.get(resource, 0) < amount:
            return standing.promised_elsewhere(label, resource, left - own.get(resource, 0), amount, entry.node)
        if resource in required and left < amount:
            amounts = f"{max(0, left) // resources.UNIT} {resource} free, {amount // resources.UNIT} needed"
            return f"railwright: {label} of {entry.node} was given by another scheduler meanwhile: {amounts}"
    return ""


class _Elsewhere(msgspec.Struct, frozen=True):
    """What pods of other schedulers are about to take of a node."""

    firm: resources.Amounts  # of what is free now
    all: resources.Amounts  # and of what will be, once pods have gone


_NOTHING = _Elsewhere(firm={}, all={})


def _elsewhere(
    state: states.State, scope: str, asking: str, inferred: Mapping[str, resources.Amounts]
) -> Mapping[str, _Elsewhere]:
    """By node, what other schedulers than this one have announced or are very likely placing."""
    firm = {node: [amounts] for node, amounts in inferred.items()}
    later: dict[str, list[resources.Amounts]] = {}
    for entry in state.ledger.of_others(scope):
        if entry.uid != asking:
            if _is_firm(entry, state):
                firm.setdefault(entry.node, []).append(entry.requests)
            elif entry.state is ledger.State.PIPELINED:
                later.setdefault(entry.node, []).append(entry.requests)
    return {
        node: _Elsewhere(
            firm=_sum(firm.get(node, ())),
            all=_sum([*firm.get(node, ()), *later.get(node, ())]),
        )
        for node in {**firm, **later}
    }


def _is_firm(entry: ledger.Entry, state: states.State) -> bool:
    """Whether an announced pod takes what is free now, and is not seen bound yet."""
    pod = state.fleet.pods.get(entry.uid)
    return entry.state is not ledger.State.PIPELINED and not (pod is not None and pod.node)


def _sum(taken: Sequence[resources.Amounts]) -> resources.Amounts:
    total: Counter[str] = Counter()
    for amounts in taken:
        total.update(amounts)
    return total


def _offers(  # noqa: PLR0913 - one argument a fact
    nodes: Sequence[volcano_wire.Node],
    wanted: resources.Amounts,
    seen: fleet.Fleet,
    elsewhere: Mapping[str, _Elsewhere],
    *,
    evicting: bool,
    strict: bool,
) -> Mapping[str, ask.Offer]:
    """By node; nodes that say the same and have the same bound share one offer, and are looked at once.

    `strict`: a node that Volcano holds for free, but of which a pod is seen that another scheduler has bound, is no
    node to be emptied: the predicate refuses it.
    """
    known: dict[tuple[int, int], tuple[ask.Offer, resources.Amounts, ask.Offer, bool]] = {}
    offers = {}
    for node in nodes:
        said = volcano_wire.decode_offer(node)
        if said is None:
            continue
        bound = seen.free(node.name) if node.name in seen.nodes else _NOT_SEEN
        pair = (id(said), id(bound))
        kept = known.get(pair)
        if kept is None:
            found = _less_unseen(said, bound)
            fits = _fits(found, wanted) or (strict and _fits(said, wanted))
            kept = known[pair] = (said, bound, found, fits)  # holds both, so that their ids stay theirs
        found, fits = kept[2:]
        offer = found if fits or not evicting else volcano_wire.decode_offer_without_pods(node) or found
        others = elsewhere.get(node.name)
        offers[node.name] = offer if others is None else _less_elsewhere(offer, others)
    return offers


_NOT_SEEN: resources.Amounts = {}


def _less_elsewhere(offer: ask.Offer, others: _Elsewhere) -> ask.Offer:
    """The offer without what other schedulers are about to take.

    A device that is to go to a waiting pod of theirs is not free now either, unless more pods leave than wait.
    """
    later = _less(offer.free if offer.promised is None else offer.promised, others.all)
    now = {name: min(amount, later.get(name, amount)) for name, amount in _less(offer.free, others.firm).items()}
    return ask.Offer(
        free=now,
        promised=None if offer.promised is None else later,
        emptied=offer.emptied,
        elsewhere=others.all,
    )


def _less_unseen(offer: ask.Offer, bound: resources.Amounts) -> ask.Offer:
    """What Volcano says of a node, less the devices of pods that another scheduler has bound since its session began.

    Volcano works on the snapshot of its session. What the watch has shown since is not in it, and would be given twice.
    """
    gone = {
        name: free - bound[name] for name, free in offer.free.items() if "/" in name and free > bound.get(name, free)
    }
    if not gone:
        return offer
    promised = offer.promised
    return ask.Offer(free=_less(offer.free, gone), promised=promised if promised is None else _less(promised, gone))


def _less(amounts: resources.Amounts, gone: resources.Amounts) -> resources.Amounts:
    return {name: amount - gone.get(name, 0) for name, amount in amounts.items()}


def _fits(offer: ask.Offer, wanted: resources.Amounts) -> bool:
    return _holds(offer.free, wanted) or (offer.promised is not None and _holds(offer.promised, wanted))


def _holds(free: resources.Amounts, wanted: resources.Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in wanted.items())


def requested(task: volcano_wire.Task) -> resources.Amounts:
    """What Volcano counts the task at, without the resources it asks none of."""
    if task.request is None:
        return resources.requests_of(task.pod.spec) if task.pod else {}
    return {name: amount for name, amount in volcano_wire.convert_amounts(task.request).items() if amount > 0}
