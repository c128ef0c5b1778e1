"""Defines the overview of a cluster's fabrics: fabrics, leaves, nodes, rails, gangs and admissions.

The structs are also the JSON of the dashboard and of the commands `fabric` and `gangs`. All lists are in a stable
order. All bandwidths are modelled (0..1), never measured. The module does not know how the values are computed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.reasons import rendering

FREE, BUSY, DEGRADED, DEAD, UNCOUNTED = "fbwd-"
"""State of a rail on a node, one letter each. FREE: no pod has it. BUSY: a pod has it. DEGRADED: the device plugin
offers fewer devices than the node has. DEAD: it offers none. UNCOUNTED: the policy names no resource for the rail."""

PLACED, STARTING, WAITING, UNPLACEABLE = "placed", "starting", "waiting", "unplaceable"
"""State of a gang. PLACED: all pods have nodes. STARTING: some have. WAITING: none has. UNPLACEABLE: the cluster has no
capacity for the remaining pods."""

INJECTED, SKIPPED, MISSED, EVENT = "injected", "skipped", "missed", "event"
"""Outcome of an admission. INJECTED: the pod got rails. SKIPPED: its role gets none. MISSED: it opted in but has no
injection record. EVENT: reported by an Event of the webhook."""


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
    note: str = ""  # cordoned or not ready
    pods: tuple[Pod, ...] = ()


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
    levels: tuple[str, ...]  # label keys of its domains, closest first
    leaves: tuple[str, ...]  # ids of its leaves, grouped by spine
    nodes: int
    rails_free: int
    rails_busy: int
    rails_dead: int  # a degraded rail counts as busy or free


class Rank(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a gang."""

    rank: int
    pod: str  # name
    node: str = ""  # "" until placed
    leaf: str = ""  # display name
    assumed: bool = False


class Gang(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods that train together."""

    key: str
    name: str
    namespace: str
    fabric: str
    colour: int  # the lowest number that was unused when the gang appeared; constant afterwards
    state: str
    size: int
    placed: int
    ranks: tuple[Rank, ...]  # truncated; `size` is the full count
    bandwidth: float | None = None  # modelled, at the present nodes; None if it cannot be computed
    best: float | None = None  # the best possible now, on free nodes and its own
    leaves: int = 0  # leaves that it uses, or would use if it were placed now
    min_leaves: int = 0  # fewest leaves that give `best`
    why: tuple[rendering.Message, ...] = ()  # why it waits, or is not better


class Admission(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recent result of the webhook for one object."""

    at: str  # RFC 3339; "" if unknown
    object: str  # namespace/name
    outcome: str
    fabric: str = ""
    gang: str = ""
    role: str = ""
    rails: int = 0
    added: int = 0  # entries added to the pod
    user_values: int = 0  # values of the user that were not overwritten
    skipped: int = 0
    message: str = ""
    kind: str = "Pod"
    count: int = 1  # repetitions of an Event


class Site(msgspec.Struct, frozen=True):
    """The sources of an overview and their problems."""

    source: str  # address of the cluster, or the snapshot's file
    policy: str  # digest; "" without a policy
    problems: tuple[str, ...]
    fabrics: tuple[str, ...]
    gangs: int  # all of them; the overview shows a bounded number
    away: str = ""  # why the cluster cannot be reached, so that the overview is outdated; "" otherwise


class Overview(msgspec.Struct, frozen=True):
    """An overview of one cluster."""

    site: Site
    fabrics: Sequence[Fabric]
    leaves: Mapping[str, Leaf]  # by id, in the order of Fabric.leaves
    gangs: Sequence[Gang]  # by namespace and name
    admissions: Sequence[Admission]  # newest first
