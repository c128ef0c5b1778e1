"""Explains why a gang does not fit: which nodes have no slot, and which pods use their devices."""

from collections import Counter
from collections.abc import Iterable

from railwright.fabric.placement.explain import diagnosis_input, node_limits
from railwright.fabric.placement.nodes import node_classes, node_evaluation, node_facts
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


def explain_shortage(inputs: diagnosis_input.DiagnosisInput, total_slots: int) -> Iterable[reason.Reason]:
    """Yield why the gang does not fit. `total_slots` are the slots of all labelled leaves, offered or not."""
    if total_slots >= inputs.remaining:
        yield reason.make(
            Code.CAPACITY_NOT_OFFERED,
            pods=inputs.unplaced,
            slots_needed=inputs.remaining,
            slots=sum(inputs.plan.slots_by_leaf.values()),
            not_offered=diagnosis_input.find_not_offered(inputs, diagnosis_input.count_slots_by_leaf(inputs, 0, 0.0)),
        )
        return
    if not fits_without_others(inputs):
        yield reason.make(
            Code.CAPACITY_NEVER, slots_needed=_count_gang_slots(inputs), slots=_count_slots_without_others(inputs)
        )
    rails = next((node_limits.list_rail_names(node_class.evaluation) for node_class in inputs.capacity.classes), [])
    yield reason.make(
        Code.CAPACITY_INSUFFICIENT,
        pods=inputs.unplaced,
        slots_needed=inputs.remaining,
        slots=total_slots,
        rails=tuple(rails),
    )
    if inputs.same_rails:
        yield reason.make(Code.GANG_RAILS_SAME, rails=reason.take_first(inputs.same_rails))
    totals: node_classes.Counts = {}
    for class_counts in inputs.capacity.nodes.values():
        for node_class, nodes in class_counts.items():
            totals[node_class] = totals.get(node_class, 0) + nodes
    blocked: Counter[reason.Reason] = Counter()
    for node_class, nodes in totals.items():
        if nodes and not node_class.capacity.slot_numa_factors:
            blocked[node_limits.find_blocking_reason(node_class.evaluation)] += nodes
    if blocked:
        causes = (reason.make(Code.BLOCKED_NODES, nodes=nodes, reason=cause) for cause, nodes in blocked.most_common())
        yield reason.make(Code.NODES_BLOCKED, causes=reason.take_first(causes))
    yield from _explain_devices_in_use(inputs)


def fits_without_others(inputs: diagnosis_input.DiagnosisInput) -> bool:
    """True if the eligible nodes could hold the whole gang if no other pod ran on them. CPU and memory do not count."""
    if inputs.begun:  # the capacity lacks the nodes that are kept for other gangs
        return True
    return _count_slots_without_others(inputs) >= _count_gang_slots(inputs)


def _count_gang_slots(inputs: diagnosis_input.DiagnosisInput) -> int:
    return inputs.remaining + sum(inputs.peers_by_leaf.values())


def _count_slots_without_others(inputs: diagnosis_input.DiagnosisInput) -> int:
    slots = {node_class: _count_slots_of_empty_node(node_class.evaluation) for node_class in inputs.capacity.classes}
    by_leaf = inputs.capacity.count_slots(slots)
    return sum(count for leaf, count in by_leaf.items() if leaf)


def _count_slots_of_empty_node(evaluation: node_evaluation.NodeEvaluation) -> int:
    if not evaluation.facts.eligible or evaluation.is_unresolvable:
        return 0
    by_device = (allocatable // requested for _, allocatable, requested in evaluation.usage.values())
    return min(by_device, default=node_facts.MAX_SLOTS_PER_NODE)


def _explain_devices_in_use(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    """Name the pods that use the missing accelerator or rail, for a few nodes."""
    lacking = {
        node_class: names[0]
        for node_class in inputs.capacity.classes
        if node_class.evaluation.facts.eligible
        and not node_class.capacity.slot_numa_factors
        and (names := node_limits.list_short_resources(node_class.evaluation))
    }
    causes: list[reason.Reason] = []
    for node, node_class in inputs.class_of_node.items():
        if node_class not in lacking:
            continue
        resource = lacking[node_class]
        keys = [pod.key for pod in inputs.list_pods_on(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            label = node_limits.get_label(node_class.evaluation, resource)
            causes.append(reason.make(Code.DEVICE_IN_USE, device=label, node=node, pods=reason.take_first(keys)))
        if len(causes) == reason.MAX_NAMED:
            break
    if causes:
        yield reason.make(Code.DEVICES_IN_USE, causes=reason.take_first(causes))
