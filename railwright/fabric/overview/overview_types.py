"""Defines the overview of a cluster's fabrics: fabrics, leaves, nodes, rails and gangs.

The structs are also the JSON of the dashboard and of the commands `fabric` and `gangs`. All lists are in a stable
order. All bandwidths are modelled (0..1), never measured. The module does not know how the values are computed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.placement.explain import node_explanation
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.reasons import reason

FREE, BUSY, DEGRADED, DEAD, UNCOUNTED = "fbwd-"
"""State of a rail on a node, one letter each. FREE: no pod has it. BUSY: a pod has it. DEGRADED: the device plugin
offers fewer devices than the node has. DEAD: it offers none. UNCOUNTED: the policy names no resource for the rail."""

WAITING, STARTING, PLACED, SPREAD, NEVER = "waiting", "starting", "placed", "spread", "never"
STATES = {
    WAITING: "No pod of the gang has a node. Usually other pods use what it needs.",
    STARTING: "Some of its pods have nodes, or some do not exist yet.",
    PLACED: "All of its pods have nodes, and would get no better placement now.",
    SPREAD: "All of its pods have nodes. If recreated now, the gang would get fewer leaves, or more bandwidth.",
    NEVER: "It would not fit even if no other pod ran on the nodes that it may use now. Waiting helps only if nodes "
    "are added, as by an autoscaler, or become usable.",
}
"""The states of a gang, the same for commands, `/explain`, the dashboard, Events and metrics, and what they mean."""


class Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that uses rails of a node."""

    pod: str  # namespace/name
    rails: tuple[int, ...]  # positions in the fabric's list of rails
    gang: str = ""
    rank: int = -1  # within the gang, from 0
    assumed: bool = False  # the scheduler chose the node; the API server does not show the binding yet


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node and its rails."""

    name: str
    rails: str  # one letter per rail: FREE, BUSY, DEGRADED, DEAD or UNCOUNTED
    note: str = ""  # why no pod is placed on it
    pods: tuple[Pod, ...] = ()
    gpus: int = 0  # accelerators that it has
    gpus_used: int = 0
    # why rails are unavailable, unless `pods` says so: of claims taint, other claim, or no device; the annotation
    rail_notes: tuple[str, ...] = ()


class Leaf(msgspec.Struct, frozen=True):
    """The nodes below one leaf switch."""

    fabric: str
    name: str
    above: tuple[str, ...]  # the domains that contain it, closest first
    nodes: tuple[Node, ...]


class Fabric(msgspec.Struct, frozen=True):
    """A summary of one fabric of the policy."""

    name: str
    transport: str
    rails: tuple[str, ...]
    leaves: tuple[str, ...]  # ids of its leaves, grouped by spine
    nodes: int
    rails_free: int
    rails_busy: int
    rails_dead: int  # a degraded rail counts as busy or free
    gpus: int = 0
    gpus_used: int = 0
    leaves_free: int = 0  # leaves without any pod, all of whose nodes are schedulable and have no dead rail
    device_class: str = ""  # of the rails, if they come as claims


class Rank(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a gang."""

    rank: int
    pod: str  # name
    node: str = ""  # "" until placed
    leaf: str = ""  # display name
    assumed: bool = False
    rails: tuple[pod_usage.HeldRail, ...] = ()  # that its claims hold; () if its rails do not come as claims


class Assessment(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The assessment of one gang. Bandwidths are modelled, 0..1; None if they cannot be computed."""

    state: str  # one of STATES
    bandwidth: float | None = None  # at the present nodes
    best: float | None = None  # that it would get now at best, on free nodes and its own
    leaves: int = 0  # leaves that it uses, or would use if it were placed now
    min_leaves: int = 0  # fewest leaves that give `best`
    why: tuple[reason.Reason, ...] = ()  # why it waits, or is not better


class Gang(Assessment, frozen=True, omit_defaults=True, kw_only=True):
    """Pods that train together."""

    key: str
    name: str
    namespace: str
    fabric: str
    colour: int  # the lowest number that was unused when the gang appeared; constant afterwards
    size: int
    placed: int
    ranks: tuple[Rank, ...] = ()  # truncated; `size` is the full count
    created_at: str = ""  # RFC 3339: creation of its first pod; "" if unknown
    placed_at: str = ""  # RFC 3339: binding of its last pod; "" unless all have nodes


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of a pod, as in `/explain`: why it is on its node, or why its gang waits."""

    pod: str  # namespace/name
    gang: Gang  # without its ranks; a pod without a gang is alone in it
    node: str = ""  # "" while it waits
    scheduler: str = ""
    fabric: str = ""
    needs: Sequence[str] = ()
    devices: Sequence[pod_usage.HeldRail] = ()  # of the rails that its claims hold now
    candidate_nodes: int = 0
    nodes: Sequence[node_explanation.NodeExplanation] = ()  # some of them, best first, those that it may not use last


class Overview(msgspec.Struct, frozen=True):
    """The fabrics, leaves and gangs of one cluster at one moment."""

    source: str  # address of the cluster, or the snapshot's file
    policy: str  # digest; "" without a policy
    problems: Sequence[str]  # what is wrong with the sources, as sentences
    fabrics: Sequence[Fabric]
    leaves: Mapping[str, Leaf]  # by id, in the order of Fabric.leaves
    gangs: Sequence[Gang]  # by namespace and name; a bounded number
