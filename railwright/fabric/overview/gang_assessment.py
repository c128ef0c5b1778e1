"""Assesses a gang: its modelled bandwidth compared with the best possible now, or why it waits.

Uses the model and the planner of placement on the present cluster state. The gang's own nodes count as free, so "best"
is the most that moving the gang could gain. Nothing is placed or reserved here.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.overview import gang_members, overview_types
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.explain import placement_result
from railwright.fabric.placement.gangs import gang_capacity, planner
from railwright.fabric.placement.nodes import facts_builder, node_evaluation, node_index
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

_MAX_REASONS = 6  # shown of a gang
_MIN_DIFFERENCE = 0.005  # smaller differences of bandwidth would be formatted as equal


class GangAssessment(msgspec.Struct, frozen=True):
    """The assessment of one gang. Bandwidths are modelled, 0..1; None if they cannot be computed."""

    state: str
    bandwidth: float | None = None
    best: float | None = None
    leaves: int = 0
    min_leaves: int = 0
    why: tuple[reason.Reason, ...] = ()
    outcome: str = ""  # overview_types.COMPACT, SPREAD or DEGRADED_GANG; "" unless placed


def assess(
    gang: gang_members.GangMembers,
    request: scheduling_request.SchedulingRequest | None,
    placement_engine: engine.PlacementEngine,
    cluster: cluster_state.ClusterState,
) -> GangAssessment:
    """Assess a gang. `request`: of a waiting member, or of any member if none waits; it offers all nodes."""
    if request is None:
        return GangAssessment(state=gang.state, why=(reason.make(Code.FABRIC_UNDEFINED),))
    if gang.placed < len(gang.members):
        return _assess_waiting(gang, request, placement_engine)
    assessment = _assess_placed(gang, request, placement_engine, cluster)
    why = (*_describe_missing_pods(gang), *assessment.why)[:_MAX_REASONS]
    return msgspec.structs.replace(assessment, state=gang.state, why=why)


# --- placed -------------------------------------------------------------------------------------------------


def _assess_placed(
    gang: gang_members.GangMembers,
    request: scheduling_request.SchedulingRequest,
    placement_engine: engine.PlacementEngine,
    cluster: cluster_state.ClusterState,
) -> GangAssessment:
    index = placement_engine.get_index(request)
    workers = _select_workers(gang, request, cluster)
    placed_pods = _list_placed_pods(workers, index, cluster)
    plan = planner.solve(len(workers), _compute_capacity_without_gang(placed_pods, index, request))
    planned = placement_result.PlannedPlacement(
        leaves=plan.leaves,
        bandwidth=plan.bandwidth,
        upper_bound=plan.upper_bound,
        is_exact=plan.is_exact,
        members=len(workers),
    )
    placement = placement_result.assess(
        placed_pods, planned, index.domain_sizes, request.fabric.placement.oversubscription, index.signature.links
    )
    if not request.domains:
        return GangAssessment(
            state=overview_types.PLACED,
            bandwidth=round(placement.bandwidth, 3),
            why=(reason.make(Code.DOMAINS_UNDEFINED), *placement.causes)[:_MAX_REASONS],
        )
    outcome = placement_result.classify(placement, planned) if plan.is_complete else overview_types.COMPACT
    best = max(placement.bandwidth, plan.bandwidth if plan.is_complete else 0.0)
    leaves = len(placement.leaves)
    planned_leaves = len(plan.leaves) if plan.is_complete else leaves
    return GangAssessment(
        state=overview_types.PLACED,
        bandwidth=round(placement.bandwidth, 3),
        best=round(best, 3),
        leaves=leaves,
        min_leaves=min(leaves, planned_leaves),
        why=tuple(_list_improvements(placement, plan, best))[:_MAX_REASONS],
        outcome=outcome,
    )


def _list_improvements(
    placement: placement_result.PlacementResult, plan: planner.Plan, best: float
) -> Sequence[reason.Reason]:
    """Return the degradations of a placement, and the better plan if there is one."""
    why = [cause for cause in placement.causes if cause.code is not Code.PEER_RAIL_MISSING]
    if peers := len(placement.causes) - len(why):  # one reason for all of them: the causes are more useful
        why.append(reason.make(Code.PEERS_LACK_RAILS, pods=peers))
    if plan.is_complete and placement.bandwidth < best - _MIN_DIFFERENCE:
        why.insert(0, reason.make(Code.BETTER_PLAN, bandwidth=best, leaves=_name_leaves(plan.leaves)))
    elif plan.is_complete and len(plan.leaves) < len(placement.leaves):
        why.append(reason.make(Code.FEWER_LEAVES_POSSIBLE, leaves=_name_leaves(plan.leaves)))
    return why


def _select_workers(
    gang: gang_members.GangMembers, request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState
) -> Sequence[object_info.PodInfo]:
    """Return the placed members that request devices, by rank; all placed members if none does."""
    devices = {*request.accelerators, *(need.resource for need in request.needs)}
    pods = [
        msgspec.structs.replace(pod, node=member.node)  # the cluster state does not have the node of an assumed pod
        for member in gang.members
        if member.node and (pod := cluster.pods.get(member.uid))
    ]
    return [pod for pod in pods if not devices.isdisjoint(pod.requests)] or pods


def _list_placed_pods(
    workers: Sequence[object_info.PodInfo], index: node_index.NodeIndex, cluster: cluster_state.ClusterState
) -> list[placement_result.PlacedPod]:
    by_node: dict[str, list[object_info.PodInfo]] = defaultdict(list)
    for pod in workers:
        by_node[pod.node].append(pod)
    evaluations = {
        node: _evaluate_without_gang(node, members, index, cluster)
        for node, members in by_node.items()
        if node in cluster.nodes
    }
    return [
        placement_result.PlacedPod(
            pod=pod.key.partition("/")[2],
            node=pod.node,
            leaf=index.leaf_by_node.get(pod.node, topology.NO_DOMAIN),
            evaluation=_evaluate_after_members(evaluations[pod.node], by_node[pod.node].index(pod))
            if pod.node in evaluations
            else None,
        )
        for pod in workers
    ]


def _evaluate_without_gang(
    node: str,
    members: Sequence[object_info.PodInfo],
    index: node_index.NodeIndex,
    cluster: cluster_state.ClusterState,
) -> node_evaluation.NodeEvaluation:
    """Evaluate a node as if the gang's pods on it did not exist."""
    free = dict(index.facts.compute_free(node))
    for pod in members:
        for name, amount in pod.requests.items():
            free[name] = free.get(name, 0) + amount
    allocatable = cluster.nodes[node].allocatable
    would_be_empty = all(free.get(name, 0) >= allocatable.get(name, 0) for name in index.signature.devices)
    absent = facts_builder.Absent(self_uid=members[0].uid)
    facts = index.facts.build(cluster.nodes[node], free, absent=absent)
    return index.get_class(index.facts.replace_free(facts, free, if_preempted=would_be_empty)).evaluation


def _evaluate_after_members(evaluation: node_evaluation.NodeEvaluation, members: int) -> node_evaluation.NodeEvaluation:
    """Return the evaluation after `members` pods of the gang: the best NUMA slots are used, and NICs are shared."""
    if not members:
        return evaluation
    node_capacity, crowded = evaluation.capacity, evaluation.capacity.crowded_shares
    node_capacity = msgspec.structs.replace(
        node_capacity,
        slot_numa_factors=node_capacity.slot_numa_factors[members:],
        shares=crowded[min(members, len(crowded)) - 1] if crowded else node_capacity.shares,
        crowded_shares=crowded[members:],
    )
    return msgspec.structs.replace(evaluation, capacity=node_capacity)


def _compute_capacity_without_gang(
    placed_pods: Sequence[placement_result.PlacedPod],
    index: node_index.NodeIndex,
    request: scheduling_request.SchedulingRequest,
) -> gang_capacity.GangCapacity:
    """Return the capacity of all nodes; the gang's own nodes count without the gang."""
    nodes_by_class = dict(index.nodes_by_class)
    evaluations: dict[str, node_evaluation.NodeEvaluation] = {}
    for pod in placed_pods:
        if pod.evaluation is not None:
            evaluations.setdefault(pod.node, pod.evaluation)
    classes = {node: index.get_class(evaluation.facts) for node, evaluation in evaluations.items()}
    gang_capacity.replace_classes(nodes_by_class, index, classes)
    return gang_capacity.GangCapacity(
        classes=index.classes,
        nodes=nodes_by_class,
        domain_sizes=index.domain_sizes,
        oversubscription=request.fabric.placement.oversubscription,
        links_per_rail=index.signature.links,
    )


# --- waiting ------------------------------------------------------------------------------------------------


def _assess_waiting(
    gang: gang_members.GangMembers,
    request: scheduling_request.SchedulingRequest,
    placement_engine: engine.PlacementEngine,
) -> GangAssessment:
    missing = _describe_missing_pods(gang)
    decision = placement_engine.score(request)
    plan = decision.plan
    if not decision.gang.has_domains:
        fit = len(placement_engine.filter(request).feasible)
        nodes_fit = reason.make(Code.NODES_FIT, fit=fit, nodes=len(request.nodes))
        return GangAssessment(state=gang.state, why=(*missing, nodes_fit))
    diagnosis = decision.diagnose()
    if not plan.is_complete:
        unplaceable = overview_types.UNPLACEABLE if diagnosis.fits_without_others else overview_types.NEVER
        state = gang.state if diagnosis.fits else unplaceable
        why = (*missing, *diagnosis.why)[:_MAX_REASONS]
        return GangAssessment(state=state, min_leaves=plan.min_leaves_with_placed, why=why)
    peer_leaves = (leaf for leaf, peers in decision.gang.peers_by_leaf.items() if peers and leaf)
    leaves = dict.fromkeys((*peer_leaves, *plan.leaves))
    fits_now = reason.make(Code.FITS_NOW, pods=decision.gang.remaining, leaves=_name_leaves(plan.leaves))
    return GangAssessment(
        state=gang.state,
        best=round(plan.bandwidth, 3),
        leaves=len(leaves),
        min_leaves=plan.min_leaves_with_placed or len(leaves),
        why=(*missing, fits_now, *diagnosis.why)[:_MAX_REASONS],
    )


def _describe_missing_pods(gang: gang_members.GangMembers) -> tuple[reason.Reason, ...]:
    missing = gang.size - len(gang.members)
    return (reason.make(Code.PODS_MISSING, missing=missing, size=gang.size),) if missing else ()


def _name_leaves(leaves: Sequence[topology.Domain]) -> reason.Some:
    return reason.take_first(map(topology.format_domain, leaves))
