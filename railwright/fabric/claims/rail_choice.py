"""Chooses the rails of a gang: those on which the nodes have free devices for the most pods."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.claims import claim_templates, node_devices


class FreeDevices(msgspec.Struct, frozen=True):
    """Devices that no claim holds, and the pods that will take some of them. Rails are positions in the fabric."""

    nodes: Mapping[node_devices.FreeRails, int] = {}  # number of nodes by their free devices
    waiting: Mapping[tuple[int, ...], int] = {}  # number of pods without a node, by the rails of their template


class Needs(msgspec.Struct, frozen=True):
    """The numbers of devices that each pod of a gang needs."""

    rails: int
    accelerators: int = 0  # in its claims


def choose_rails(
    hardware: claim_templates.Hardware, needs: Needs, free: FreeDevices, *, last_first: bool = False
) -> tuple[int, ...]:
    """Return the positions of the rails of a gang.

    Groups of the hardware are added one by one, each time the one that leaves room for the most pods. Of equal groups
    the first is taken, with `last_first` the last. Of a group that is not taken whole, the rails are taken that leave
    room for the most pods each.
    """
    node = hardware.node
    preferred = sorted(range(node.rails), key=lambda rail: -_count_room(hardware, needs, (rail,), free))
    groups: list[int] = []
    chosen: tuple[int, ...] = ()
    while len(chosen) < needs.rails and len(groups) < node.groups:
        candidates = {
            group: claim_templates.order_rails(node, needs.rails, [*groups, group], preferred)
            for group in range(node.groups)
            if group not in groups
        }
        order = {group: group if last_first else -group for group in candidates}
        best = max(candidates, key=lambda group: (_count_room(hardware, needs, candidates[group], free), order[group]))
        groups.append(best)
        chosen = candidates[best]
    return chosen


def _count_room(hardware: claim_templates.Hardware, needs: Needs, rails: Sequence[int], free: FreeDevices) -> int:
    """Return the number of pods that can have these rails, less those that wait for one of them.

    If these are only some of a pod's rails, they need that part of its GPUs beside them.
    """
    beside = -(-needs.accelerators * len(rails) // needs.rails)
    groups = claim_templates.group_devices(hardware.node, beside, rails)
    offered = sum(
        number * _count_pods(node, groups, needs.accelerators, hardware.devices_per_rail)
        for node, number in free.nodes.items()
    )
    return offered - sum(number for others, number in free.waiting.items() if not set(rails).isdisjoint(others))


def _count_pods(
    node: node_devices.FreeRails, groups: Sequence[claim_templates.Group], accelerators: int, devices_per_rail: int
) -> int:
    """Return the number of pods for which a node has the rails of all groups, and the GPUs beside them."""
    pods = min(node.rails[rail] for group in groups for rail in group.rails) // devices_per_rail
    if pods and accelerators:
        pods = min(pods, node.accelerators // accelerators)
    if not pods or not node.places:
        return pods
    shares: Counter[int] = Counter()  # GPUs of a pod by place
    free: dict[int, int] = {}
    for group in groups:
        known = {place: rail for rail in group.rails if (place := node.places[rail]) is not None}
        if len(known) > 1 and group.accelerators:
            return 0  # a constraint is for all devices of a group
        for place, rail in known.items():
            shares[place] += group.accelerators
            free[place] = node.accelerators_beside[rail]
    return min([pods, *(free[place] // share for place, share in shares.items() if share)])
