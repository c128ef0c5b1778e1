"""Reads which devices of a pod must be beside each other, and counts the pods whose pairs a node has.

A constraint of a claim with `matchAttribute` asks that the devices of some requests have one value of an attribute,
such as a GPU and a NIC at one PCIe root. A node may have free GPUs and free NICs that are no pairs, where other pods
took GPUs without the NICs beside them.

The number of pods is an upper bound, so that no node is refused where the allocator finds devices: selectors of
requests other than those of the policy's rails are not evaluated, and the search is bounded.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, views
from railwright.fabric.claims import drivers, objects, resource_names, slices

_MAX_ATTRIBUTES = 8  # in which devices of pairs agree; a cluster has one or two, but users can write any
_MAX_CLAIMS = 4096  # claims with different constraints; the pods of a gang have the same


class DeviceKind(NamedTuple):
    """The devices that a request can get."""

    device_class: str  # the resource of the DeviceClass
    names: tuple[str, ...] = ()  # resources of the policy, of which a device has one; () if all of the class will do

    @property
    def name(self) -> str:
        """The most specific resource of these devices."""
        return self.names[0] if self.names else self.device_class

    def accepts(self, names: Collection[str]) -> bool:
        """True if a device with these resource names is of this kind."""
        return self.device_class in names and (not self.names or not set(self.names).isdisjoint(names))


class PairedDevices(NamedTuple):
    """A number of devices of one kind."""

    kind: DeviceKind
    number: int


class Pair(NamedTuple):
    """Devices that must have one value of an attribute."""

    attribute: str  # qualified
    devices: tuple[PairedDevices, ...]


class PairDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """The pairs of a pod, equal ones adjacent, and the taints of devices that its claims tolerate.

    A toleration counts for all devices of the pod: which of them need it is the allocator's business.
    """

    pairs: tuple[Pair, ...] = ()
    tolerations: tuple[views.Toleration, ...] = ()
    is_open: bool = False  # it is not known before the allocation what some requests take


NO_PAIRS = PairDemand()


class PairDemands:
    """The pairs that claims ask for. Equal claims share them."""

    def __init__(self, names: resource_names.ResourceNames) -> None:
        self._names = names
        self.attributes: tuple[str, ...] = (drivers.PCIE_ROOT,)  # in which devices of a pair must agree, as far as seen
        self._claims = bounded_cache.BoundedCache[tuple[int, objects.DeviceClaim], PairDemand](_MAX_CLAIMS)
        self._demands = bounded_cache.BoundedCache[PairDemand, PairDemand](_MAX_CLAIMS)

    def learn_attributes(self, names: Iterable[str]) -> bool:
        """Add these attributes. True if one is new."""
        new = sorted(set(names).difference(self.attributes, ("",)))[: _MAX_ATTRIBUTES - len(self.attributes)]
        self.attributes += tuple(new)
        return bool(new)

    def read(self, claims: Iterable[objects.DeviceClaim]) -> PairDemand:
        """Return the pairs of a pod with these claims."""
        demands = [
            self._claims.find((self._names.version, claim), functools.partial(self._read_claim, claim))
            for claim in claims
        ]
        demands = [demand for demand in demands if demand != NO_PAIRS]
        if len(demands) <= 1:
            return demands[0] if demands else NO_PAIRS
        pairs = sorted(pair for demand in demands for pair in demand.pairs)
        tolerations = dict.fromkeys(toleration for demand in demands for toleration in demand.tolerations)
        demand = PairDemand(tuple(pairs), tuple(tolerations), any(demand.is_open for demand in demands))
        return self._demands.find(demand, lambda: demand)

    def _read_claim(self, claim: objects.DeviceClaim) -> PairDemand:
        kinds = [kind for request in claim.requests for kind in request.kinds]
        tolerations = dict.fromkeys(toleration for kind in kinds for toleration in kind.tolerations or ())
        is_open = any(request.is_open for request in claim.requests)
        return PairDemand(tuple(sorted(self._read_constraints(claim))), tuple(tolerations), is_open)

    def _read_constraints(self, claim: objects.DeviceClaim) -> Iterator[Pair]:
        """Yield the pairs of a claim. Requests that may be satisfied in several ways are left out."""
        requests = {request.name: request.exactly for request in claim.requests if request.exactly is not None}
        for constraint in claim.constraints:
            members = [requests[name] for name in constraint.requests or requests if name in requests]
            counts: Counter[DeviceKind] = Counter()
            derived = {attribute.name for member in members for attribute in member.derived_attributes or ()}
            if constraint.match_attribute in derived:
                continue  # what the requests compute is not known
            for member in members:
                if member.allocation_mode == objects.EXACT_COUNT and not member.admin_access:
                    device_class = objects.IMPLICIT_RESOURCE_PREFIX + member.device_class_name
                    counts[DeviceKind(device_class, self._names.find_policy_names(member))] += member.count
            if constraint.match_attribute and counts.total() > 1:
                yield Pair(constraint.match_attribute, tuple(sorted(map(PairedDevices._make, counts.items()))))


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
    missing: Pair | None = None  # that the next pod does not get, if there is room for none


UNLIMITED = FreePairs()

_Room = tuple[str, int, DeviceKind]  # attribute, number of its value, kind of devices


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
        value = objects.find_attribute(device.device, device.id.driver, domain, name)
        if value is None:
            yield None
        else:
            yield ANY if value.value is None else numbers.setdefault(value, len(numbers))


def count_pods(devices: Sequence[FreeDevice], pairs: Sequence[Pair]) -> FreePairs:
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

    # With backtracking: a pair that may have several values could otherwise take the devices that another one needs,
    # and a node with enough devices would be refused.

    def __init__(self, devices: Sequence[FreeDevice], pairs: Sequence[Pair]) -> None:
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

    def _count_alone(self, pair: Pair) -> int:
        """Return how often there is a pair, without regard to the others."""
        return sum(
            min(self._left[pair.attribute, value, kind] // count for kind, count in pair.devices)
            for value in self._values[pair.attribute]
        )

    def find_missing(self, pairs: Sequence[Pair]) -> Pair:
        """Return the first of the pairs for which the devices are not enough."""
        return next(
            (pair for position, pair in enumerate(pairs) if not self.has_room(pairs[: position + 1])), pairs[-1]
        )

    def has_room(self, pairs: Sequence[Pair]) -> bool:
        """True if there are devices for all these pairs, or if the search takes too long. Equal ones are adjacent."""
        self._steps = 0
        left = dict(self._left)
        try:
            return self._assign(pairs, 0, 0)
        finally:
            self._left = left

    def _assign(self, pairs: Sequence[Pair], position: int, first: int) -> bool:
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

    def _take(self, pair: Pair, value: int, sign: int) -> bool:
        """Take the devices of a pair, or return them if `sign` is -1. False if there are too few."""
        rooms = [((pair.attribute, value, kind), sign * count) for kind, count in pair.devices]
        if any(self._left[room] < count for room, count in rooms):
            return False
        for room, count in rooms:
            self._left[room] -= count
        return True
