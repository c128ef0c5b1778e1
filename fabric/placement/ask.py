"""What a scheduler asks, in the domain's words: the pod, its gang and the nodes it may go to.

Both protocols are translated into this one value; nothing downstream knows which of them asked.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fabric import resources, views, workload
from fabric.placement import rails
from fabric.policy import model


class Offer(msgspec.Struct, frozen=True):
    """What a scheduler itself says of a node it offers, in its running session.

    `promised` adds what is being released and not yet promised, where there is any.
    """

    free: resources.Amounts
    promised: resources.Amounts | None = None
    emptied: bool = False  # True: not what is free, but what would be without the node's pods (preemption)


class Ask(msgspec.Struct, frozen=True):
    """One pod to be placed on one of the nodes."""

    uid: str
    namespace: str
    name: str
    spec: views.PodSpec
    gang: workload.GangKey
    rank: workload.Rank
    requests: resources.Amounts
    fabric_name: str
    fabric: model.Fabric
    domains: tuple[str, ...]
    needs: tuple[rails.Need, ...]
    accelerators: tuple[str, ...]
    nodes: Sequence[str]
    shapes: tuple[model.NodeShape, ...] = ()
    policy: str = ""  # its digest: what was worked out under another policy does not hold
    offers: Mapping[str, Offer] = {}  # by node; empty where the scheduler's protocol says nothing of what is free

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"
