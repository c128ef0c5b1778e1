"""Assesses a gang: its modelled bandwidth compared with the best possible now, or why it waits.

Uses the model and the planner of placement on the present cluster state. The gang's own nodes count as free, so "best"
is the most that moving the gang could gain. Nothing is placed or reserved here.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.overview import gang_members, model
from railwright.fabric.placement import ask, board, decide, fleet, landing, planner, standing

_MAX_REASONS = 6  # shown of a gang
_MIN_DIFFERENCE = 0.005  # smaller differences of bandwidth would be formatted as equal
_MAX_LEAVES = 3  # named in one message


class GangAssessment(msgspec.Struct, frozen=True):
    """The assessment of one gang. Bandwidths are modelled, 0..1; None if they cannot be computed."""

    state: str
    bandwidth: float | None = None
    best: float | None = None
    leaves: int = 0
    min_leaves: int = 0
    why: tuple[str, ...] = ()


def assess(
    gang: gang_members.GangMembers, request: ask.Ask | None, engine: decide.Desk, cluster: fleet.Fleet
) -> GangAssessment:
    """Assess a gang. `request` is that of a waiting member, or of any member if none waits, for all nodes."""
    if request is None:
        message = "the fabric of these pods is not defined in the current policy, so no plan is made"
        return GangAssessment(state=gang.state, why=(message,))
    if gang.placed < len(gang.members):
        return _assess_waiting(gang, request, engine)
    assessment = _assess_placed(gang, request, engine, cluster)
    why = (*_missing_pods(gang), *assessment.why)[:_MAX_REASONS]
    return msgspec.structs.replace(assessment, state=gang.state, why=why)


# --- placed -------------------------------------------------------------------------------------------------


def _assess_placed(
    gang: gang_members.GangMembers, request: ask.Ask, engine: decide.Desk, cluster: fleet.Fleet
) -> GangAssessment:
    index = engine.towards(request)
    workers = _workers(gang, request, cluster)
    places = _places(workers, index, cluster)
    plan = planner.solve(len(workers), _capacity_without_gang(places, index, request))
    planned = landing.Promise(
        leaves=plan.leaves, bandwidth=plan.bandwidth, bound=plan.bound, exact=plan.exact, members=len(workers)
    )
    placement = landing.of(places, planned, index.sizes, request.fabric.placement.oversubscription, index.profile.links)
    if not request.domains:
        return GangAssessment(
            state=model.PLACED,
            bandwidth=round(placement.bandwidth, 3),
            why=("the policy names no domains: leaves and crossings are not modelled", *placement.why)[:_MAX_REASONS],
        )
    best = max(placement.bandwidth, plan.bandwidth if plan.complete else 0.0)
    used = len(placement.leaves)
    fewest = len(plan.leaves) if plan.complete else used
    return GangAssessment(
        state=model.PLACED,
        bandwidth=round(placement.bandwidth, 3),
        best=round(best, 3),
        leaves=used,
        min_leaves=min(used, fewest),
        why=tuple(_improvements(placement, plan, best))[:_MAX_REASONS],
    )


def _improvements(placement: landing.Landing, plan: planner.Plan, best: float) -> Sequence[str]:
    """Return the degradations of a placement, and the better plan if there is one."""
    why = [reason for reason in placement.why if not reason.endswith(landing.ON_A_MATE)]
    if peers := len(placement.why) - len(why):  # one message for all of them: the causes are more useful
        why.append(f"{peers} more {'member' if peers == 1 else 'members'}: {landing.ON_A_MATE}")
    if plan.complete and placement.bandwidth < best - _MIN_DIFFERENCE:
        why.insert(0, f"recreated now, it could have {best:.2f} on {_format_leaves(plan.leaves)}")
    elif plan.complete and len(plan.leaves) < len(placement.leaves):
        why.append(f"recreated now, it could have the same bandwidth on {_format_leaves(plan.leaves)}")
    return why


def _workers(gang: gang_members.GangMembers, request: ask.Ask, cluster: fleet.Fleet) -> Sequence[fleet.FleetPod]:
    """Return the placed members that request devices, by rank; all placed members if none does."""
    devices = {*request.accelerators, *(need.resource for need in request.needs)}
    pods = [
        msgspec.structs.replace(pod, node=member.node)  # the cluster state does not have the node of an assumed pod
        for member in gang.members
        if member.node and (pod := cluster.pods.get(member.uid))
    ]
    return [pod for pod in pods if not devices.isdisjoint(pod.requests)] or pods


def _places(workers: Sequence[fleet.FleetPod], index: board.Board, cluster: fleet.Fleet) -> list[landing.Place]:
    by_node: dict[str, list[fleet.FleetPod]] = defaultdict(list)
    for pod in workers:
        by_node[pod.node].append(pod)
    evaluations = {
        node: _evaluate_without_gang(node, members, index, cluster)
        for node, members in by_node.items()
        if node in cluster.nodes
    }
    return [
        landing.Place(
            pod=pod.key.partition("/")[2],
            node=pod.node,
            leaf=index.leaves.get(pod.node, topology.NOWHERE),
            stands=_after_members(evaluations[pod.node], by_node[pod.node].index(pod))
            if pod.node in evaluations
            else None,
        )
        for pod in workers
    ]


def _evaluate_without_gang(
    node: str, members: Sequence[fleet.FleetPod], index: board.Board, cluster: fleet.Fleet
) -> standing.Standing:
    """Evaluate a node as if the gang's pods on it did not exist."""
    free = dict(index.free_of(node))
    for pod in members:
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) + amount
    allocatable = cluster.nodes[node].allocatable
    emptied = all(free.get(name, 0) >= allocatable.get(name, 0) for name in index.profile.devices)
    facts = index.facts(cluster.nodes[node], free, mine=members[0].uid)
    return index.standings[index.index(index.with_free(facts, free, emptied=emptied))]


def _after_members(evaluation: standing.Standing, members: int) -> standing.Standing:
    """Return the evaluation after `members` pods of the gang: the best NUMA slots are used, and NICs are shared."""
    if not members:
        return evaluation
    grade, crowded = evaluation.grade, evaluation.grade.crowded
    grade = msgspec.structs.replace(
        grade,
        alignments=grade.alignments[members:],
        shares=crowded[min(members, len(crowded)) - 1] if crowded else grade.shares,
        crowded=crowded[members:],
    )
    return msgspec.structs.replace(evaluation, grade=grade)


def _capacity_without_gang(places: Sequence[landing.Place], index: board.Board, request: ask.Ask) -> planner.Supply:
    """Return the capacity of all nodes; the gang's own nodes count without the gang."""
    leaves = dict(index.supply)
    first_places: dict[str, landing.Place] = {}
    for place in places:
        first_places.setdefault(place.node, place)
    for node, place in first_places.items():
        old_class = index.kinds.get(node)
        if place.stands is None or old_class is None:
            continue
        counts = leaves[place.leaf] = dict(leaves[place.leaf])
        counts[old_class] -= 1
        new_class = index.index(place.stands.facts)
        counts[new_class] = counts.get(new_class, 0) + 1
    return planner.Supply(
        grades=[evaluation.grade for evaluation in index.standings],
        leaves=leaves,
        sizes=index.sizes,
        oversubscription=request.fabric.placement.oversubscription,
        links=index.profile.links,
    )


# --- waiting ------------------------------------------------------------------------------------------------


def _assess_waiting(gang: gang_members.GangMembers, request: ask.Ask, engine: decide.Desk) -> GangAssessment:
    missing = _missing_pods(gang)
    decision = engine.decide(request)
    plan = decision.plan
    if not decision.gang.located:
        fit = len(engine.screen(request).kept)
        message = f"{fit} of {len(request.nodes)} nodes could take one of its pods now"
        return GangAssessment(state=gang.state, why=(*missing, message))
    diagnosis = decision.reasons()
    if not plan.complete:
        state = model.UNPLACEABLE if not diagnosis.fits else gang.state
        why = (*missing, *diagnosis.why)[:_MAX_REASONS]
        return GangAssessment(state=state, min_leaves=plan.least_with_mates, why=why)
    peer_leaves = (leaf for leaf, peers in decision.gang.mates.items() if peers and leaf)
    leaves = dict.fromkeys((*peer_leaves, *plan.leaves))
    remaining = decision.gang.remaining
    fits_now = (
        f"the {remaining} that remain fit now, on {_format_leaves(plan.leaves)}; the scheduler has not placed them"
    )
    return GangAssessment(
        state=gang.state,
        best=round(plan.bandwidth, 3),
        leaves=len(leaves),
        min_leaves=plan.least_with_mates or len(leaves),
        why=(*missing, fits_now, *diagnosis.why)[:_MAX_REASONS],
    )


def _missing_pods(gang: gang_members.GangMembers) -> tuple[str, ...]:
    missing = gang.size - len(gang.members)
    return (f"{missing} of its {gang.size} pods do not exist yet",) if missing else ()


def _format_leaves(leaves: Sequence[topology.Domain]) -> str:
    named = ", ".join(topology.name_of(leaf) for leaf in leaves[:_MAX_LEAVES])
    more = f" and {len(leaves) - _MAX_LEAVES} more" if len(leaves) > _MAX_LEAVES else ""
    return f"{len(leaves)} {'leaf' if len(leaves) == 1 else 'leaves'} ({named}{more})"
