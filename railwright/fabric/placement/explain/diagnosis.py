"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Questions like "what if only these leaves were used" are answered by the planner itself, so that explanations agree with
the plan. All bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections.abc import Iterable, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.explain import bandwidth_limits, diagnosis_input, leaf_count, shortage
from railwright.fabric.placement.gangs import planner
from railwright.fabric.reasons import reason, texts
from railwright.fabric.reasons.codes import Code


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
    return abs(old.bandwidth - new.bandwidth) < diagnosis_input.CLOSE and set(new.leaves) <= set(old.leaves)


class Diagnosis(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang, offered or not
    fits_without_others: bool = True  # False: too few slots even if no other pod ran
    why: tuple[reason.Reason, ...] = ()  # most important first; () if the plan is optimal


NO_ISSUES = Diagnosis()


def diagnose(inputs: diagnosis_input.DiagnosisInput) -> Diagnosis:
    """Explain a plan."""
    plan = inputs.plan
    if is_optimal(plan, inputs.peers_by_leaf):
        return NO_ISSUES
    if not plan.is_complete:
        total_slots = sum(diagnosis_input.count_slots_by_leaf(inputs, 0, 0.0).values())
        fits = total_slots >= inputs.remaining
        return Diagnosis(
            fits=fits,
            fits_without_others=fits or shortage.fits_without_others(inputs),
            why=(*shortage.explain_shortage(inputs, total_slots), *_explain_prior_rights(inputs)),
        )
    if inputs.is_single_pod:
        return Diagnosis(why=(reason.make(Code.SINGLE_POD_PACKED, bandwidth=plan.bandwidth),))
    return Diagnosis(why=tuple(_list_reasons(inputs)))


def _list_reasons(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    return itertools.chain(
        leaf_count.explain_leaf_count(inputs),
        leaf_count.explain_slower_choice(inputs),
        bandwidth_limits.explain_bandwidth(inputs),
        _explain_prior_rights(inputs),
        _explain_uncertainty(inputs.plan),
    )


def _explain_prior_rights(inputs: diagnosis_input.DiagnosisInput) -> Iterable[reason.Reason]:
    if inputs.begun:
        yield reason.make(Code.EARLIER_GANGS, gangs=reason.take_first(inputs.begun))


def _explain_uncertainty(plan: planner.Plan) -> Iterable[reason.Reason]:
    if not plan.is_exact:
        yield reason.make(Code.PLAN_NOT_EXACT, gap=max(0.0, plan.upper_bound - plan.bandwidth))
