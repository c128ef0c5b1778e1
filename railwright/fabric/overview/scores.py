"""How good a gang's place is, against the best it could have now; of one that waits, why.

Owns the comparison: the same model and the same planner as placement, asked about the cluster as it is. A gang's own
places count as free for it, so that "best" is what moving it could gain at most. Nothing here places or promises.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.overview import model, rosters
from railwright.fabric.placement import ask, board, decide, fleet, landing, planner, standing

_REASONS = 6  # sentences shown of a gang
_WORSE = 0.005  # of the bandwidth: less would be shown as no difference
_NAMED = 3  # leaves named in a sentence


class Judgement(msgspec.Struct, frozen=True):
    """What is to be said of one gang."""

    state: str
    bandwidth: float | None = None
    best: float | None = None
    leaves: int = 0
    least: int = 0
    why: tuple[str, ...] = ()


def judge(roster: rosters.Roster, question: ask.Ask | None, desk: decide.Desk, state: fleet.Fleet) -> Judgement:
    """The judgement of a gang; `question` is that of a waiting member, or of any where none waits, over all nodes."""
    if question is None:
        return Judgement(state=roster.state, why=("its fabric is not in the policy in force: nothing is planned",))
    if roster.placed < len(roster.members):
        return _waiting(roster, question, desk)
    found = _placed(roster, question, desk, state)
    return msgspec.structs.replace(found, state=roster.state, why=(*_not_there(roster), *found.why)[:_REASONS])


# --- placed -------------------------------------------------------------------------------------------------


def _placed(roster: rosters.Roster, question: ask.Ask, desk: decide.Desk, state: fleet.Fleet) -> Judgement:
    current = desk.towards(question)
    workers = _workers(roster, question, state)
    where = _places(workers, current, state)
    plan = planner.solve(len(workers), _supply(where, current, question))
    promise = landing.Promise(
        leaves=plan.leaves, bandwidth=plan.bandwidth, bound=plan.bound, exact=plan.exact, members=len(workers)
    )
    landed = landing.of(
        where, promise, current.sizes, question.fabric.placement.oversubscription, current.profile.links
    )
    if not question.domains:
        return Judgement(
            state=model.PLACED,
            bandwidth=round(landed.bandwidth, 3),
            why=("the policy names no domains: leaves and crossings are not modelled", *landed.why)[:_REASONS],
        )
    best = max(landed.bandwidth, plan.bandwidth if plan.complete else 0.0)
    used, least = len(landed.leaves), len(plan.leaves) if plan.complete else len(landed.leaves)
    return Judgement(
        state=model.PLACED,
        bandwidth=round(landed.bandwidth, 3),
        best=round(best, 3),
        leaves=used,
        least=min(used, least),
        why=tuple(_shortcomings(landed, plan, best))[:_REASONS],
    )


def _shortcomings(landed: landing.Landing, plan: planner.Plan, best: float) -> Sequence[str]:
    told = [each for each in landed.why if not each.endswith(landing.ON_A_MATE)]
    if mates := len(landed.why) - len(told):  # one sentence of them all: the causes are what helps
        told.append(f"{mates} more {'member' if mates == 1 else 'members'}: {landing.ON_A_MATE}")
    if plan.complete and landed.bandwidth < best - _WORSE:
        told.insert(0, f"placed anew it could have {best:.2f} on {_leaves(plan.leaves)}")
    elif plan.complete and len(plan.leaves) < len(landed.leaves):
        told.append(f"as good, and on fewer leaves now: {_leaves(plan.leaves)}")
    return told


def _workers(roster: rosters.Roster, question: ask.Ask, state: fleet.Fleet) -> Sequence[fleet.FleetPod]:
    """The members that take devices, in order of rank; all where none does. A member's node may be announced only."""
    devices = {*question.accelerators, *(need.resource for need in question.needs)}
    pods = [
        msgspec.structs.replace(pod, node=each.node)
        for each in roster.members
        if each.node and (pod := state.pods.get(each.uid))
    ]
    return [pod for pod in pods if not devices.isdisjoint(pod.requests)] or pods


def _places(workers: Sequence[fleet.FleetPod], current: board.Board, state: fleet.Fleet) -> list[landing.Place]:
    on: dict[str, list[fleet.FleetPod]] = defaultdict(list)
    for pod in workers:
        on[pod.node].append(pod)
    lifted = {node: _lifted(node, mates, current, state) for node, mates in on.items() if node in state.nodes}
    return [
        landing.Place(
            pod=pod.key.partition("/")[2],
            node=pod.node,
            leaf=current.leaves.get(pod.node, topology.NOWHERE),
            stands=_nth(lifted[pod.node], on[pod.node].index(pod)) if pod.node in lifted else None,
        )
        for pod in workers
    ]


def _lifted(node: str, mates: Sequence[fleet.FleetPod], current: board.Board, state: fleet.Fleet) -> standing.Standing:
    """How a node would stand to the gang without the gang's pods on it."""
    free = dict(current.free_of(node))
    for pod in mates:
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) + amount
    devices = current.profile.devices
    allocatable = state.nodes[node].allocatable
    emptied = all(free.get(name, 0) >= allocatable.get(name, 0) for name in devices)
    facts = current.facts(state.nodes[node], free, mine=mates[0].uid)
    return current.standings[current.index(current.with_free(facts, free, emptied=emptied))]


def _nth(stands: standing.Standing, number: int) -> standing.Standing:
    """The standing as the member of that number finds it: the best spots are gone, the NICs shared with mates."""
    if not number:
        return stands
    grade, crowded = stands.grade, stands.grade.crowded
    grade = msgspec.structs.replace(
        grade,
        alignments=grade.alignments[number:],
        shares=crowded[min(number, len(crowded)) - 1] if crowded else grade.shares,
        crowded=crowded[number:],
    )
    return msgspec.structs.replace(stands, grade=grade)


def _supply(where: Sequence[landing.Place], current: board.Board, question: ask.Ask) -> planner.Supply:
    """All nodes as they are, the gang's own without the gang."""
    leaves = dict(current.supply)
    for node, place in {place.node: place for place in where}.items():
        first = next(each for each in where if each.node == node).stands
        old = current.kinds.get(node)
        if first is None or old is None:
            continue
        counts = leaves[place.leaf] = dict(leaves[place.leaf])
        counts[old] -= 1
        new = current.index(first.facts)
        counts[new] = counts.get(new, 0) + 1
    return planner.Supply(
        grades=[stands.grade for stands in current.standings],
        leaves=leaves,
        sizes=current.sizes,
        oversubscription=question.fabric.placement.oversubscription,
        links=current.profile.links,
    )


# --- waiting ------------------------------------------------------------------------------------------------


def _waiting(roster: rosters.Roster, question: ask.Ask, desk: decide.Desk) -> Judgement:
    not_there = _not_there(roster)
    decision = desk.decide(question)
    plan = decision.plan
    if not decision.gang.located:
        fit = len(desk.screen(question).kept)
        told = f"{fit} of {len(question.nodes)} nodes could take one of its pods now"
        return Judgement(state=roster.state, why=(*not_there, told))
    reasons = decision.reasons()
    if not plan.complete:
        stuck = model.UNPLACEABLE if not reasons.fits else roster.state
        return Judgement(state=stuck, least=plan.least_with_mates, why=(*not_there, *reasons.why)[:_REASONS])
    leaves = dict.fromkeys((*(leaf for leaf, mates in decision.gang.mates.items() if mates and leaf), *plan.leaves))
    remaining = decision.gang.remaining
    now = f"the {remaining} that remain fit now, on {_leaves(plan.leaves)}; the scheduler has not placed them"
    return Judgement(
        state=roster.state,
        best=round(plan.bandwidth, 3),
        leaves=len(leaves),
        least=plan.least_with_mates or len(leaves),
        why=(*not_there, now, *reasons.why)[:_REASONS],
    )


def _not_there(roster: rosters.Roster) -> tuple[str, ...]:
    missing = roster.size - len(roster.members)
    return (f"{missing} of its {roster.size} pods do not exist yet",) if missing else ()


def _leaves(leaves: Sequence[topology.Domain]) -> str:
    named = ", ".join(topology.name_of(leaf) for leaf in leaves[:_NAMED])
    more = f" and {len(leaves) - _NAMED} more" if len(leaves) > _NAMED else ""
    return f"{len(leaves)} {'leaf' if len(leaves) == 1 else 'leaves'} ({named}{more})"
