# ruff: noqa: D, ARG001
"""The NUMA nodes of a node; until branch numa is merged nothing is known of any."""

from collections.abc import Iterable, Sequence

import msgspec

from fabric import resources
from fabric.policy import model


class Zone(msgspec.Struct, frozen=True):
    node: int
    free: tuple[tuple[str, int], ...]


Zones = tuple[Zone, ...]


class Want(msgspec.Struct, frozen=True):
    accelerators: tuple[tuple[str, int], ...]
    pools: tuple[tuple[str, int], ...]


class Spot(msgspec.Struct, frozen=True):
    aligned: bool
    local: int
    taken: Zones
    zones: tuple[int, ...]


def of_shape(
    shape: model.NodeShape, rails: Sequence[model.Rail], allocatable: resources.Amounts, accelerators: Sequence[str]
) -> Zones:
    return ()


def charged(zones: Zones, held: Iterable[resources.Amounts]) -> Zones:
    return zones


def spot(zones: Zones, want: Want) -> Spot | None:
    return None


def members(zones: Zones, want: Want, limit: int) -> tuple[Spot, ...]:
    return ()
