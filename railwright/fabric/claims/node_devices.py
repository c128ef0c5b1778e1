"""Amounts of the devices of one node: in total, by NUMA node, and by rail."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from railwright.fabric import resources


class NodeDevices(msgspec.Struct, frozen=True):
    """Devices of a node, in milli-units by resource name.

    `allocatable` excludes devices with a taint that keeps pods away. `allocated` is the part of it that claims hold,
    and `held_tainted` is the part of the others that they still hold.
    """

    capacity: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocatable: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocated: resources.FrozenAmounts = resources.NO_AMOUNTS
    held_tainted: resources.FrozenAmounts = resources.NO_AMOUNTS


class UnavailableDevice(msgspec.Struct, frozen=True):
    """A device that pods cannot get now: by a taint, or because a claim holds it."""

    device: str
    taint: str = ""
    claim: str = ""  # namespace/name
    pods: tuple[str, ...] = ()  # UIDs of the pods that use the claim


NO_DEVICES = NodeDevices()


class NumaAmounts(dict[int, resources.FrozenAmounts]):
    """Milli-units of each resource by the number of the NUMA node.

    They never change, so that they can be a key. The hash is computed once.
    """

    __slots__ = ("_hash",)

    def __init__(self, written: Mapping[int, resources.Amounts]) -> None:
        super().__init__({number: resources.freeze(amounts) for number, amounts in written.items()})
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]  # dict has None
        return self._hash


_NO_AMOUNTS = NumaAmounts({})


class NumaDevices(msgspec.Struct, frozen=True):
    """Devices of each NUMA node. A resource that a NUMA node has, but none of it free, is listed with 0."""

    allocatable: NumaAmounts = _NO_AMOUNTS
    free: NumaAmounts = _NO_AMOUNTS


NO_NUMA_DEVICES = NumaDevices()


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

    rails: tuple[int, ...]
    accelerators: int = 0
    places: tuple[int | None, ...] = ()
    accelerators_beside: tuple[int, ...] = ()  # of each rail; rails at one place share them
