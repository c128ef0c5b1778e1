"""Chooses the rails of a gang: those on which the nodes have free devices for the most pods."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.claims import claim_templates, pairing

Counts = tuple[int, ...]
"""Free devices of each rail of a fabric on a node."""


class FreeDevices(msgspec.Struct, frozen=True):
    """Devices that no claim holds, and the pods that will take some of them. Rails are positions in the fabric."""

    nodes: Mapping[Counts, int] = {}  # number of nodes by their free devices
    waiting: Mapping[tuple[int, ...], int] = {}  # number of pods without a node, by the rails of their template


def choose_rails(
    hardware: claim_templates.Hardware, count: int, free: FreeDevices, *, last_first: bool = False
) -> tuple[int, ...]:
    """Return the positions of the rails of a gang.

    Groups of the hardware are added one by one, each time the one that leaves room for the most pods. Of equal groups
    the first is taken, with `last_first` the last.
    """
    node = hardware.node
    groups: list[int] = []
    chosen: tuple[int, ...] = ()
    while len(chosen) < count and len(groups) < node.groups:
        candidates = {
            group: pairing.order_rails(node, count, [*groups, group])
            for group in range(node.groups)
            if group not in groups
        }
        order = {group: group if last_first else -group for group in candidates}
        best = max(candidates, key=lambda group: (_count_room(hardware, candidates[group], free), order[group]))
        groups.append(best)
        chosen = candidates[best]
    return chosen


def _count_room(hardware: claim_templates.Hardware, rails: Sequence[int], free: FreeDevices) -> int:
    """Return the number of pods that can have these rails, less those that wait for one of them."""
    offered = sum(
        number * (min(counts[rail] for rail in rails) // hardware.devices_per_rail)
        for counts, number in free.nodes.items()
    )
    return offered - sum(number for others, number in free.waiting.items() if not set(rails).isdisjoint(others))
