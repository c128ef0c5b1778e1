"""Groups the GPUs and rails of a pod as the hardware of its node does, so that a claim can ask for true pairs.

P GPUs and R rails of a node make min(P, R) groups: eight GPUs and four rails are four groups of two GPUs and a rail,
eight GPUs and 32 EFA devices are eight groups of a GPU and four rails.
"""

from collections.abc import Iterator, Sequence

import msgspec


class Node(msgspec.Struct, frozen=True):
    """GPUs and rails of a node."""

    accelerators: int
    rails: int

    @property
    def groups(self) -> int:
        """Number of groups."""
        return max(1, min(self.accelerators, self.rails))

    @property
    def accelerators_of_group(self) -> int:
        """Number of GPUs that each group has. If they are not divided evenly, some groups have one more."""
        return self.accelerators // self.groups

    def find_group(self, rail: int) -> int:
        """Return the group of the rail at a position of the fabric."""
        return rail * self.groups // max(1, self.rails)


class Group(msgspec.Struct, frozen=True):
    """Devices that a pod needs from one group of the hardware: GPUs by number, rails by position in the fabric."""

    accelerators: int
    rails: tuple[int, ...] = ()


def group_devices(node: Node, accelerators: int, rails: Sequence[int]) -> tuple[Group, ...]:
    """Return the groups of a pod's devices, in the order of its rails.

    GPUs go to the groups of the pod's rails first, evenly, and no more than each group has. Each of the others is a
    group of its own, because the claim does not say where it is.
    """
    rails_of_group: dict[int, list[int]] = {}
    for rail in rails:
        rails_of_group.setdefault(node.find_group(rail), []).append(rail)
    beside = min(accelerators, len(rails_of_group) * node.accelerators_of_group)
    shares = _divide(beside, len(rails_of_group))
    paired = [Group(share, tuple(members)) for share, members in zip(shares, rails_of_group.values(), strict=True)]
    return (*paired, *[Group(1)] * (accelerators - beside))


def order_rails(node: Node, count: int, groups: Sequence[int], preferred: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of the first `count` rails of hardware groups, in the order of the fabric.

    `groups` are the groups to use, and `preferred` all rails, each in order of preference.
    """
    positions = [rail for group in groups for rail in preferred if node.find_group(rail) == group]
    return tuple(sorted(positions[:count]))


def _divide(number: int, parts: int) -> Iterator[int]:
    """Yield `parts` shares of a number, which differ by one at most."""
    for part in range(parts):
        yield number // parts + (part < number % parts)
