"""Explains why a plan does not use fewer leaves."""

from collections.abc import Iterable, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.explain import diagnosis_input
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_slots
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

_MAX_CANDIDATES = 3  # leaves for which a plan on this leaf alone is tried


def explain_leaf_count(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    """Yield why fewer leaves do not have enough slots at the plan's bandwidth, or why they are not used."""
    plan, remaining = inputs.plan, inputs.remaining
    count = len(plan.leaves)
    if count < 2:
        return
    slots_by_leaf = diagnosis_input.count_slots_by_leaf(inputs, plan.rails, plan.bandwidth)
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


def _explain_fewer_leaves(
    inputs: diagnosis_input.DiagnosisInput, fewer: Sequence[topology.Domain]
) -> Iterable[reason.Reason]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = inputs.plan
    leaves = diagnosis_input.name_leaves(fewer)
    weak = [uplink for leaf in fewer for uplink in diagnosis_input.list_weak_uplinks(inputs, leaf, plan.bandwidth)]
    shapes = {
        node_capacity.shape
        for node_capacity in _list_capacities(inputs, fewer)
        if node_slots.count(node_capacity, plan.rails, plan.bandwidth)
    }
    peer_leaves = [leaf for leaf in inputs.peers_by_leaf if leaf]
    not_offered = diagnosis_input.find_not_offered(inputs, fewer)
    if not_offered.items:
        yield reason.make(Code.FEWER_LEAVES_NOT_OFFERED, leaves=leaves, not_offered=not_offered)
    elif weak:
        if plan.min_leaves == len(fewer):
            return  # `explain_slower_choice` explains it, with the bandwidth of these leaves
        yield reason.make(Code.FEWER_LEAVES_UPLINKS, leaves=leaves, causes=reason.take_first(weak))
    elif peer_leaves and not set(peer_leaves) <= set(fewer):
        counts = reason.take_first((topology.format_domain(leaf), inputs.peers_by_leaf[leaf]) for leaf in peer_leaves)
        yield reason.make(Code.FEWER_LEAVES_PEERS, leaves=leaves, peer_leaves=counts)
    elif plan.shape is not None and shapes - {plan.shape}:
        yield reason.make(Code.FEWER_LEAVES_NODE_TYPE, leaves=leaves, node_type=plan.shape)
    else:
        yield reason.make(Code.FEWER_LEAVES_UNTRIED, leaves=leaves)


def explain_slower_choice(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    """Explain that fewer leaves have enough slots, but only at a lower bandwidth."""
    plan = inputs.plan
    if not 0 < plan.min_leaves < len(plan.leaves):
        return
    slots_by_leaf = diagnosis_input.count_slots_by_leaf(inputs, 0, 0.0)
    order = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))
    choices = [order[: plan.min_leaves]]
    if plan.min_leaves == 1:
        choices = [[leaf] for leaf in order[:_MAX_CANDIDATES] if slots_by_leaf[leaf] >= inputs.remaining]
    rated_choices = [(_plan_on(inputs, choice).bandwidth, choice) for choice in choices]
    value, chosen = max(rated_choices, key=lambda rated: rated[0])
    if value > plan.bandwidth - diagnosis_input.CLOSE:
        return
    weak: list[reason.Reason] = []
    if len(chosen) > 1:
        weak = [
            uplink
            for leaf in chosen
            for uplink in diagnosis_input.list_weak_uplinks(inputs, leaf, value + diagnosis_input.CLOSE)
        ]
    yield reason.make(
        Code.FEWER_LEAVES_SLOWER,
        min_leaves=plan.min_leaves,
        leaves=diagnosis_input.name_leaves(chosen),
        bandwidth=value,
        causes=reason.take_first([*weak, *diagnosis_input.count_degradations(inputs, chosen, value)]),
    )


def _plan_on(inputs: diagnosis_input.DiagnosisInput, leaves: Sequence[topology.Domain]) -> planner.Plan:
    class_counts = {leaf: inputs.capacity.nodes[leaf] for leaf in leaves}
    return planner.solve(inputs.remaining, msgspec.structs.replace(inputs.capacity, nodes=class_counts))


def _list_capacities(
    inputs: diagnosis_input.DiagnosisInput, leaves: Iterable[topology.Domain]
) -> Iterable[node_slots.NodeCapacity]:
    counts = (inputs.capacity.nodes[leaf] for leaf in leaves)
    return (node_class.capacity for classes in counts for node_class, nodes in classes.items() if nodes)
