"""How close a node brings the pod to its gang: the planned leaf, a later leaf of the plan, the same spine, or none.

Few, wide tiers on purpose: a greedy scheduler that adds other scores then still follows the plan rank by rank
(placement study, point 3).
"""

from fabric import topology
from fabric.placement import standing

NAME = "locality"
NEXT_LEAF, LATER_LEAF, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0


def value(node: standing.Standing, gang: standing.GangStanding) -> tuple[float, str]:
    """The tier of a node and the sentence that says it."""
    leaf = topology.domain(node.place)
    shown = topology.name_of(leaf)
    if gang.plan and leaf == gang.plan[0]:
        mates = sum(1 for mate in gang.mates if mate == leaf)
        if gang.remaining == 1 and not mates:
            return NEXT_LEAF, f"{shown} is the tightest leaf with room"
        room = gang.rooms.get(leaf, 0)
        return NEXT_LEAF, f"{shown} has {mates} mates and room for {room} of the {gang.remaining} pods to place"
    if leaf in gang.plan:
        return LATER_LEAF, f"{shown} is leaf {gang.plan.index(leaf) + 1} of the gang's {len(gang.plan)}"
    if gang.plan and leaf and gang.plan[0][1:] and leaf[1:] == gang.plan[0][1:]:
        return SAME_PARENT, f"{shown} is beside the gang's leaf {topology.name_of(gang.plan[0])}"
    return ELSEWHERE, f"{shown} is not in the gang's plan"
