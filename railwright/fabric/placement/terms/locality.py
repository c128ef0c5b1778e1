"""How close a node brings the pod to its gang: the leaf it is due in, another of the plan, the same spine, or none.

Few, wide tiers on purpose: a greedy scheduler that adds other scores then still follows the plan rank by rank
(placement study, point 3).
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology

NAME = "locality"
DUE, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0
NO_RESERVE = 1 << 30


class GangStanding(msgspec.Struct, frozen=True):
    """The gang and its plan, as far as a node's place can be judged by them."""

    due: topology.Domain | None  # the leaf of the asking pod's rank
    plan: Sequence[topology.Domain]  # leaves still to be filled, in order
    rooms: Mapping[topology.Domain, int]
    mates: Mapping[topology.Domain, int]  # leaf -> placed mates
    remaining: int  # pods to place, the asking one too
    counted: bool = True  # False: the asking pod is a launcher, which the plan of its workers says nothing of
    reserve: int = NO_RESERVE  # of nodes in the leaf that is due: those of a higher one are spared (planner.Grade)
    completes: bool = False  # a job of one pod: a node in use, of any leaf; `reserve` is that of such nodes
    located: bool = True  # False: the policy names no domains, so that locality does not count
    places: int = 0  # to be found for the pods, each for one as large as the largest; 0: as many as pods


def tier(leaf: topology.Domain, gang: GangStanding) -> float:
    """The value of a leaf, 0..1."""
    if gang.due is None:
        return ELSEWHERE
    if leaf == gang.due:
        return DUE
    if leaf in gang.plan:
        return PLANNED
    return SAME_PARENT if is_beside(leaf, gang.due) else ELSEWHERE


def is_beside(leaf: topology.Domain, due: topology.Domain) -> bool:
    """Whether two leaves have a named parent in common."""
    return bool(leaf and leaf[1:] and leaf[1] and leaf[1:] == due[1:])


def _all(pods: int) -> str:
    return f"all {pods} pods" if pods > 1 else "the last pod"


def told(
    leaf: topology.Domain, gang: GangStanding, *, worth: bool, shape: str | None = None, reserve: int = 0
) -> tuple[float, str]:
    """The value of a leaf and the sentence that says it.

    `worth` is False for a node that the plan does not count on. Where that is because of its type, `shape` is the one
    that the gang is kept on; else the node is below the plan's bandwidth.
    """
    shown = topology.name_of(leaf)
    if gang.completes:
        if reserve <= gang.reserve:
            return DUE, "a job of one pod completes a node in use, whatever its leaf"
        return PLANNED, "other nodes are in use already and hold it without splitting its GPUs over NUMA nodes"
    value = tier(leaf, gang)
    if value >= PLANNED and shape is not None:
        on = f"nodes of type {shape}" if shape else "nodes of no known type"
        return ELSEWHERE, f"on {shown} of the plan, but the gang is kept on {on}"
    if value >= PLANNED and not worth:
        return ELSEWHERE, f"on {shown} of the plan, but the node would slow the gang down"
    if value == DUE and gang.counted and reserve > gang.reserve:
        return PLANNED, f"{shown} is the leaf that is due, but others there lose less: this one stays whole or is split"
    if value == DUE:
        return value, _describe_target_leaf(leaf, gang)
    if value == PLANNED:
        return value, f"{shown} is leaf {list(gang.plan).index(leaf) + 1} of the gang's {len(gang.plan)}"
    if value == SAME_PARENT and gang.due:
        return value, f"{shown} is beside the gang's leaf {topology.name_of(gang.due)}"
    return value, f"{shown} is not in the gang's plan"


def _describe_target_leaf(leaf: topology.Domain, gang: GangStanding) -> str:
    name, placed = topology.name_of(leaf), gang.mates.get(leaf, 0)
    places = gang.places or gang.remaining
    if places == 1 and not placed:
        return f"{name} is the tightest leaf with room"
    slots = gang.rooms.get(leaf, 0)
    share = f"{slots} of the {gang.remaining} pods" if slots < places else _all(gang.remaining)
    if slots < places < gang.remaining:
        share = f"as much as {slots} of the largest of the {gang.remaining} pods"
    return f"{name} has {placed} mates and room for {share} to place"
