"""Scores how close a node is to the gang: target leaf, another planned leaf, a leaf of the same spine, or elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.nodes import node_evaluation, node_slots
from railwright.fabric.placement.nodes.terms import score_term
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

TARGET, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0
NO_FILL_LIMIT = 1 << 30


class GangSummary(msgspec.Struct, frozen=True):
    """Summary of a gang and its plan, for scoring leaves."""

    target_leaf: topology.Domain | None  # target leaf of the requesting pod's rank
    planned_leaves: Sequence[topology.Domain]  # leaves to fill, in order
    slots_by_leaf: Mapping[topology.Domain, int]  # slots of each planned leaf
    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    remaining: int  # unplaced pods, including the requesting one
    is_planned: bool = True  # False for launchers: the plan covers workers only
    # fill priority to use in the target leaf; nodes with a higher value are kept free
    max_fill_priority: int = NO_FILL_LIMIT
    fills_used_nodes: bool = False  # single-pod job for which a partly used node is available, on any leaf
    has_domains: bool = True  # False: the policy has no domains, so locality is not scored
    # slots that the unplaced pods need, each of the size of the largest pod; 0: as many as pods
    remaining_slots: int = 0


def get_tier(leaf: topology.Domain, gang: GangSummary) -> float:
    """Return the value of a leaf, 0..1."""
    if gang.target_leaf is None:
        return ELSEWHERE
    if leaf == gang.target_leaf:
        return TARGET
    if leaf in gang.planned_leaves:
        return PLANNED
    return SAME_PARENT if is_beside(leaf, gang.target_leaf) else ELSEWHERE


def is_beside(leaf: topology.Domain, target_leaf: topology.Domain) -> bool:
    """True if two leaves have the same labelled parent."""
    return bool(leaf and leaf[1:] and leaf[1] and leaf[1:] == target_leaf[1:])


class Plan(Protocol):
    """The parts of the planner's plan that locality uses."""

    @property
    def shape(self) -> str | None:
        """Return the only node shape used; None if shapes do not matter."""

    def uses_shape_of(self, node_capacity: node_slots.NodeCapacity) -> bool:
        """True if the plan uses nodes of this shape."""

    def is_met_by(self, node_capacity: node_slots.NodeCapacity) -> bool:
        """True if such a node reaches the plan's bandwidth."""


class LocalityTerm(msgspec.Struct, frozen=True):
    """The term for the nodes of one leaf."""

    leaf: topology.Domain
    gang: GangSummary
    plan: Plan

    @property
    def name(self) -> str:
        """Return "locality"."""
        return "locality"

    def get_weight(self, placement: model.Placement) -> float | None:
        """Return `placement.weights.locality`, or None if the policy has no domains."""
        return placement.weights.locality if self.gang.has_domains else None

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_term.TermScore:
        """Return the value of the leaf for a node."""
        gang, name, node_capacity = self.gang, topology.format_domain(self.leaf), evaluation.capacity
        is_spared = node_capacity.fill_priority > gang.max_fill_priority
        if gang.fills_used_nodes and is_spared:
            return score_term.TermScore(PLANNED, reason.make(Code.OTHERS_PARTLY_USED))
        if gang.fills_used_nodes:
            return score_term.TermScore(TARGET, reason.make(Code.PARTLY_USED_FIRST))
        value = get_tier(self.leaf, gang)
        if value >= PLANNED and gang.is_planned and not self.plan.uses_shape_of(node_capacity):
            differs = reason.make(Code.NODE_TYPE_DIFFERS, leaf=name, node_type=self.plan.shape or "")
            return score_term.TermScore(ELSEWHERE, differs)
        if value >= PLANNED and gang.is_planned and not self.plan.is_met_by(node_capacity):
            return score_term.TermScore(ELSEWHERE, reason.make(Code.NODE_TOO_SLOW, leaf=name))
        if value == TARGET and gang.is_planned and is_spared:
            return score_term.TermScore(PLANNED, reason.make(Code.NODE_RESERVED, leaf=name))
        return score_term.TermScore(value, _describe_leaf(self.leaf, gang, value))


def _describe_leaf(leaf: topology.Domain, gang: GangSummary, value: float) -> reason.Reason:
    name = topology.format_domain(leaf)
    if value == TARGET:
        return _describe_target_leaf(leaf, gang)
    if value == PLANNED:
        position, leaves = list(gang.planned_leaves).index(leaf) + 1, len(gang.planned_leaves)
        return reason.make(Code.PLANNED_LEAF, leaf=name, position=position, leaves=leaves)
    if value == SAME_PARENT and gang.target_leaf:
        return reason.make(Code.SIBLING_LEAF, leaf=name, target=topology.format_domain(gang.target_leaf))
    return reason.make(Code.UNPLANNED_LEAF, leaf=name)


def _describe_target_leaf(leaf: topology.Domain, gang: GangSummary) -> reason.Reason:
    name, placed = topology.format_domain(leaf), gang.peers_by_leaf.get(leaf, 0)
    needed = gang.remaining_slots or gang.remaining
    if needed == 1 and not placed:
        return reason.make(Code.TIGHTEST_LEAF, leaf=name)
    slots = gang.slots_by_leaf.get(leaf, 0)
    return reason.make(
        Code.TARGET_LEAF, leaf=name, placed=placed, slots=slots, slots_needed=needed, pods=gang.remaining
    )
