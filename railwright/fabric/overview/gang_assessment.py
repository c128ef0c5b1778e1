"""Lists the members of each gang, and assesses it: its bandwidth compared with the best possible now, or why it waits.

Uses the model and the planner of placement on the present cluster state. The gang's own nodes count as free, so "best"
is the most that moving the gang could gain. Nothing is placed or reserved here.

The largest gang that fits now has pods of all accelerators and one share of every rail of the most frequent node type.
Only these devices count; CPU and memory do not.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, resources, topology, views
from railwright.fabric.overview import overview_types, pods_and_events
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.explain import node_explainer, placement_result
from railwright.fabric.placement.gangs import gang_capacity, planner
from railwright.fabric.placement.nodes import facts_builder, node_evaluation, node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

# --- members --------------------------------------------------------------------------------------------------

MAX_GANGS = 1000  # shown; a cluster of 5,000 nodes runs some hundreds
_NO_INDEX = 1 << 30  # the index that `membership` gives to a pod without a number


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang."""

    uid: str
    key: str  # namespace/name
    rank: int  # from 0
    node: str  # "" until bound or assumed
    assumed: bool


class GangMembers(msgspec.Struct, frozen=True):
    """One gang."""

    key: membership.GangKey
    size: int
    members: tuple[Member, ...]  # by rank

    @property
    def placed(self) -> int:
        """Return the number of members that have a node."""
        return sum(1 for member in self.members if member.node)

    @property
    def state(self) -> str:
        """Return overview_types.PLACED, STARTING or WAITING."""
        placed = self.placed
        if placed >= self.size:
            return overview_types.PLACED
        return overview_types.STARTING if placed else overview_types.WAITING


class GangIndex:
    """All gangs of opted-in pods. If there are more than MAX_GANGS, the first by name are stored."""

    def __init__(
        self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods, pods: pods_and_events.OptedInPods
    ) -> None:
        self._cluster, self._assumed, self._pods = cluster, assumed, pods
        self._versions: tuple[int, int, int] = (-1, -1, -1)
        self.gangs: dict[membership.GangKey, GangMembers] = {}
        self.colours: dict[membership.GangKey, int] = {}
        self.ranks: dict[str, tuple[membership.GangKey, int]] = {}  # pod uid -> gang and rank
        self.total = 0

    def refresh(self) -> Collection[membership.GangKey]:
        """Update all gangs; return those that appeared, changed or disappeared."""
        versions = (self._cluster.version, self._assumed.change_log.position, self._pods.generation)
        if versions == self._versions:
            return ()
        self._versions = versions
        self.total = len(self._pods.gangs)
        keys = sorted(self._pods.gangs)[:MAX_GANGS]
        gangs = {key: gang for key in keys if (gang := _list_members(key, self._cluster, self._assumed)).members}
        changed = [key for key in {**self.gangs, **gangs} if self.gangs.get(key) != gangs.get(key)]
        for key in changed:
            for member in self.gangs[key].members if key in self.gangs else ():
                self.ranks.pop(member.uid, None)
        for key in changed:
            for member in gangs[key].members if key in gangs else ():
                self.ranks[member.uid] = (key, member.rank)
        self.gangs = gangs
        self.colours = _assign_colours(self.colours, gangs)
        return changed


def _list_members(
    key: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods
) -> GangMembers:
    pods = sorted(cluster.get_gang(key).values(), key=lambda pod: pod.rank)
    assumed_nodes = {assumed_pod.uid: assumed_pod.node for assumed_pod in assumed.list_of_gang(key)}
    members = tuple(
        Member(
            uid=pod.uid,
            key=pod.key,
            rank=rank,
            node=pod.node or assumed_nodes.get(pod.uid, ""),
            assumed=not pod.node and pod.uid in assumed_nodes,
        )
        for rank, pod in zip(_number_members(pods), pods, strict=True)
    )
    return GangMembers(key=key, size=cluster.get_gang_size(key, observed=len(members)), members=members)


def _number_members(pods: Sequence[object_info.PodInfo]) -> Iterable[int]:
    """Return the frameworks' own indices if they are unique, so that a late pod renumbers no other; else positions."""
    indices = [pod.rank.index for pod in pods]
    unique = len(set(indices)) == len(indices) and _NO_INDEX not in indices
    return indices if unique and len({pod.rank.role for pod in pods}) == 1 else range(len(pods))


def _assign_colours(
    old: Mapping[membership.GangKey, int], gangs: Mapping[membership.GangKey, GangMembers]
) -> dict[membership.GangKey, int]:
    """Return a colour for each gang: its previous one, or the lowest that is unused."""
    colours = {key: old[key] for key in gangs if key in old}
    used = set(colours.values())
    unused = (colour for colour in range(len(gangs) + 1) if colour not in used)
    for key in gangs:
        if key not in colours:
            colours[key] = next(unused)
    return colours


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
    gang: GangMembers,
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
    gang: GangMembers,
    request: scheduling_request.SchedulingRequest,
    placement_engine: engine.PlacementEngine,
    cluster: cluster_state.ClusterState,
) -> GangAssessment:
    index = placement_engine.get_index(request)
    members = [
        msgspec.structs.replace(pod, node=member.node)  # the cluster state does not have the node of an assumed pod
        for member in gang.members
        if member.node and (pod := cluster.pods.get(member.uid))
    ]
    workers = placement_result.select_workers(members, request.devices)
    placed_pods = _list_placed_pods(workers, index, cluster)
    capacity = _compute_capacity_without_gang(placed_pods, index)
    segment = max(1, min(request.segment, len(workers)))
    plan = planner.solve(len(workers), msgspec.structs.replace(capacity, segment=segment))
    planned = placement_result.PlannedPlacement.build(plan, len(workers))
    placement = placement_result.assess(placed_pods, planned, index.uplinks)
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
        why.insert(0, reason.make(Code.BETTER_PLAN, bandwidth=best, leaves=node_explainer.name_leaves(plan.leaves)))
    elif plan.is_complete and len(plan.leaves) < len(placement.leaves):
        why.append(reason.make(Code.FEWER_LEAVES_POSSIBLE, leaves=node_explainer.name_leaves(plan.leaves)))
    return why


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
) -> gang_capacity.GangCapacity:
    """Return the capacity of all nodes; the gang's own nodes count without the gang."""
    nodes_by_class = dict(index.nodes_by_class)
    evaluations: dict[str, node_evaluation.NodeEvaluation] = {}
    for pod in placed_pods:
        if pod.evaluation is not None:
            evaluations.setdefault(pod.node, pod.evaluation)
    classes = {node: index.get_class(evaluation.facts) for node, evaluation in evaluations.items()}
    gang_capacity.replace_classes(nodes_by_class, index, classes)
    return gang_capacity.build_on(index, nodes_by_class)


# --- waiting ------------------------------------------------------------------------------------------------


def _assess_waiting(
    gang: GangMembers,
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
    fits_now = reason.make(Code.FITS_NOW, pods=decision.gang.remaining, leaves=node_explainer.name_leaves(plan.leaves))
    return GangAssessment(
        state=gang.state,
        best=round(plan.bandwidth, 3),
        leaves=len(leaves),
        min_leaves=plan.min_leaves_with_placed or len(leaves),
        why=(*missing, fits_now, *diagnosis.why)[:_MAX_REASONS],
    )


def _describe_missing_pods(gang: GangMembers) -> tuple[reason.Reason, ...]:
    missing = gang.size - len(gang.members)
    return (reason.make(Code.PODS_MISSING, missing=missing, size=gang.size),) if missing else ()


# --- the largest gang -----------------------------------------------------------------------------------------

_GANG = "railwright/largest-gang"  # key of an imaginary gang, which has no pods
_TOLERATE_ALL = views.PodSpec(tolerations=[views.Toleration(operator="Exists")])  # taints of GPU nodes


def compute_largest_gang(  # noqa: PLR0913, PLR0917 - one argument for each source
    name: str,
    nodes: Collection[str],
    pod_size: resources.FrozenAmounts,
    placement_engine: engine.PlacementEngine,
    policy: policies.Policy,
    networks: intent.Networks,
) -> overview_types.LargestGang | None:
    """Return the largest gang of pods of this size on `nodes`, those of the fabric."""
    pod = views.Pod(metadata=views.ObjectMeta(labels_or_none={names.FABRIC: name}), spec=_TOLERATE_ALL)
    request = scheduling_request.build_request(
        pod, policy, networks, tuple(nodes), requests=pod_size, volcano_job=_GANG, uid=_GANG
    )
    if request is None:
        return None
    index = placement_engine.get_index(request)
    capacity = gang_capacity.build_on(index, index.nodes_by_class)
    slots_by_leaf = capacity.count_all_slots()
    labelled = {leaf: slots for leaf, slots in slots_by_leaf.items() if leaf != topology.NO_DOMAIN}
    leaf, pods_on_leaf = max(labelled.items(), key=lambda item: (item[1], item[0]), default=(topology.NO_DOMAIN, 0))
    accelerators = sum(pod_size.get(resource, 0) for resource in policy.document.accelerators)
    return overview_types.LargestGang(
        pods=sum(slots_by_leaf.values()),
        pods_on_leaf=pods_on_leaf,
        gpus=accelerators // resources.UNIT,
        rails=sum(len(need.rails) for need in request.needs),
        leaf=topology.format_domain(leaf) if pods_on_leaf else "",
    )


def find_pod_size(
    fabric: policies.Fabric, nodes: Collection[str], cluster: cluster_state.ClusterState, policy: policies.Policy
) -> resources.FrozenAmounts | None:
    """Return the devices of the most frequent node type; None if the nodes have none. It changes with nodes only."""
    pools = intent.group_by_resource(fabric.rails)
    device_names = (*policy.document.accelerators, *pools)
    counts = Counter(
        tuple(capacity.get(name, 0) for name in device_names)
        for node in nodes
        if node in cluster.nodes and (capacity := cluster.nodes[node].capacity or cluster.nodes[node].allocatable)
    )
    sizes = [size for size, _ in counts.most_common() if any(size)]
    if not sizes:
        return None
    amounts = {
        name: min(amount, fabric.count_devices(len(pools[name])) * resources.UNIT) if name in pools else amount
        for name, amount in zip(device_names, sizes[0], strict=True)
        if amount
    }
    return resources.freeze(amounts)
