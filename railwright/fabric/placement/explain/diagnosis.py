"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Questions like "what if only these leaves were used" are answered by the planner itself, so that explanations agree with
the plan. All bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import text, topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.gangs import gang_capacity, gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, node_slots, request_view
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
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
    begun: Sequence[membership.GangKey]  # other gangs, whose nodes are not in `capacity`
    devices_in_use: Sequence[str]  # who uses the missing devices of a few nodes, if the gang does not fit


class Diagnosis(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang
    fits_without_others: bool = True  # False: too few slots even if no other pod ran
    why: tuple[reason.Reason, ...] = ()  # most important first; () if the plan is optimal


NO_ISSUES = Diagnosis()


def build_input(
    view: request_view.RequestView, planned: gang_planning.PlannedGang, list_holders: node_explainer.ListHolders
) -> DiagnosisInput | None:
    """Return the input of a diagnosis; None if there is nothing to explain.

    `view` is that of the plan, with all nodes as candidates. Diagnose it at once: the node index changes.
    """
    plan, gang, signature = planned.plan, planned.summary, view.index.signature
    if planned.capacity is None or is_optimal(plan, gang.peers_by_leaf):
        return None
    return DiagnosisInput(
        remaining=gang.remaining_slots,
        unplaced=gang.remaining,
        plan=plan,
        capacity=planned.capacity,
        peers_by_leaf=gang.peers_by_leaf,
        view=view,
        is_single_pod=signature.is_single_pod,
        begun=planned.begun,
        devices_in_use=() if plan.is_complete else tuple(_list_devices_in_use(view, list_holders)),
    )


def is_optimal(plan: planner.Plan, peers_by_leaf: Mapping[topology.Domain, int]) -> bool:
    """True if the plan needs no explanation: the whole gang on one leaf, at full bandwidth."""
    return (
        plan.is_complete
        and len({*plan.leaves, *peers_by_leaf} - {topology.NO_DOMAIN}) <= 1
        and plan.bandwidth >= bandwidth.FULL
    )


def diagnose(inputs: DiagnosisInput | None) -> Diagnosis:
    """Explain a plan; without input it is optimal."""
    if inputs is None:
        return NO_ISSUES
    plan = inputs.plan
    if not plan.is_complete:
        return Diagnosis(
            fits=False,
            fits_without_others=_fits_without_others(inputs),
            why=(*_explain_shortage(inputs), *_explain_prior_rights(inputs)),
        )
    if inputs.is_single_pod:
        return Diagnosis(why=(_explain_single_pod(plan),))
    return Diagnosis(why=tuple(_list_reasons(inputs)))


def _list_reasons(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    yield from _explain_leaf_count(inputs)
    yield from _explain_slower_choice(inputs)
    yield from _explain_bandwidth(inputs)
    yield from _explain_prior_rights(inputs)


def _explain_single_pod(plan: planner.Plan) -> reason.Reason:
    return reason.Reason(
        PlacementCode.NODES_FILLED,
        f"modelled at {plan.bandwidth:.2f} of the bandwidth: a single-pod job fills partly used nodes first, and none "
        "of the fullest nodes that fit has more bandwidth",
    )


def _explain_prior_rights(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    if inputs.begun:
        gangs = text.join_first(inputs.begun, node_explainer.MAX_NAMED)
        yield reason.Reason(PlacementCode.EARLIER_GANGS, f"nodes are left to gangs that have begun: {gangs}")


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
        speed = "full bandwidth" if plan.bandwidth >= bandwidth.FULL else f"{plan.bandwidth:.2f} of the bandwidth"
        enough = text.format_count(largest_slots, "slot")
        counts = node_explainer.count_on_leaves((leaf, slots_by_leaf[leaf]) for leaf in largest)
        room = (
            f"the largest leaf at {speed}, {topology.format_domain(largest[0])}, has {enough}"
            if len(largest) == 1
            else f"the {len(largest)} largest leaves at {speed} have {enough} ({counts})"
        )
        yield reason.Reason(
            PlacementCode.LEAVES_MINIMUM,
            f"{_format_remaining(inputs)}; {room}; {text.format_count(count, 'leaf')} is the minimum",
        )
        return
    yield from _explain_fewer_leaves(inputs, largest)


def _explain_fewer_leaves(inputs: DiagnosisInput, fewer: Sequence[topology.Domain]) -> Iterable[reason.Reason]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = inputs.plan
    start = f"fewer leaves ({node_explainer.name_leaves(fewer)}) have enough slots, but"
    weak = [uplink for leaf in fewer for uplink in _list_weak_uplinks(inputs, leaf, plan.bandwidth)]
    shapes = {
        node_capacity.shape
        for node_capacity in _list_capacities(inputs, fewer)
        if node_slots.count(node_capacity, plan.rails, plan.bandwidth)
    }
    peer_leaves = [leaf for leaf in inputs.peers_by_leaf if leaf]
    if weak:
        if plan.min_leaves == len(fewer):
            return  # `_explain_slower_choice` explains it, with the bandwidth of these leaves
        yield reason.Reason(PlacementCode.UPLINKS_LIMIT, f"{start} {_join(weak)}")
    elif peer_leaves and not set(peer_leaves) <= set(fewer):
        counts = node_explainer.count_on_leaves((leaf, inputs.peers_by_leaf[leaf]) for leaf in peer_leaves)
        yield reason.Reason(
            PlacementCode.LEAVES_MINIMUM,
            f"{start} other pods of the gang are placed elsewhere (pods by leaf: {counts}), and these leaves are "
            "filled first",
        )
    elif plan.shape is not None and shapes - {plan.shape}:
        yield reason.Reason(
            PlacementCode.LEAVES_MINIMUM, f"{start} not on nodes of {plan.node_type} alone; a gang uses one node type"
        )


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
    weak: list[str] = []
    if len(chosen) > 1:
        weak = [uplink for leaf in chosen for uplink in _list_weak_uplinks(inputs, leaf, value + CLOSE)]
    causes = _join([*weak, *_count_degradations(inputs, chosen, value)])
    yield reason.Reason(
        PlacementCode.LEAVES_MINIMUM,
        f"{text.format_count(plan.min_leaves, 'leaf', 'has')} enough slots ({node_explainer.name_leaves(chosen)}), but "
        f"at {value:.2f} of the bandwidth{f': {causes}' if causes else ''}",
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
    if plan.bandwidth >= bandwidth.FULL:
        return
    if not any(leaf != topology.NO_DOMAIN for leaf in plan.leaves):
        pods = text.format_count(remaining, "pod")
        yield reason.Reason(
            PlacementCode.UNLABELLED_NODES,
            f"only nodes without a topology label have slots for the {pods} still to be placed",
            fix="label these nodes",
        )
        return
    at_most = f"at most {plan.bandwidth:.2f} of the bandwidth"
    better = _count_slots_by_leaf(inputs, plan.rails, plan.bandwidth + CLOSE)
    if sum(better.values()) >= remaining:
        weak = [row for leaf in plan.leaves for row in _list_weak_uplinks(inputs, leaf, plan.bandwidth + 2 * CLOSE)]
        if weak:
            yield reason.Reason(PlacementCode.UPLINKS_LIMIT, f"{at_most}: {_join(weak)}")
        return
    causes = _join(_count_degradations(inputs, inputs.capacity.nodes, plan.bandwidth))
    few = f"faster nodes have slots for {sum(better.values())} of the {text.format_count(remaining, 'pod')}"
    message = f"{at_most}: {few}{f'; {causes}' if causes else ''}"
    yield reason.Reason(PlacementCode.FASTER_NODES_TOO_FEW, message)
    if lost := _list_lost_rails(inputs):
        message = f"the gang runs without {_join(lost)}, which too few nodes have free"
        yield reason.Reason(PlacementCode.RAILS_LOST, message)


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


def _explain_shortage(inputs: DiagnosisInput) -> Iterable[reason.Reason]:
    """Yield why the gang does not fit."""
    if not _fits_without_others(inputs):
        needed = _count_gang_slots(inputs)
        yield reason.Reason(
            PlacementCode.CAPACITY_NEVER,
            f"the {'pod' if needed == 1 else 'gang'} never fits: it needs {text.format_count(needed, 'slot')}, and "
            f"without any other pod the eligible nodes have {_count_slots_without_others(inputs)}",
        )
    rails = next((node_explainer.list_rail_names(node_class.evaluation) for node_class in inputs.capacity.classes), [])
    shown = ", ".join(rails) if len(rails) <= node_explainer.MAX_NAMED else f"{rails[0]}..{rails[-1]}"
    each = "" if inputs.unplaced == 1 else "each "
    slots = sum(_count_slots_by_leaf(inputs, 0, 0.0).values())
    yield reason.Reason(
        PlacementCode.CAPACITY_INSUFFICIENT,
        f"{_format_remaining(inputs)}{f', {each}with {shown}' if shown else ''}; the cluster has slots for {slots}",
    )
    totals: node_evaluation.Counts = {}
    for class_counts in inputs.capacity.nodes.values():
        for node_class, nodes in class_counts.items():
            totals[node_class] = totals.get(node_class, 0) + nodes
    blocked: Counter[reason.Reason] = Counter()
    for node_class, nodes in totals.items():
        if nodes and not node_class.capacity.slot_numa_factors:
            blocked[node_explainer.find_blocking_reason(node_class.evaluation)] += nodes
    if blocked:
        most = blocked.most_common(node_explainer.MAX_NAMED)
        causes = [f"{text.format_count(nodes, 'node')}: {cause.text}" for cause, nodes in most]
        yield reason.Reason(PlacementCode.NODES_BLOCKED, "; ".join(causes))
    if inputs.devices_in_use:
        yield reason.Reason(PlacementCode.DEVICE_SHORTAGE, "; ".join(inputs.devices_in_use))


def _format_remaining(inputs: DiagnosisInput) -> str:
    pods, slots_needed = inputs.unplaced, inputs.remaining
    if pods <= slots_needed:
        return text.format_count(slots_needed, "pod", "remains")
    return f"{pods} pods remain, which need as much as {slots_needed} of the largest"


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
    if not evaluation.facts.eligible or evaluation.facts.broken:
        return 0
    by_device = (allocatable // requested for _, allocatable, requested in evaluation.usage.values())
    return min(by_device, default=node_evaluation.MAX_SLOTS_PER_NODE)


def _list_devices_in_use(view: request_view.RequestView, list_holders: node_explainer.ListHolders) -> Iterable[str]:
    """Yield the pods that use the missing accelerator or rail, for a few nodes."""
    class_of_node = view.index.class_of_node
    lacking = {
        node_class: names[0]
        for node_class in set(class_of_node.values())
        if node_class.evaluation.facts.eligible
        and not node_class.capacity.slot_numa_factors
        and (names := node_explainer.list_short_resources(node_class.evaluation))
    }
    named = 0
    short = ((node, known) for node, known in class_of_node.items() if known in lacking)
    for node, node_class in itertools.islice(short, _MAX_SEARCHED):
        if named == node_explainer.MAX_NAMED:
            return
        resource = lacking[node_class]
        keys = [pod.key for pod in list_holders(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            named += 1
            label = node_explainer.get_label(node_class.evaluation, resource)
            yield f"{label} on {node} is used by {_join(keys)}"


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


def _count_degradations(
    inputs: DiagnosisInput, leaves: Iterable[topology.Domain], min_bandwidth: node_slots.Bandwidth
) -> list[str]:
    """Return the degradations of nodes of these leaves at or below `min_bandwidth`, with the number of nodes."""
    nodes: Counter[str] = Counter()
    for leaf in leaves:
        for node_class, count in inputs.capacity.nodes[leaf].items():
            node_capacity = node_class.capacity
            better = node_slots.count(node_capacity, inputs.plan.rails, min_bandwidth + 2 * CLOSE)
            if node_capacity.slot_numa_factors and not better:
                degradations = node_explainer.list_degradations(node_class.evaluation)
                nodes.update(dict.fromkeys([degradation.text for degradation in degradations], count))
            elif better < len(node_capacity.slot_numa_factors) and node_capacity.crowded_shares:
                nodes[f"too few NICs for {text.format_count(better + 1, 'pod')} of the gang"] += count
    most = nodes.most_common(node_explainer.MAX_NAMED)
    return [f"{degradation} on {text.format_count(count, 'node')}" for degradation, count in most]


def _list_weak_uplinks(inputs: DiagnosisInput, leaf: topology.Domain, min_bandwidth: node_slots.Bandwidth) -> list[str]:
    """Return the domains above a leaf with uplinks that carry less than `min_bandwidth`."""
    uplinks = inputs.capacity.uplinks
    return [
        node_explainer.describe_uplinks(uplinks, leaf[level:], level).text
        for level in range(len(leaf))
        if uplinks.compute_bandwidth(leaf[level:], level) < min_bandwidth
    ]


def _join(causes: Iterable[str]) -> str:
    return text.join_first(causes, node_explainer.MAX_NAMED)
