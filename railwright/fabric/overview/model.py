"""What a person sees of a cluster's fabrics at one glance, as values: fabrics, leaves, nodes, rails, gangs, admissions.

Owns the form, which is also the JSON of the dashboard and of the commands `fabric` and `gangs`. Knows nothing of how it
was found out. Every list is in a stable order; every bandwidth is modelled (0..1), never measured.
"""

from collections.abc import Mapping, Sequence

import msgspec

FREE, BUSY, DEGRADED, DEAD, UNCOUNTED = "fbwd-"
"""One letter a rail: nobody has it; a pod has it; the device plugin offers less than it has (weak); it offers none;
the policy names no resource for it, so that nobody can count."""

PLACED, STARTING, WAITING, UNPLACEABLE = "placed", "starting", "waiting", "unplaceable"
"""All of a gang has nodes; some has; none has; the cluster has no room for what remains."""

INJECTED, LEFT, UNINJECTED, TOLD = "injected", "left", "uninjected", "told"
"""Of an admission: given its rails; a role that gets none; opted in and without a record; the webhook's own Event."""

ALONE = -1  # the colour of a pod without a gang


class Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod that has rails of a node."""

    pod: str  # namespace/name
    rails: tuple[int, ...]  # positions in the fabric's rails
    gang: str = ""
    rank: int = -1  # within the gang, from 0
    announced: bool = False  # a scheduler has said so; the cluster does not show it yet


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node and its rails."""

    name: str
    rails: str  # a letter each: FREE, BUSY, DEGRADED, DEAD or UNCOUNTED
    note: str = ""  # cordoned or not ready
    pods: tuple[Pod, ...] = ()


class Leaf(msgspec.Struct, frozen=True):
    """The nodes behind the same switches."""

    fabric: str
    name: str
    above: tuple[str, ...]  # the domains around it, the closest first
    nodes: tuple[Node, ...]


class Fabric(msgspec.Struct, frozen=True):
    """One fabric of the policy, as a whole."""

    name: str
    transport: str
    rails: tuple[str, ...]
    levels: tuple[str, ...]  # the keys of its domains, closest first
    leaves: tuple[str, ...]  # ids of its leaves, those below one spine together
    nodes: int
    rails_free: int
    rails_busy: int
    rails_dead: int  # degraded ones are counted as busy or free


class Rank(msgspec.Struct, frozen=True, omit_defaults=True):
    """One member of a gang."""

    rank: int
    pod: str  # its name
    node: str = ""  # "" until placed
    leaf: str = ""  # as shown to people
    announced: bool = False


class Gang(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pods that train together."""

    key: str
    name: str
    namespace: str
    fabric: str
    colour: int  # the lowest that no other gang had when this one came; kept while it lives
    state: str
    size: int
    placed: int
    ranks: tuple[Rank, ...]  # bounded; `size` tells how many there are
    bandwidth: float | None = None  # modelled, where it is; None where nothing can be said
    best: float | None = None  # the most it could have now, on what is free and its own places
    leaves: int = 0  # that it uses, or would use if it fits now
    leaves_least: int = 0  # the fewest that could hold it at `best`
    why: tuple[str, ...] = ()  # it waits, or is no better


class Admission(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the webhook did to one pod, or said of one object, lately."""

    at: str  # RFC 3339; "" where the object does not tell
    object: str  # namespace/name
    outcome: str
    fabric: str = ""
    gang: str = ""
    role: str = ""
    rails: int = 0
    added: int = 0  # entries written into the pod
    kept: int = 0  # what the user wrote and stayed
    skipped: int = 0
    message: str = ""
    kind: str = "Pod"
    count: int = 1  # of an Event that repeats


class Site(msgspec.Struct, frozen=True):
    """What all of it was read from, and what is wrong with that."""

    source: str  # the cluster's address, or the snapshot's file
    policy: str  # its digest; "" while there is none
    problems: tuple[str, ...]
    fabrics: tuple[str, ...]
    gangs: int  # in all; those shown are bounded
    away: str = ""  # why the cluster is not heard of now, so that all of this is old


class Overview(msgspec.Struct, frozen=True):
    """All of it."""

    site: Site
    fabrics: Sequence[Fabric]
    leaves: Mapping[str, Leaf]  # by id, in the order of Fabric.leaves
    gangs: Sequence[Gang]  # by namespace and name
    admissions: Sequence[Admission]  # the newest first
