"""Counts the free devices of each rail of a node, and the free GPUs beside them.

Others may hold GPUs without the NICs beside them. The rails of these GPUs are then free, but no pair can be made there.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from railwright.fabric.claims import pair_counts

Counts = tuple[int, ...]


class DeviceNames(NamedTuple):
    """The resources under which the devices of a fabric count, and what pairs them."""

    rails: tuple[str, ...]
    accelerator: str = ""  # "" if the claims have no GPUs
    pair_attribute: str = ""  # that a GPU and its NIC share; "" if none does


class FreeRails(NamedTuple):
    """The free devices of a node. Rails are positions in the fabric.

    `places` has the number of the value that the devices of a rail have of the attribute that pairs them. It is None
    for a rail without a single known value: nothing is known of the GPUs beside it.
    """

    rails: Counts
    accelerators: int = 0
    places: tuple[int | None, ...] = ()
    accelerators_beside: Counts = ()  # of each rail; rails at one place share them


def count_free_rails(
    devices: Sequence[pair_counts.FreeDevice], attributes: Sequence[str], names: DeviceNames
) -> FreeRails:
    """Return the free devices of a node. Values of `attributes` are known."""
    attribute = names.pair_attribute
    counts = Counter(name for device in devices for name in device.names)
    rails = tuple([counts[name] for name in names.rails])
    if not names.accelerator:
        return FreeRails(rails)
    accelerators = counts[names.accelerator]
    if not attribute or attribute not in attributes:
        return FreeRails(rails, accelerators)
    places = tuple([_find_place(devices, name, attribute) for name in names.rails])
    beside = Counter(device.values.get(attribute) for device in devices if names.accelerator in device.names)
    counts_beside = tuple([0 if place == _NOWHERE else beside[place] + beside[pair_counts.ANY] for place in places])
    return FreeRails(rails, accelerators, places, counts_beside)


_NOWHERE = -2  # the place of a device without the attribute: it satisfies no constraint


def _find_place(devices: Sequence[pair_counts.FreeDevice], rail: str, attribute: str) -> int | None:
    values = {device.values.get(attribute, _NOWHERE) for device in devices if rail in device.names}
    place = values.pop() if len(values) == 1 else None
    return None if place == pair_counts.ANY else place
