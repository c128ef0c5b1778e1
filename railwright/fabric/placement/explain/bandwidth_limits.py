"""Explains why a plan does not have more bandwidth."""

from collections.abc import Iterable

from railwright.fabric import topology
from railwright.fabric.placement.explain import diagnosis_input, node_limits
from railwright.fabric.reasons import reason, texts
from railwright.fabric.reasons.codes import Code


def explain_bandwidth(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    """Yield the reasons why nodes or uplinks allow no more bandwidth; nothing at full bandwidth."""
    plan, remaining = inputs.plan, inputs.remaining
    if plan.bandwidth >= texts.FULL_BANDWIDTH:
        return
    if not any(leaf != topology.NO_DOMAIN for leaf in plan.leaves):
        yield reason.make(Code.UNLABELLED_NODES, slots_needed=remaining)
        return
    better = diagnosis_input.count_slots_by_leaf(inputs, plan.rails, plan.bandwidth + diagnosis_input.CLOSE)
    if sum(better.values()) >= remaining:
        yield _explain_unused_bandwidth(inputs, better)
        return
    yield reason.make(
        Code.FASTER_NODES_TOO_FEW,
        bandwidth=plan.bandwidth,
        slots=sum(better.values()),
        slots_needed=remaining,
        causes=reason.take_first(diagnosis_input.count_degradations(inputs, inputs.capacity.nodes, plan.bandwidth)),
    )
    if lost := _list_lost_rails(inputs):
        yield reason.make(Code.RAILS_LOST, rails=reason.take_first(lost))


def _explain_unused_bandwidth(
    inputs: diagnosis_input.DiagnosisInput, better: Iterable[topology.Domain]
) -> reason.Reason:
    """Explain why the plan does not use leaves with enough slots at a higher bandwidth."""
    value = inputs.plan.bandwidth
    weak = [
        uplink
        for leaf in inputs.plan.leaves
        for uplink in diagnosis_input.list_weak_uplinks(inputs, leaf, value + 2 * diagnosis_input.CLOSE)
    ]
    if weak:
        return reason.make(Code.BANDWIDTH_UPLINKS, bandwidth=value, causes=reason.take_first(weak))
    not_offered = diagnosis_input.find_not_offered(inputs, better)
    if not_offered.items:
        return reason.make(Code.BANDWIDTH_NOT_OFFERED, bandwidth=value, not_offered=not_offered)
    return reason.make(Code.BANDWIDTH_UNTRIED, bandwidth=value)


def _list_lost_rails(inputs: diagnosis_input.DiagnosisInput) -> list[str]:
    """Return the needed rails that the plan does not use."""
    rail_names = next(
        (
            node_limits.list_rail_names(node_class.evaluation)
            for node_class in inputs.capacity.classes
            if node_class.evaluation.pools
        ),
        [],
    )
    shares = next(
        (node_class.capacity.shares for node_class in inputs.capacity.classes if node_class.capacity.shares), ()
    )
    return [name for bit, name in enumerate(rail_names[: len(shares)]) if not inputs.plan.rails >> bit & 1]
