"""How many devices of each rail are free, busy, dead or out of use, for the operator's view of a fabric.

Owns what those words mean. A device that kubelet no longer offers (capacity beyond allocatable) is dead: its plugin
found it unhealthy or is gone. Rails that share a pool are one line, as no one can tell whose device a pod has.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import resources
from railwright.fabric.placement import fleet
from railwright.fabric.policy import model


class State(enum.StrEnum):
    """What a device is doing."""

    FREE = "free"
    BUSY = "busy"  # a bound pod has asked for it
    DEAD = "dead"
    UNSCHEDULABLE = "unschedulable"  # well and not busy, on a node that is cordoned or not Ready


def pools(fabric: model.Fabric) -> Mapping[str, str]:
    """The rails of each resource, as shown to people: `rail0`, or `rail0..rail3` where they share it."""
    rails: dict[str, list[str]] = {}
    for rail in fabric.rails:
        if rail.resource:
            rails.setdefault(rail.resource, []).append(rail.name)
    return {each: names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}" for each, names in rails.items()}


def count(nodes: Iterable[fleet.FleetNode], state: fleet.Fleet, wanted: Sequence[str]) -> Counter[tuple[str, State]]:
    """Devices of the wanted resources on these nodes, by resource and state."""
    found: Counter[tuple[str, State]] = Counter()
    for node in nodes:
        used = state.used(node.name)
        for name in wanted:
            offered = node.allocatable.get(name, 0)
            has = max(node.capacity.get(name, 0), offered)
            if not has:
                continue
            busy = min(used.get(name, 0), has)
            found[name, State.BUSY] += busy // resources.UNIT
            found[name, State.DEAD] += max(has - max(offered, busy), 0) // resources.UNIT
            rest = State.FREE if node.schedulable else State.UNSCHEDULABLE
            found[name, rest] += max(offered - busy, 0) // resources.UNIT
    return found


def overcommitted(nodes: Iterable[fleet.FleetNode], state: fleet.Fleet, wanted: Sequence[str]) -> Mapping[str, int]:
    """Devices of the wanted resources that bound pods hold beyond what their nodes offer, where there are any.

    A device died under its pod, its plugin restarts, or two schedulers gave it at the same moment.
    """
    found: Counter[str] = Counter()
    for node in nodes:
        used = state.used(node.name)
        for name in wanted:
            beyond = used.get(name, 0) - node.allocatable.get(name, 0)
            if beyond > 0:
                found[name] += beyond // resources.UNIT
    return found
