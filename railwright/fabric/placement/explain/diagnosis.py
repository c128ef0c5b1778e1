"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

The input is a value, so that a decision can be explained at any time after it. Questions like "what if only these
leaves were used" are answered by the planner itself, so that explanations agree with the plan. All bandwidths are
modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.gangs import gang_capacity, gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, node_slots, request_view
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

CLOSE = 1e-6  # bandwidth (0..1); smaller differences are rounding
_MAX_SEARCHED = 200  # nodes, for pods that use their missing devices; each takes some microseconds
_MAX_CANDIDATES = 3  # leaves for which a plan on this leaf alone is tried


class DiagnosisInput(msgspec.Struct, frozen=True):
    """A plan that is not optimal, and what it is based on."""

    remaining: int  # slots that the unplaced pods need, each of the size of the largest pod
    unplaced: int  # unplaced pods; smaller ones may share slots
    plan: planner.Plan
    capacity: gang_capacity.GangCapacity
    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    view: request_view.RequestView
    is_single_pod: bool  # single-pod job: partly used nodes are preferred to bandwidth
    same_rails: tuple[str, ...]  # rails of claims that all pods of the gang must take; () if others would do
    begun: Sequence[membership.GangKey]  # other gangs, whose nodes are not in `capacity`
    devices_in_use: Sequence[reason.Reason]  # who uses the missing devices of a few nodes, if the gang does not fit


class Diagnosis(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang, offered or not
    fits_without_others: bool = True  # False: too few slots even if no other pod ran
    why: tuple[reason.Reason, ...] = ()  # most important first; () if the plan is optimal


NO_ISSUES = Diagnosis()


def build_input(
    view: request_view.RequestView, planned: gang_planning.PlannedGang, list_holders: node_explainer.ListHolders
) -> DiagnosisInput | None:
    """Return the input of a diagnosis; None if there is nothing to explain.

    `view` is that of the plan. The node index changes, so the numbers of nodes are copied.
    """
    plan, gang, signature = planned.plan, planned.summary, view.index.signature
    if planned.capacity is None or is_optimal(plan, gang.peers_by_leaf):
        return None
    request = view.request
    # of the topology domains that come in turn, one may be too small
    is_short = not plan.is_complete and not planned.begun and (request.is_confined or not request.offers)
    is_partial = request.is_confined or len(request.nodes) < gang_capacity.MAX_FULL_OFFER
    capacity = planned.capacity
    if is_short and is_partial:  # segments stay whole
        capacity = msgspec.structs.replace(capacity, nodes=gang_capacity.build_of_all(view).nodes)
    return DiagnosisInput(
        remaining=gang.remaining_slots,
        unplaced=gang.remaining,
        plan=plan,
        capacity=capacity.copy(),
        peers_by_leaf=gang.peers_by_leaf,
        view=view,
        is_single_pod=signature.is_single_pod,
        same_rails=signature.same_rails,
        begun=planned.begun,
        devices_in_use=() if plan.is_complete else tuple(_list_devices_in_use(view, list_holders)),
    )


def is_optimal(plan: planner.Plan, peers_by_leaf: Mapping[topology.Domain, int]) -> bool:
    """True if the plan needs no explanation: the whole gang on one leaf, at full bandwidth."""
    return (
        plan.is_complete
        and len({*plan.leaves, *peers_by_leaf} - {topology.NO_DOMAIN}) <= 1
        and plan.bandwidth >= rendering.FULL_BANDWIDTH
    )


def still_applies(old: planner.Plan, old_remaining: int, new: planner.Plan, remaining: int) -> bool:
    """True if `new` is the unplaced remainder of `old`, so the old explanation still applies."""
    if remaining > old_remaining or old.is_complete != new.is_complete or old.rails != new.rails:
        return False
    if not new.is_complete:
        return sum(old.slots_by_leaf.values()) - sum(new.slots_by_leaf.values()) == old_remaining - remaining
    return abs(old.bandwidth - new.bandwidth) < CLOSE and set(new.leaves) <= set(old.leaves)


def diagnose(inputs: DiagnosisInput | None) -> Diagnosis:
    """Explain a plan; without input it is optimal."""
    if inputs is None:
        return NO_ISSUES
    plan = inputs.plan
    if not plan.is_complete:
        total_slots = sum(_count_slots_by_leaf(inputs, 0, 0.0).values())
        fits = total_slots >= inputs.remaining
        return Diagnosis(
            fits=fits,
            fits_without_others=fits or _fits_without_others(inputs),
            why=(*_explain_shortage(inputs, total_slots), *_explain_prior_rights(inputs)),
        )
    if inputs.is_single_pod:
        return Diagnosis(why=(reason.make(Code.SINGLE_POD_PACKED, bandwidth=plan.bandwidth),))
    return Diagnosis(why=tuple(_list_reasons(inputs)))


def _list_reasons(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    yield from _explain_leaf_count(inputs)
    yield from _explain_slower_choice(inputs)
    yield from _explain_bandwidth(inputs)
    yield from _explain_prior_rights(inputs)
    if not inputs.plan.is_exact:
        gap = max(0.0, inputs.plan.upper_bound - inputs.plan.bandwidth)
        yield reason.make(Code.PLAN_NOT_EXACT, gap=gap)
    if any(node_class.capacity.fills_nodes for node_class in inputs.capacity.classes):
        yield reason.make(Code.NODES_FILLED)


def _explain_prior_rights(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    if inputs.begun:
        yield reason.make(Code.EARLIER_GANGS, gangs=reason.take_first(inputs.begun))


# --- why not fewer leaves -----------------------------------------------------------------------------------


def _explain_leaf_count(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    """Yield why fewer leaves do not have enough slots at the plan's bandwidth, or why they are not used."""
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
            leaves=reason.take_first((topology.format_domain(leaf), slots_by_leaf[leaf]) for leaf in largest),
        )
        return
    yield from _explain_fewer_leaves(inputs, largest)


def _explain_fewer_leaves(inputs: DiagnosisInput, fewer: Sequence[topology.Domain]) -> Iterable[reason.Reason]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = inputs.plan
    leaves = node_explainer.name_leaves(fewer)
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
        yield reason.make(Code.FEWER_LEAVES_UPLINKS, leaves=leaves, causes=reason.take_first(weak))
    elif peer_leaves and not set(peer_leaves) <= set(fewer):
        counts = reason.take_first((topology.format_domain(leaf), inputs.peers_by_leaf[leaf]) for leaf in peer_leaves)
        yield reason.make(Code.FEWER_LEAVES_PEERS, leaves=leaves, peer_leaves=counts)
    elif plan.shape is not None and shapes - {plan.shape}:
        yield reason.make(Code.FEWER_LEAVES_NODE_TYPE, leaves=leaves, node_type=plan.shape)
    else:
        yield reason.make(Code.FEWER_LEAVES_UNTRIED, leaves=leaves)


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
    if not choices:
        return  # only the nodes without a topology label are enough
    rated_choices = [(_plan_on(inputs, choice).bandwidth, choice) for choice in choices]
    value, chosen = max(rated_choices, key=lambda rated: rated[0])
    if value > plan.bandwidth - CLOSE:
        return
    weak: list[reason.Reason] = []
    if len(chosen) > 1:
        weak = [uplink for leaf in chosen for uplink in _list_weak_uplinks(inputs, leaf, value + CLOSE)]
    yield reason.make(
        Code.FEWER_LEAVES_SLOWER,
        min_leaves=plan.min_leaves,
        leaves=node_explainer.name_leaves(chosen),
        bandwidth=value,
        causes=reason.take_first([*weak, *_count_degradations(inputs, chosen, value)]),
    )


def _plan_on(inputs: DiagnosisInput, leaves: Sequence[topology.Domain]) -> planner.Plan:
    class_counts = {leaf: inputs.capacity.nodes[leaf] for leaf in leaves}
    return planner.solve(inputs.remaining, msgspec.structs.replace(inputs.capacity, nodes=class_counts))


def _list_capacities(inputs: DiagnosisInput, leaves: Iterable[topology.Domain]) -> Iterable[node_slots.NodeCapacity]:
    counts = (inputs.capacity.nodes[leaf] for leaf in leaves)
    return (node_class.capacity for classes in counts for node_class, nodes in classes.items() if nodes)


# --- why not more bandwidth ---------------------------------------------------------------------------------


def _explain_bandwidth(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    """Yield the reasons why nodes or uplinks allow no more bandwidth; nothing at full bandwidth."""
    plan, remaining = inputs.plan, inputs.remaining
    if plan.bandwidth >= rendering.FULL_BANDWIDTH:
        return
    if not any(leaf != topology.NO_DOMAIN for leaf in plan.leaves):
        yield reason.make(Code.UNLABELLED_NODES, slots_needed=remaining)
        return
    better = _count_slots_by_leaf(inputs, plan.rails, plan.bandwidth + CLOSE)
    if sum(better.values()) >= remaining:
        yield _explain_unused_bandwidth(inputs, better)
        return
    yield reason.make(
        Code.FASTER_NODES_TOO_FEW,
        bandwidth=plan.bandwidth,
        slots=sum(better.values()),
        slots_needed=remaining,
        causes=reason.take_first(_count_degradations(inputs, inputs.capacity.nodes, plan.bandwidth)),
    )
    if lost := _list_lost_rails(inputs):
        yield reason.make(Code.RAILS_LOST, rails=reason.take_first(lost))


def _explain_unused_bandwidth(inputs: DiagnosisInput, better: Iterable[topology.Domain]) -> reason.Reason:
    """Explain why the plan does not use leaves with enough slots at a higher bandwidth."""
    value = inputs.plan.bandwidth
    weak = [uplink for leaf in inputs.plan.leaves for uplink in _list_weak_uplinks(inputs, leaf, value + 2 * CLOSE)]
    if weak:
        return reason.make(Code.BANDWIDTH_UPLINKS, bandwidth=value, causes=reason.take_first(weak))
    not_offered = _find_not_offered(inputs, better)
    if not_offered.items:
        return reason.make(Code.BANDWIDTH_NOT_OFFERED, bandwidth=value, not_offered=not_offered)
    return reason.make(Code.BANDWIDTH_UNTRIED, bandwidth=value)


def _list_lost_rails(inputs: DiagnosisInput) -> list[str]:
    """Return the needed rails that the plan does not use."""
    rail_names = next(
        (
            node_explainer.list_rail_names(node_class.evaluation)
            for node_class in inputs.capacity.classes
            if node_class.evaluation.pools
        ),
        [],
    )
    shares = next(
        (node_class.capacity.shares for node_class in inputs.capacity.classes if node_class.capacity.shares), ()
    )
    return [name for bit, name in enumerate(rail_names[: len(shares)]) if not inputs.plan.rails >> bit & 1]


# --- why the gang does not fit ------------------------------------------------------------------------------


def _explain_shortage(inputs: DiagnosisInput, total_slots: int) -> Iterable[reason.Reason]:
    """Yield why the gang does not fit. `total_slots` are the slots of all labelled leaves, offered or not."""
    if total_slots >= inputs.remaining:
        yield reason.make(
            Code.CAPACITY_NOT_OFFERED,
            pods=inputs.unplaced,
            slots_needed=inputs.remaining,
            slots=sum(inputs.plan.slots_by_leaf.values()),
            not_offered=_find_not_offered(inputs, _count_slots_by_leaf(inputs, 0, 0.0)),
        )
        return
    if not _fits_without_others(inputs):
        yield reason.make(
            Code.CAPACITY_NEVER, slots_needed=_count_gang_slots(inputs), slots=_count_slots_without_others(inputs)
        )
    rails = next((node_explainer.list_rail_names(node_class.evaluation) for node_class in inputs.capacity.classes), [])
    yield reason.make(
        Code.CAPACITY_INSUFFICIENT,
        pods=inputs.unplaced,
        slots_needed=inputs.remaining,
        slots=total_slots,
        rails=tuple(rails),
    )
    if inputs.same_rails:
        yield reason.make(Code.GANG_RAILS_SAME, rails=reason.take_first(inputs.same_rails))
    totals: node_evaluation.Counts = {}
    for class_counts in inputs.capacity.nodes.values():
        for node_class, nodes in class_counts.items():
            totals[node_class] = totals.get(node_class, 0) + nodes
    blocked: Counter[reason.Reason] = Counter()
    for node_class, nodes in totals.items():
        if nodes and not node_class.capacity.slot_numa_factors:
            blocked[node_explainer.find_blocking_reason(node_class.evaluation)] += nodes
    if blocked:
        causes = (reason.make(Code.BLOCKED_NODES, nodes=nodes, reason=cause) for cause, nodes in blocked.most_common())
        yield reason.make(Code.NODES_BLOCKED, causes=reason.take_first(causes))
    if inputs.devices_in_use:
        yield reason.make(Code.DEVICES_IN_USE, causes=reason.take_first(inputs.devices_in_use))


def _fits_without_others(inputs: DiagnosisInput) -> bool:
    """True if the eligible nodes could hold the whole gang if no other pod ran on them. CPU and memory do not count."""
    if inputs.begun:  # the capacity lacks the nodes that are kept for other gangs
        return True
    return _count_slots_without_others(inputs) >= _count_gang_slots(inputs)


def _count_gang_slots(inputs: DiagnosisInput) -> int:
    return inputs.remaining + sum(inputs.peers_by_leaf.values())


def _count_slots_without_others(inputs: DiagnosisInput) -> int:
    slots = {node_class: _count_slots_of_empty_node(node_class.evaluation) for node_class in inputs.capacity.classes}
    segment = inputs.capacity.segment
    empty = msgspec.structs.replace(inputs.capacity, peers={}, rest=_count_gang_slots(inputs) % segment, rest_leaf=None)
    by_leaf = empty.count_slots(slots)
    return sum(count for leaf, count in by_leaf.items() if leaf)


def _count_slots_of_empty_node(evaluation: node_evaluation.NodeEvaluation) -> int:
    if not evaluation.facts.eligible or evaluation.is_unresolvable:
        return 0
    by_device = (allocatable // requested for _, allocatable, requested in evaluation.usage.values())
    return min(by_device, default=node_evaluation.MAX_SLOTS_PER_NODE)


def _list_devices_in_use(
    view: request_view.RequestView, list_holders: node_explainer.ListHolders
) -> Iterable[reason.Reason]:
    """Yield the pods that use the missing accelerator or rail, for a few nodes."""
    lacking = {
        node_class: names[0]
        for node_class in view.index.classes
        if node_class.evaluation.facts.eligible
        and not node_class.capacity.slot_numa_factors
        and (names := node_explainer.list_short_resources(node_class.evaluation))
    }
    named = 0
    short = ((node, known) for node, known in view.index.class_of_node.items() if known in lacking)
    for node, node_class in itertools.islice(short, _MAX_SEARCHED):
        if named == reason.MAX_NAMED:
            return
        resource = lacking[node_class]
        keys = [pod.key for pod in list_holders(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            named += 1
            label = node_explainer.get_label(node_class.evaluation, resource)
            yield reason.make(Code.DEVICE_IN_USE, device=label, node=node, pods=reason.take_first(keys))


# --- numbers ------------------------------------------------------------------------------------------------


def _count_slots_by_leaf(
    inputs: DiagnosisInput, rails: int, min_bandwidth: node_slots.Bandwidth
) -> dict[topology.Domain, int]:
    """Return the slots of each labelled leaf on these rails at `min_bandwidth`; rails 0 and bandwidth 0 mean any."""
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


def _find_not_offered(inputs: DiagnosisInput, leaves: Iterable[topology.Domain]) -> reason.Some:
    """Return the leaves without an offered node."""
    offered = inputs.view.offered_leaves
    return node_explainer.name_leaves(leaf for leaf in leaves if leaf not in offered)


def _count_degradations(
    inputs: DiagnosisInput, leaves: Iterable[topology.Domain], min_bandwidth: node_slots.Bandwidth
) -> list[reason.Reason]:
    """Return the degradations of nodes of these leaves at or below `min_bandwidth`, with the number of nodes."""
    nodes: Counter[reason.Reason] = Counter()
    for leaf in leaves:
        for node_class, count in inputs.capacity.nodes[leaf].items():
            node_capacity = node_class.capacity
            better = node_slots.count(node_capacity, inputs.plan.rails, min_bandwidth + 2 * CLOSE)
            if node_capacity.slot_numa_factors and not better:
                nodes.update(dict.fromkeys(node_explainer.list_degradations(node_class.evaluation), count))
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
    uplinks = inputs.capacity.uplinks
    return [
        node_explainer.describe_uplinks(uplinks, leaf[level:], level)
        for level in range(len(leaf))
        if uplinks.compute_bandwidth(leaf[level:], level) < min_bandwidth
    ]
