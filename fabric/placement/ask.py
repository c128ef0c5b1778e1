"""What a scheduler asks, in the domain's words: the pod, its gang and the nodes it may go to.

Both protocols are translated into this one value; nothing downstream knows which of them asked.
"""

from collections.abc import Mapping

import msgspec

from fabric import resources, views, workload
from fabric.placement import rails
from fabric.policy import model


class Candidate(msgspec.Struct, frozen=True):
    """A node the scheduler offers.

    `free` is what the scheduler itself says is free now, in its running session; None where its protocol does not
    say, so that the fleet and the ledger must. `promised` adds what is being released and not yet promised.
    """

    name: str
    free: resources.Amounts | None = None
    promised: resources.Amounts | None = None


class Ask(msgspec.Struct, frozen=True):
    """One pod to be placed on one of the candidates."""

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
    candidates: Mapping[str, Candidate]
