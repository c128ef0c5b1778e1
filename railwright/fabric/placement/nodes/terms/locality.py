"""Scores how close a node is to the gang: target leaf, another planned leaf, a leaf of the same spine, or elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.nodes.terms.term_score import TermScore
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

NAME = "locality"
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
    max_fill_priority: int = (
        NO_FILL_LIMIT  # fill priority to use in the target leaf; nodes with a higher value are kept free
    )
    fills_used_nodes: bool = False  # single-pod job for which a partly used node is available, on any leaf
    has_domains: bool = True  # False: the policy has no domains, so locality is not scored
    remaining_slots: int = (
        0  # slots that the unplaced pods need, each of the size of the largest pod; 0: as many as pods
    )


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


def explain_leaf(
    leaf: topology.Domain, gang: GangSummary, *, meets_plan: bool, shape: str | None = None, fill_priority: int = 0
) -> TermScore:
    """Return the value of a leaf.

    `meets_plan` is False for a node that the plan does not use. If that is because of its type, `shape` is the type
    that the gang uses; otherwise the node is below the plan's bandwidth.
    """
    name = topology.name_of(leaf)
    if gang.fills_used_nodes:
        if fill_priority <= gang.max_fill_priority:
            return TermScore(TARGET, reason.make(Code.PARTLY_USED_FIRST))
        return TermScore(PLANNED, reason.make(Code.OTHERS_PARTLY_USED))
    value = get_tier(leaf, gang)
    if value >= PLANNED and shape is not None:
        return TermScore(ELSEWHERE, reason.make(Code.NODE_TYPE_DIFFERS, leaf=name, node_type=shape))
    if value >= PLANNED and not meets_plan:
        return TermScore(ELSEWHERE, reason.make(Code.NODE_TOO_SLOW, leaf=name))
    if value == TARGET and gang.is_planned and fill_priority > gang.max_fill_priority:
        return TermScore(PLANNED, reason.make(Code.NODE_RESERVED, leaf=name))
    if value == TARGET:
        return TermScore(value, _describe_target_leaf(leaf, gang))
    if value == PLANNED:
        position, leaves = list(gang.planned_leaves).index(leaf) + 1, len(gang.planned_leaves)
        return TermScore(value, reason.make(Code.PLANNED_LEAF, leaf=name, position=position, leaves=leaves))
    if value == SAME_PARENT and gang.target_leaf:
        target = topology.name_of(gang.target_leaf)
        return TermScore(value, reason.make(Code.SIBLING_LEAF, leaf=name, target=target))
    return TermScore(value, reason.make(Code.UNPLANNED_LEAF, leaf=name))


def _describe_target_leaf(leaf: topology.Domain, gang: GangSummary) -> reason.Reason:
    name, placed = topology.name_of(leaf), gang.peers_by_leaf.get(leaf, 0)
    needed = gang.remaining_slots or gang.remaining
    if needed == 1 and not placed:
        return reason.make(Code.TIGHTEST_LEAF, leaf=name)
    slots = gang.slots_by_leaf.get(leaf, 0)
    return reason.make(
        Code.TARGET_LEAF, leaf=name, placed=placed, slots=slots, slots_needed=needed, pods=gang.remaining
    )
