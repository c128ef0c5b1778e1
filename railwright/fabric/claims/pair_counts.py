"""Counts the pods whose pairs a node has: free devices that share the attribute of a claim's constraint.

A node may have free GPUs and free NICs that are no pairs, where other pods took GPUs without the NICs beside them.

The number is an upper bound, so that no node is refused where the allocator finds devices: selectors of requests other
than those of the policy's rails are not evaluated, and the search is bounded.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.fabric.claims import objects, pair_demand, slices

MAX_PODS = 64  # a larger number counts as this
ANY = -1  # stands for every value: an attribute of a type that railwright does not read, such as a list
_MAX_STEPS = (
    2000  # of one search, below a millisecond; only claims with unequal pairs and a choice of devices need many
)


class FreeDevice(NamedTuple):
    """A device that no claim holds."""

    names: tuple[str, ...]  # of the resources
    values: Mapping[str, int]  # number of the attribute's value on this node, by attribute


class FreePairs(NamedTuple):
    """The pairs of a node."""

    pods: int = MAX_PODS  # that get all their pairs
    missing: pair_demand.Pair | None = None  # that the next pod does not get, if there is room for none


UNLIMITED = FreePairs()

_Room = tuple[str, int, pair_demand.DeviceKind]  # attribute, number of its value, kind of devices


def number_values(
    devices: Sequence[slices.OfferedDevice], attributes: Sequence[str]
) -> Sequence[tuple[int | None, ...]]:
    """Return for each device of a node the number of its value of each attribute; None if it has none.

    Values are numbered in the order of the devices, so that nodes of one type have equal numbers.
    """
    columns = [_number_column(devices, attribute) for attribute in attributes]
    return list(zip(*columns, strict=True)) if columns else [()] * len(devices)


def _number_column(devices: Sequence[slices.OfferedDevice], attribute: str) -> Iterator[int | None]:
    numbers: dict[objects.Attribute, int] = {}
    domain, _, name = attribute.rpartition("/")
    for device in devices:
        attributes = device.device.attributes or {}
        value = attributes.get(attribute)
        if value is None and domain == device.id.driver:  # a name without a domain belongs to the driver's
            value = attributes.get(name)
        if value is None:
            yield None
        else:
            yield ANY if value.value is None else numbers.setdefault(value, len(numbers))


def count_pods(devices: Sequence[FreeDevice], pairs: Sequence[pair_demand.Pair]) -> FreePairs:
    """Return how many pods with these pairs the devices are enough for, at most MAX_PODS."""
    # Downwards from what each pair alone allows: the search answers yes if it takes too long, so that the number stays
    # an upper bound. Equal pairs are adjacent, which lets the search skip their permutations.
    search = _Search(devices, pairs)
    pods = min(search.bound, MAX_PODS)
    while pods and not search.has_room(sorted([*pairs] * pods)):
        pods -= 1
    return FreePairs(pods, None if pods else search.find_missing(pairs))


class _Search:
    """Assigns pairs to the values of their attribute, as long as there are devices."""

    def __init__(self, devices: Sequence[FreeDevice], pairs: Sequence[pair_demand.Pair]) -> None:
        self._left: dict[_Room, int] = {}
        self._values = {
            attribute: sorted({device.values[attribute] for device in devices if attribute in device.values} - {ANY})
            or [ANY]
            for attribute in {pair.attribute for pair in pairs}
        }
        for attribute, kind in {(pair.attribute, paired.kind) for pair in pairs for paired in pair.devices}:
            counts = Counter(device.values.get(attribute) for device in devices if kind.accepts(device.names))
            for value in self._values[attribute]:
                self._left[attribute, value, kind] = counts[value] + (counts[ANY] if value != ANY else 0)
        rooms = [self._count_alone(pair) // pairs.count(pair) for pair in set(pairs)]
        self.bound = min(rooms, default=MAX_PODS)
        self._steps = 0

    def _count_alone(self, pair: pair_demand.Pair) -> int:
        """Return how often there is a pair, without regard to the others."""
        return sum(
            min(self._left[pair.attribute, value, kind] // count for kind, count in pair.devices)
            for value in self._values[pair.attribute]
        )

    def find_missing(self, pairs: Sequence[pair_demand.Pair]) -> pair_demand.Pair:
        """Return the first of the pairs for which the devices are not enough."""
        return next(
            (pair for position, pair in enumerate(pairs) if not self.has_room(pairs[: position + 1])), pairs[-1]
        )

    def has_room(self, pairs: Sequence[pair_demand.Pair]) -> bool:
        """True if there are devices for all these pairs, or if the search takes too long. Equal ones are adjacent."""
        self._steps = 0
        left = dict(self._left)
        try:
            return self._assign(pairs, 0, 0)
        finally:
            self._left = left

    def _assign(self, pairs: Sequence[pair_demand.Pair], position: int, first: int) -> bool:
        """Assign the pairs from a position on. The first of them gets a value at position `first` or later."""
        if position == len(pairs) or self._steps > _MAX_STEPS:
            return True
        pair = pairs[position]
        for index, value in enumerate(self._values[pair.attribute][first:], first):
            self._steps += 1
            if self._take(pair, value, 1):
                is_equal = position + 1 < len(pairs) and pairs[position + 1] == pair  # equal ones in ascending order
                if self._assign(pairs, position + 1, index if is_equal else 0):
                    return True
                self._take(pair, value, -1)
        return False

    def _take(self, pair: pair_demand.Pair, value: int, sign: int) -> bool:
        """Take the devices of a pair, or return them if `sign` is -1. False if there are too few."""
        rooms = [((pair.attribute, value, kind), sign * count) for kind, count in pair.devices]
        if any(self._left[room] < count for room, count in rooms):
            return False
        for room, count in rooms:
            self._left[room] -= count
        return True
