"""From a scheduler's request to an ask: the pod's fabric, gang, rank and needs by the policy in force."""

from collections.abc import Mapping, Sequence

from extender import state as states
from extender import volcano_wire
from fabric import resources, views
from fabric.placement import ask, fleet, ledger, rails
from fabric.policy import model


def from_kube(pod: views.Pod, nodes: list[str], policy: model.Policy | None, pools: ask.Pools) -> ask.Ask | None:
    """The ask of kube-scheduler: names only, so the fleet says what is free."""
    return ask.of_pod(pod, policy, pools, list(dict.fromkeys(nodes)), requests=resources.requests_of(pod.spec))


def from_volcano(
    task: volcano_wire.Task,
    nodes: list[volcano_wire.Node],
    policy: model.Policy | None,
    state: states.State,
    *,
    evicting: bool = False,
) -> ask.Ask | None:
    """The ask of Volcano: every node comes with what its running session holds free.

    `evicting`: a node that cannot hold the task stands for what it would have without its pods. Volcano's allocate
    scores only nodes that can; its preempt scores them to choose whose pods have to go.
    """
    if task.pod is None:
        return None
    wanted = requested(task)
    offers = _offers(nodes, wanted, state.fleet, evicting=evicting)
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


def given_away(
    entry: ledger.Entry,
    pod: views.Pod,
    policy: model.Policy | None,
    state: states.State,
    taken: resources.Amounts,
) -> str:
    """That other pods hold a required rail that Volcano announces on this node; "" where none does.

    Its session works on a snapshot: what kube-scheduler has bound since then, only we have seen. `taken`: of pods that
    it is binding now.
    """
    fabric = rails.fabric_of(pod, policy.document)[1] if policy is not None else None
    if fabric is None or fabric.placement.rails != "required" or entry.node not in state.fleet.nodes:
        return ""
    free = state.fleet.free(entry.node)
    for need in rails.needs_of(pod, entry.requests, rails.counted(fabric, state.pools)):
        left = free.get(need.resource, 0) - taken.get(need.resource, 0)
        if left < need.amount:
            amounts = f"{max(0, left) // resources.UNIT} {need.resource} free, {need.amount // resources.UNIT} needed"
            return f"railwright: {need.label} of {entry.node} was given by another scheduler meanwhile: {amounts}"
    return ""


def _offers(
    nodes: Sequence[volcano_wire.Node], wanted: resources.Amounts, seen: fleet.Fleet, *, evicting: bool
) -> Mapping[str, ask.Offer]:
    """By node; nodes that say the same and have the same bound share one offer, and are looked at once."""
    known: dict[tuple[int, int], tuple[ask.Offer, resources.Amounts, ask.Offer, bool]] = {}
    offers = {}
    for node in nodes:
        said = volcano_wire.offered(node)
        if said is None:
            continue
        bound = seen.free(node.name) if node.name in seen.nodes else _NOT_SEEN
        pair = (id(said), id(bound))
        kept = known.get(pair)
        if kept is None:
            found = _less_unseen(said, bound)
            fits = _holds(found.free, wanted) or (found.promised is not None and _holds(found.promised, wanted))
            kept = known[pair] = (said, bound, found, fits)  # holds both, so that their ids stay theirs
        found, fits = kept[2:]
        offers[node.name] = found if fits or not evicting else volcano_wire.emptied(node) or found
    return offers


_NOT_SEEN: resources.Amounts = {}


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


def _holds(free: resources.Amounts, wanted: resources.Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in wanted.items())


def requested(task: volcano_wire.Task) -> resources.Amounts:
    """What Volcano counts the task at, without the resources it asks none of."""
    if task.request is None:
        return resources.requests_of(task.pod.spec) if task.pod else {}
    return {name: amount for name, amount in volcano_wire.amounts(task.request).items() if amount > 0}
