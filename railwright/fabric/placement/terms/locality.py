"""Scores how close a node is to the gang: target leaf, another planned leaf, a leaf of the same spine, or elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology

NAME = "locality"
DUE, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0
NO_RESERVE = 1 << 30


class GangStanding(msgspec.Struct, frozen=True):
    """Summary of a gang and its plan, for scoring leaves."""

    due: topology.Domain | None  # target leaf of the requesting pod's rank
    plan: Sequence[topology.Domain]  # leaves to fill, in order
    rooms: Mapping[topology.Domain, int]  # slots of each planned leaf
    mates: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    remaining: int  # unplaced pods, including the requesting one
    counted: bool = True  # False for launchers: the plan covers workers only
    reserve: int = NO_RESERVE  # fill priority to use in the target leaf; nodes with a higher value are kept free
    completes: bool = False  # single-pod job for which a partly used node is available, on any leaf
    located: bool = True  # False: the policy has no domains, so locality is not scored
    places: int = 0  # slots that the unplaced pods need, each of the size of the largest pod; 0: as many as pods


def tier(leaf: topology.Domain, gang: GangStanding) -> float:
    """Return the value of a leaf, 0..1."""
    if gang.due is None:
        return ELSEWHERE
    if leaf == gang.due:
        return DUE
    if leaf in gang.plan:
        return PLANNED
    return SAME_PARENT if is_beside(leaf, gang.due) else ELSEWHERE


def is_beside(leaf: topology.Domain, due: topology.Domain) -> bool:
    """True if two leaves have the same labelled parent."""
    return bool(leaf and leaf[1:] and leaf[1] and leaf[1:] == due[1:])


def _all(pods: int) -> str:
    return f"all {pods} pods" if pods > 1 else "the last pod"


def told(
    leaf: topology.Domain, gang: GangStanding, *, worth: bool, shape: str | None = None, reserve: int = 0
) -> tuple[float, str]:
    """Return (value of a leaf, reason).

    `worth` is False for a node that the plan does not use. If that is because of its type, `shape` is the type that the
    gang uses; otherwise the node is below the plan's bandwidth.
    """
    shown = topology.name_of(leaf)
    if gang.completes:
        if reserve <= gang.reserve:
            return DUE, "a single-pod job fills partly used nodes first, on any leaf"
        return PLANNED, "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes"
    value = tier(leaf, gang)
    if value >= PLANNED and shape is not None:
        on = f"nodes of type {shape}" if shape else "nodes of unknown type"
        return ELSEWHERE, f"{shown} is a planned leaf, but the gang uses only {on}"
    if value >= PLANNED and not worth:
        return ELSEWHERE, f"{shown} is a planned leaf, but this node would slow the gang down"
    if value == DUE and gang.counted and reserve > gang.reserve:
        return PLANNED, (
            f"{shown} is the target leaf, but other nodes in it should be filled first "
            "(this node is idle, or would split the pod across NUMA nodes)"
        )
    if value == DUE:
        return value, _describe_target_leaf(leaf, gang)
    if value == PLANNED:
        return value, f"{shown} is leaf {list(gang.plan).index(leaf) + 1} of {len(gang.plan)} in the gang's plan"
    if value == SAME_PARENT and gang.due:
        return value, f"{shown} has the same parent as the target leaf {topology.name_of(gang.due)}"
    return value, f"{shown} is not in the gang's plan"


def _describe_target_leaf(leaf: topology.Domain, gang: GangStanding) -> str:
    name, placed = topology.name_of(leaf), gang.mates.get(leaf, 0)
    places = gang.places or gang.remaining
    if places == 1 and not placed:
        return f"{name} is the tightest leaf that fits the pod"
    slots = gang.rooms.get(leaf, 0)
    share = f"{slots} of the {gang.remaining} pods" if slots < places else _all(gang.remaining)
    if slots < places < gang.remaining:
        share = f"as much as {slots} of the largest of the {gang.remaining} pods"
    return f"{name} has {placed} placed peers and slots for {share} to place"
