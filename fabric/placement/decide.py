"""One decision for both schedulers: which candidates fit, how good each is, and why.

A pure function of the ask, the fleet and the ledger. Volcano's and kube-scheduler's scales, codes and shapes are
the business of their wire modules.
"""

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from fabric import resources, topology, workload
from fabric.placement import ask, eligibility, fleet, gangs, ledger, standing
from fabric.placement import rails as wanted_rails
from fabric.placement.terms import locality, packing, rails
from fabric.policy import model

FULL_OFFER = 100  # both schedulers offer all feasible nodes up to this many, and a sample above (minFeasibleNodes)
_TERMS = (locality, rails, packing)


Mate = tuple[workload.Rank, str, str]
"""(rank, uid, node) of a placed mate."""


class Verdict(msgspec.Struct, frozen=True):
    """One candidate's outcome."""

    node: str
    known: bool  # False: the cache has not seen the node; it stays and scores 0 (ruling 23)
    score: float  # 0..100
    refusal: str  # "" where it fits: the sentence shown to the user
    unresolvable: bool  # True: no pod leaving this node would help
    terms: Mapping[str, tuple[float, str]]  # term -> (value 0..1, reason)
    rails: tuple[standing.RailStanding, ...]


class Decision(msgspec.Struct, frozen=True):
    """The outcome for all candidates of one ask."""

    verdicts: Mapping[str, Verdict]
    gang: standing.GangStanding
    gang_size: int


def decide(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Decision:
    """Judge and score every candidate of the question."""
    known = {name: state.nodes[name] for name in question.candidates if name in state.nodes}
    free = {name: free_of(question, node, state, book) for name, node in known.items()}
    gang, size = _gang_standing(question, state, book, free)
    verdicts = {
        name: _judge(question, state, node=known.get(name), name=name, free=free.get(name, {}), gang=gang)
        for name in question.candidates
    }
    return Decision(verdicts=verdicts, gang=gang, gang_size=size)


def judge_one(question: ask.Ask, node: fleet.FleetNode, state: fleet.Fleet, book: ledger.Ledger) -> Verdict:
    """Only whether one node fits (Volcano's predicate); not scored, so the gang is not planned."""
    gang = standing.GangStanding(remaining=1, mates=(), rooms={}, plan=())
    return _judge(question, state, node=node, name=node.name, free=free_of(question, node, state, book), gang=gang)


def free_of(question: ask.Ask, node: fleet.FleetNode, state: fleet.Fleet, book: ledger.Ledger) -> resources.Amounts:
    """What is free on a node for this pod: what the scheduler says, else allocatable - bound - announced.

    Its own bound or announced place never counts against a pod (ruling 24).
    """
    candidate = question.candidates.get(node.name)
    if candidate is not None and candidate.free is not None:
        enough = all(candidate.free.get(need.resource, 0) >= need.amount for need in question.needs)
        return candidate.free if enough or candidate.promised is None else candidate.promised
    free = dict(node.allocatable)
    taken: list[resources.Amounts] = [state.used(node.name)]
    for entry in book.on_node(node.name):
        bound = state.pods.get(entry.uid)
        if entry.uid != question.uid and not (bound and bound.node):
            taken.append(entry.requests)
    for amounts in taken:
        for name, amount in amounts.items():
            free[name] = free.get(name, 0) - amount
    own = state.pods.get(question.uid)
    if own is not None and own.node == node.name:
        for name, amount in own.requests.items():
            free[name] = free.get(name, 0) + amount
    return free


def _judge(  # noqa: PLR0913 - one argument a fact; a bag for them would only rename them
    question: ask.Ask,
    state: fleet.Fleet,
    *,
    node: fleet.FleetNode | None,
    name: str,
    free: resources.Amounts,
    gang: standing.GangStanding,
) -> Verdict:
    if node is None:
        return Verdict(node=name, known=False, score=0.0, refusal="", unresolvable=False, terms={}, rails=())
    pools = tuple(_rail_standing(need, node, free, state) for need in question.needs)
    refusal, unresolvable = _refusal(pools, question.fabric.placement)
    if refusal:
        return Verdict(
            node=name, known=True, score=0.0, refusal=refusal, unresolvable=unresolvable, terms={}, rails=pools
        )
    stands = standing.Standing(
        name=name,
        place=fleet.place_of(node, question.domains),
        free=free,
        allocatable=node.allocatable,
        packed=_packed(question),
        rails=pools,
    )
    terms = {term.NAME: term.value(stands, gang) for term in _TERMS if question.domains or term is not locality}
    score = _weigh(terms, question.fabric.placement.weights)
    return Verdict(node=name, known=True, score=score, refusal="", unresolvable=False, terms=terms, rails=pools)


def _refusal(pools: Iterable[standing.RailStanding], placement: model.Placement) -> tuple[str, bool]:
    """The sentence that refuses a node, and whether waiting cannot help (ruling 21)."""
    if placement.rails != "required":
        return "", False
    busy = ""
    for pool in pools:
        wanted = pool.need.amount // resources.UNIT
        if not pool.possible:
            has = pool.allocatable // resources.UNIT
            resource = pool.need.resource
            never = f"railwright: the node cannot give {pool.need.label}: {wanted} {resource} needed, {has} allocatable"
            return never, True
        if not pool.sufficient and not busy:
            left = max(0, pool.free // resources.UNIT)
            busy = (
                f"railwright: {pool.need.label} is busy: {left} of {pool.allocatable // resources.UNIT} "
                f"{pool.need.resource} free, {wanted} needed"
            )
    return busy, False


def _rail_standing(
    need: wanted_rails.Need, node: fleet.FleetNode, free: resources.Amounts, state: fleet.Fleet
) -> standing.RailStanding:
    left = free.get(need.resource, 0)
    holders: tuple[str, ...] = ()
    if left < need.amount:
        holding = (pod.key for pod in state.on_node(node.name) if pod.requests.get(need.resource, 0) > 0)
        holders = tuple(itertools.islice(holding, standing.HOLDERS_NAMED + 1))
    return standing.RailStanding(
        need=need,
        free=left,
        allocatable=node.allocatable.get(need.resource, 0),
        capacity=node.capacity.get(need.resource, 0),
        holders=holders,
    )


def _packed(question: ask.Ask) -> resources.Amounts:
    names = (*question.accelerators, *(need.resource for need in question.needs))
    return {name: question.requests[name] for name in names if question.requests.get(name, 0) > 0}


def _weigh(terms: Mapping[str, tuple[float, str]], weights: model.Weights) -> float:
    """Weighted mean of the terms in 0..100. A weight without a term of its own (numa, so far) does not count."""
    pairs = [(float(getattr(weights, name)), value) for name, (value, _) in terms.items()]
    total = sum(weight for weight, _ in pairs)
    if total <= 0:
        return 0.0
    return 100.0 * sum(weight * value for weight, value in pairs) / total


def _gang_standing(
    question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger, offered: Mapping[str, resources.Amounts]
) -> tuple[standing.GangStanding, int]:
    placed = _placed_mates(question, state, book)
    settled = {question.uid, *(uid for _, uid, _ in placed)}
    waiting = [mate.requests for uid, mate in state.gang(question.gang).items() if uid not in settled]
    size = state.gang_size(question.gang, seen=len(settled) + len(waiting)) if question.gang else 1
    member, remaining = _planned_by(question, waiting, size - len(placed))
    rooms = _rooms(question, state, book, offered, member) if question.domains else {}
    mates = tuple(
        topology.domain(fleet.place_of(state.nodes.get(node), question.domains))
        for node in _nearest_first(question, placed)
    )
    located = tuple(leaf for leaf in mates if leaf != topology.NOWHERE)
    chosen = gangs.plan(remaining, rooms, located) if question.domains else ()
    return standing.GangStanding(remaining=remaining, mates=located, rooms=rooms, plan=chosen), size


def _planned_by(
    question: ask.Ask, waiting: Iterable[resources.Amounts], unplaced: int
) -> tuple[resources.Amounts, int]:
    """What the gang is planned by: the requests of a member that takes devices, and how many such are to be placed.

    A launcher takes next to nothing: counted by its size every hole would hold the whole gang, and counted among the
    workers it would ask for a node too many. Mates not seen yet are taken for workers.
    """
    devices = {*question.accelerators, *(rail.resource for rail in question.fabric.rails if rail.resource)}
    workers = [requests for requests in waiting if not devices.isdisjoint(requests)]
    others = sum(1 for requests in waiting if devices.isdisjoint(requests))
    if not devices.isdisjoint(question.requests):
        return question.requests, max(1, unplaced - others)
    if not workers:
        return question.requests, max(1, unplaced)
    largest = max(workers, key=lambda each: sum(each.get(name, 0) for name in devices))
    return largest, max(1, unplaced - others - 1)


def _placed_mates(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> list[Mate]:
    """(rank, uid, node) of every mate that is bound or announced; what the cluster shows beats what was announced."""
    placed = {
        pod.uid: (pod.rank, pod.uid, pod.node)
        for pod in state.gang(question.gang).values()
        if pod.node and pod.uid != question.uid
    }
    for entry in book.of_gang(question.gang):
        if entry.uid != question.uid:
            placed.setdefault(entry.uid, (entry.rank, entry.uid, entry.node))
    return list(placed.values())


def _nearest_first(question: ask.Ask, placed: list[Mate]) -> list[str]:
    """Nodes of the mates: those just before this rank first, then the ones after it."""
    before = sorted((mate for mate in placed if mate[0] < question.rank), reverse=True)
    after = sorted(mate for mate in placed if not mate[0] < question.rank)
    return [node for _, _, node in (*before, *after)]


def _rooms(
    question: ask.Ask,
    state: fleet.Fleet,
    book: ledger.Ledger,
    offered: Mapping[str, resources.Amounts],
    member: resources.Amounts,
) -> Mapping[topology.Domain, int]:
    """How many more such members each leaf can hold.

    A short offer is the whole truth. A long one is a sample: nodes the scheduler kept back count as well, as far as
    the cache shows that the pod could go there. So do, in the leaves of a short offer, those a scheduler that
    announces nothing kept back: a mate whose binding is still unseen may have them (ruling 24), and until it is seen
    it counts among those to be placed.
    """
    rooms: dict[topology.Domain, int] = {}

    def count(leaf: topology.Domain, free: resources.Amounts) -> None:
        if room := resources.fits(free, member):
            rooms[leaf] = rooms.get(leaf, 0) + room

    leaves = {name: topology.domain(fleet.place_of(state.nodes[name], question.domains)) for name in offered}
    for name, free in offered.items():
        count(leaves[name], free)
    sampled = len(question.candidates) >= FULL_OFFER
    announced = any(candidate.free is not None for candidate in question.candidates.values())
    if announced and not sampled:
        return rooms
    opened = set(leaves.values())
    for node in state.nodes.values():
        if node.name in leaves:
            continue
        leaf = topology.domain(fleet.place_of(node, question.domains))
        if (sampled or leaf in opened) and eligibility.is_eligible(node, question.spec):
            count(leaf, free_of(question, node, state, book))
    return rooms
