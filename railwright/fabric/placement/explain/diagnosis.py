"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Questions like "what if only these leaves were used" are answered by the planner itself, so that explanations agree with
the plan. All bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import gang_capacity, planner
from railwright.fabric.placement.nodes import node_classes, node_evaluation, node_slots
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.reasons import reason, texts
from railwright.fabric.reasons.codes import Code

_CLOSE = 1e-6
_MAX_CANDIDATES = 3  # leaves for which a plan on this leaf alone is tried

ListPodsOn = Callable[[str], Iterable[cluster_state.PodInfo | assumed_pods.AssumedPod]]
"""Node -> bound and assumed pods on it."""


class DiagnosisInput(msgspec.Struct, frozen=True):
    """The input of an explanation: a plan and the cluster state it is based on."""

    remaining: int  # slots that the unplaced pods need, each of the size of the largest pod
    plan: planner.Plan
    capacity: gang_capacity.GangCapacity
    class_of_node: Mapping[str, node_classes.NodeClass]
    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    list_pods_on: ListPodsOn
    list_offered_leaves: Callable[[], Collection[topology.Domain]]  # leaves with at least one offered node
    is_single_pod: bool = False  # single-pod job: partly used nodes are preferred to bandwidth
    unplaced: int = 0  # unplaced pods, if smaller ones share slots; 0: as many as slots


def is_optimal(plan: planner.Plan, peers_by_leaf: Mapping[topology.Domain, int]) -> bool:
    """True if the plan needs no explanation: the whole gang on one leaf, at full bandwidth."""
    return (
        plan.is_complete
        and len({*plan.leaves, *peers_by_leaf} - {topology.NO_DOMAIN}) <= 1
        and plan.bandwidth >= texts.FULL_BANDWIDTH
    )


def still_applies(old: planner.Plan, old_remaining: int, new: planner.Plan, remaining: int) -> bool:
    """True if `new` is the unplaced remainder of `old`, so the old explanation still applies."""
    if remaining > old_remaining or old.is_complete != new.is_complete or old.rails != new.rails:
        return False
    if not new.is_complete:
        return sum(old.slots_by_leaf.values()) - sum(new.slots_by_leaf.values()) == old_remaining - remaining
    return abs(old.bandwidth - new.bandwidth) < _CLOSE and set(new.leaves) <= set(old.leaves)


class Diagnosis(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang, offered or not
    why: tuple[reason.Reason, ...] = ()  # most important first; () if the plan is optimal


NO_ISSUES = Diagnosis()


def diagnose(inputs: DiagnosisInput) -> Diagnosis:
    """Explain a plan."""
    plan = inputs.plan
    if is_optimal(plan, inputs.peers_by_leaf):
        return NO_ISSUES
    if not plan.is_complete:
        total_slots = sum(_count_slots_by_leaf(inputs, 0, 0.0).values())
        return Diagnosis(fits=total_slots >= inputs.remaining, why=tuple(_explain_shortage(inputs, total_slots)))
    if inputs.is_single_pod:
        return Diagnosis(why=(reason.make(Code.SINGLE_POD_PACKED, bandwidth=plan.bandwidth),))
    return Diagnosis(why=tuple(_list_reasons(inputs)))


def _list_reasons(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    return itertools.chain(
        _explain_leaves(inputs),
        _explain_slower_choice(inputs),
        _explain_bandwidth(inputs),
        _explain_uncertainty(inputs.plan),
    )


# --- why not fewer leaves -----------------------------------------------------------------------------------


def _explain_leaves(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    plan, remaining = inputs.plan, inputs.remaining
    count = len(plan.leaves)
    if count < 2:
        return
    slots_by_leaf = _count_slots_by_leaf(inputs, plan.rails, plan.bandwidth)
    largest = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))[: count - 1]
    largest_slots = sum(slots_by_leaf[leaf] for leaf in largest)
    if largest_slots < remaining:
        yield reason.make(
            Code.LEAVES_MINIMUM,
            pods=inputs.unplaced,
            slots_needed=remaining,
            min_leaves=count,
            bandwidth=plan.bandwidth,
            slots=largest_slots,
            leaves=reason.first((topology.format_domain(leaf), slots_by_leaf[leaf]) for leaf in largest),
        )
        return
    yield from _explain_fewer_leaves(inputs, largest)


def _explain_fewer_leaves(inputs: DiagnosisInput, fewer: Sequence[topology.Domain]) -> Iterable[reason.Reason]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = inputs.plan
    leaves = _name_leaves(fewer)
    weak = [uplink for leaf in fewer for uplink in _list_weak_uplinks(inputs, leaf, plan.bandwidth)]
    shapes = {
        node_capacity.shape
        for node_capacity in _list_capacities(inputs, fewer)
        if node_slots.count(node_capacity, plan.rails, plan.bandwidth)
    }
    peer_leaves = [leaf for leaf in inputs.peers_by_leaf if leaf]
    not_offered = _find_not_offered(inputs, fewer)
    if not_offered.items:
        yield reason.make(Code.FEWER_LEAVES_NOT_OFFERED, leaves=leaves, not_offered=not_offered)
    elif weak:
        if plan.min_leaves == len(fewer):
            return  # `_explain_slower_choice` explains it, with the bandwidth of these leaves
        yield reason.make(Code.FEWER_LEAVES_UPLINKS, leaves=leaves, causes=reason.first(weak))
    elif peer_leaves and not set(peer_leaves) <= set(fewer):
        counts = reason.first((topology.format_domain(leaf), inputs.peers_by_leaf[leaf]) for leaf in peer_leaves)
        yield reason.make(Code.FEWER_LEAVES_PEERS, leaves=leaves, peer_leaves=counts)
    elif plan.shape is not None and shapes - {plan.shape}:
        yield reason.make(Code.FEWER_LEAVES_NODE_TYPE, leaves=leaves, node_type=plan.shape)
    else:
        yield reason.make(Code.FEWER_LEAVES_UNTRIED, leaves=leaves)


def _find_not_offered(inputs: DiagnosisInput, leaves: Iterable[topology.Domain]) -> reason.Some:
    """Return the leaves without an offered node."""
    offered = inputs.list_offered_leaves()
    return _name_leaves(leaf for leaf in leaves if leaf not in offered)


def _explain_slower_choice(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    """Explain that fewer leaves have enough slots, but only at a lower bandwidth."""
    plan = inputs.plan
    if not 0 < plan.min_leaves < len(plan.leaves):
        return
    slots_by_leaf = _count_slots_by_leaf(inputs, 0, 0.0)
    order = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))
    choices = [order[: plan.min_leaves]]
    if plan.min_leaves == 1:
        choices = [[leaf] for leaf in order[:_MAX_CANDIDATES] if slots_by_leaf[leaf] >= inputs.remaining]
    rated_choices = [(_plan_on(inputs, choice).bandwidth, choice) for choice in choices]
    value, chosen = max(rated_choices, key=lambda rated: rated[0])
    if value > plan.bandwidth - _CLOSE:
        return
    weak: list[reason.Reason] = []
    if len(chosen) > 1:
        weak = [uplink for leaf in chosen for uplink in _list_weak_uplinks(inputs, leaf, value + _CLOSE)]
    yield reason.make(
        Code.FEWER_LEAVES_SLOWER,
        min_leaves=plan.min_leaves,
        leaves=_name_leaves(chosen),
        bandwidth=value,
        causes=reason.first([*weak, *_count_degradations(inputs, chosen, value)]),
    )


def _plan_on(inputs: DiagnosisInput, leaves: Sequence[topology.Domain]) -> planner.Plan:
    class_counts = {leaf: inputs.capacity.nodes[leaf] for leaf in leaves}
    return planner.solve(inputs.remaining, msgspec.structs.replace(inputs.capacity, nodes=class_counts))


# --- why not more bandwidth ---------------------------------------------------------------------------------


def _explain_bandwidth(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    plan, remaining = inputs.plan, inputs.remaining
    if plan.bandwidth >= texts.FULL_BANDWIDTH:
        return
    if not any(leaf != topology.NO_DOMAIN for leaf in plan.leaves):
        yield reason.make(Code.UNLABELLED_NODES, slots_needed=remaining)
        return
    better = _count_slots_by_leaf(inputs, plan.rails, plan.bandwidth + _CLOSE)
    if sum(better.values()) >= remaining:
        yield _explain_unused_bandwidth(inputs, better)
        return
    yield reason.make(
        Code.FASTER_NODES_TOO_FEW,
        bandwidth=plan.bandwidth,
        slots=sum(better.values()),
        slots_needed=remaining,
        causes=reason.first(_count_degradations(inputs, inputs.capacity.nodes, plan.bandwidth)),
    )
    if lost := _list_lost_rails(inputs):
        yield reason.make(Code.RAILS_LOST, rails=reason.first(lost))


def _explain_unused_bandwidth(inputs: DiagnosisInput, better: Iterable[topology.Domain]) -> reason.Reason:
    """Explain why the plan does not use leaves with enough slots at a higher bandwidth."""
    value = inputs.plan.bandwidth
    weak = [uplink for leaf in inputs.plan.leaves for uplink in _list_weak_uplinks(inputs, leaf, value + 2 * _CLOSE)]
    if weak:
        return reason.make(Code.BANDWIDTH_UPLINKS, bandwidth=value, causes=reason.first(weak))
    not_offered = _find_not_offered(inputs, better)
    if not_offered.items:
        return reason.make(Code.BANDWIDTH_NOT_OFFERED, bandwidth=value, not_offered=not_offered)
    return reason.make(Code.BANDWIDTH_UNTRIED, bandwidth=value)


def _list_lost_rails(inputs: DiagnosisInput) -> list[str]:
    """Return the needed rails that the plan does not use."""
    rail_names = next(
        (
            _list_rail_names(node_class.evaluation)
            for node_class in inputs.capacity.classes
            if node_class.evaluation.pools
        ),
        [],
    )
    shares = next(
        (node_class.capacity.shares for node_class in inputs.capacity.classes if node_class.capacity.shares), ()
    )
    return [name for bit, name in enumerate(rail_names[: len(shares)]) if not inputs.plan.rails >> bit & 1]


def _list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    return [name for pool in evaluation.pools for name in pool.need.rails]


def _explain_uncertainty(plan: planner.Plan) -> Iterable[reason.Reason]:
    if not plan.is_exact:
        yield reason.make(Code.PLAN_NOT_EXACT, gap=max(0.0, plan.upper_bound - plan.bandwidth))


# --- why it does not fit ------------------------------------------------------------------------------------


def _explain_shortage(inputs: DiagnosisInput, total_slots: int) -> Iterable[reason.Reason]:
    if total_slots >= inputs.remaining:
        yield reason.make(
            Code.CAPACITY_NOT_OFFERED,
            pods=inputs.unplaced,
            slots_needed=inputs.remaining,
            slots=sum(inputs.plan.slots_by_leaf.values()),
            not_offered=_find_not_offered(inputs, _count_slots_by_leaf(inputs, 0, 0.0)),
        )
        return
    rails = next((_list_rail_names(node_class.evaluation) for node_class in inputs.capacity.classes), [])
    yield reason.make(
        Code.CAPACITY_INSUFFICIENT,
        pods=inputs.unplaced,
        slots_needed=inputs.remaining,
        slots=total_slots,
        rails=tuple(rails),
    )
    totals: node_classes.Counts = {}
    for class_counts in inputs.capacity.nodes.values():
        for node_class, nodes in class_counts.items():
            totals[node_class] = totals.get(node_class, 0) + nodes
    blocked: Counter[reason.Reason] = Counter()
    for node_class, nodes in totals.items():
        if nodes and not node_class.capacity.slot_numa_factors:
            blocked[find_blocking_reason(node_class.evaluation)] += nodes
    if blocked:
        causes = (reason.make(Code.BLOCKED_NODES, nodes=nodes, reason=cause) for cause, nodes in blocked.most_common())
        yield reason.make(Code.NODES_BLOCKED, causes=reason.first(causes))
    yield from _explain_devices_in_use(inputs)


def find_blocking_reason(evaluation: node_evaluation.NodeEvaluation) -> reason.Reason:
    """Return why nodes of this class have no slot."""
    if not evaluation.facts.eligible:
        return reason.make(Code.NODE_INELIGIBLE)
    if lacking := list_short_resources(evaluation):
        return describe_shortage(evaluation, lacking[0])
    return evaluation.refusal or reason.make(Code.OTHER_RESOURCES)


def list_short_resources(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the accelerators and rail resources with fewer free devices on the node than one pod requests."""
    return [name for name, (free, _, requested) in evaluation.usage.items() if free < requested]


def describe_shortage(evaluation: node_evaluation.NodeEvaluation, resource: str) -> reason.Reason:
    """Return the reason that states the free and the needed amount of one resource."""
    free, allocatable, requested = evaluation.usage[resource]
    return reason.make(
        Code.DEVICE_SHORTAGE,
        device=_get_label(evaluation, resource),
        free=max(0, free) // resources.UNIT,
        allocatable=allocatable // resources.UNIT,
        needed=requested // resources.UNIT,
    )


def _get_label(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    return next((pool.need.label for pool in evaluation.pools if pool.need.resource == resource), resource)


def _explain_devices_in_use(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    """Name the pods that use the missing accelerator or rail, for a few nodes."""
    lacking = {
        node_class: names[0]
        for node_class in inputs.capacity.classes
        if node_class.evaluation.facts.eligible
        and not node_class.capacity.slot_numa_factors
        and (names := list_short_resources(node_class.evaluation))
    }
    causes: list[reason.Reason] = []
    for node, node_class in inputs.class_of_node.items():
        if node_class not in lacking:
            continue
        resource = lacking[node_class]
        keys = [pod.key for pod in inputs.list_pods_on(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            label = _get_label(node_class.evaluation, resource)
            causes.append(reason.make(Code.DEVICE_IN_USE, device=label, node=node, pods=reason.first(keys)))
        if len(causes) == reason.MAX_NAMED:
            break
    if causes:
        yield reason.make(Code.DEVICES_IN_USE, causes=reason.first(causes))


# --- degradations and sums -----------------------------------------------------------------------------------------


def list_degradations(evaluation: node_evaluation.NodeEvaluation) -> tuple[reason.Reason, ...]:
    """Return the reasons why nodes of this class have less than full bandwidth."""
    degradations = []
    node_capacity = evaluation.capacity
    if node_capacity.slot_numa_factors and node_capacity.slot_numa_factors[0] < 1:
        degradations.append(reason.make(Code.NUMA_SPLIT))
    for pool in evaluation.pools:
        if not pool.is_sufficient:
            code = Code.RAIL_NOT_FREE if pool.allocatable > 0 else Code.RAIL_DEAD
            degradations.append(reason.make(code, rail=pool.need.label))
        elif not pool.is_healthy:
            degradations.append(reason.make(Code.RAIL_DEGRADED, rail=pool.need.label))
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append(reason.make(Code.NICS_SHARED))
    return tuple(degradations)


def _count_degradations(
    inputs: DiagnosisInput, leaves: Iterable[topology.Domain], min_bandwidth: node_slots.Bandwidth
) -> list[reason.Reason]:
    """Return the degradations of nodes of these leaves at or below `min_bandwidth`, with the number of nodes."""
    nodes: Counter[reason.Reason] = Counter()
    for leaf in leaves:
        for node_class, count in inputs.capacity.nodes[leaf].items():
            node_capacity = node_class.capacity
            better = node_slots.count(node_capacity, inputs.plan.rails, min_bandwidth + 2 * _CLOSE)
            if node_capacity.slot_numa_factors and not better:
                nodes.update(dict.fromkeys(list_degradations(node_class.evaluation), count))
            elif better < len(node_capacity.slot_numa_factors) and node_capacity.crowded_shares:
                nodes[reason.make(Code.TOO_FEW_NICS, pods=better + 1)] += count
    return [
        reason.make(Code.DEGRADED_NODES, nodes=count, reason=degradation)
        for degradation, count in nodes.most_common(reason.MAX_NAMED)
    ]


def _list_weak_uplinks(
    inputs: DiagnosisInput, leaf: topology.Domain, min_bandwidth: node_slots.Bandwidth
) -> list[reason.Reason]:
    """Return the domains above a leaf with uplinks that carry less than `min_bandwidth`."""
    weak = []
    for level, ratio in enumerate(inputs.capacity.oversubscription[: len(leaf)]):
        domain = leaf[level:]
        nodes = inputs.capacity.domain_sizes.get(domain, 1)
        carried = bandwidth.compute_uplink_bandwidth(nodes, ratio, links=inputs.capacity.links_per_rail)
        if domain[0] and carried < min_bandwidth:
            weak.append(describe_uplinks(domain, nodes, ratio, carried, links=inputs.capacity.links_per_rail))
    return weak


def describe_uplinks(  # noqa: PLR0913, PLR0917 - one argument for each parameter of the reason
    domain: topology.Domain,
    nodes: int,
    ratio: float,
    carried: node_slots.Bandwidth,
    crossings: int = 1,
    links: float = 1.0,
) -> reason.Reason:
    """Return the reason that states the bandwidth (`carried`, 0..1) of each ring edge over the domain's uplinks."""
    return reason.make(
        Code.UPLINKS_LIMIT,
        domain=topology.format_domain(domain),
        nodes=nodes,
        oversubscription=ratio,
        carried=carried,
        crossings=crossings,
        has_unused_links=links > 1,
    )


def _name_leaves(leaves: Iterable[topology.Domain]) -> reason.Some:
    return reason.first(map(topology.format_domain, leaves))


def _count_slots_by_leaf(
    inputs: DiagnosisInput, rails: int, min_bandwidth: node_slots.Bandwidth
) -> dict[topology.Domain, int]:
    any_bandwidth = not rails and not min_bandwidth
    slots = {
        node_class: len(node_class.capacity.slot_numa_factors)
        if any_bandwidth
        else node_slots.count(node_class.capacity, rails, min_bandwidth)
        for node_class in inputs.capacity.classes
    }
    slots_by_leaf = inputs.capacity.count_slots(slots)
    slots_by_leaf.pop(topology.NO_DOMAIN, None)
    return slots_by_leaf


def _list_capacities(inputs: DiagnosisInput, leaves: Iterable[topology.Domain]) -> Iterable[node_slots.NodeCapacity]:
    counts = (inputs.capacity.nodes[leaf] for leaf in leaves)
    return (node_class.capacity for classes in counts for node_class, nodes in classes.items() if nodes)
