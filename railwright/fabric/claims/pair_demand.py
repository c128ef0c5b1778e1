"""Reads which devices of a pod must be beside each other: the constraints of its claims.

A constraint with `matchAttribute` asks that the devices of some requests have one value of an attribute, such as a GPU
and a NIC at one PCIe root.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, views
from railwright.fabric.claims import drivers, objects, resource_names

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
        self._claims: bounded_cache.BoundedCache[tuple[int, objects.DeviceClaim], PairDemand]
        self._claims = bounded_cache.BoundedCache(_MAX_CLAIMS)
        self._demands: bounded_cache.BoundedCache[PairDemand, PairDemand]
        self._demands = bounded_cache.BoundedCache(_MAX_CLAIMS)

    def learn_attributes(self, names: Iterable[str]) -> bool:
        """Add these attributes. True if one is new."""
        new = sorted(set(names).difference(self.attributes, ("",)))[: _MAX_ATTRIBUTES - len(self.attributes)]
        self.attributes += tuple(new)
        return bool(new)

    def read(self, claims: Iterable[objects.DeviceClaim]) -> PairDemand:
        """Return the pairs of a pod with these claims."""
        demands = [demand for claim in claims if (demand := self._read_claim(claim)) != NO_PAIRS]
        if len(demands) <= 1:
            return demands[0] if demands else NO_PAIRS
        pairs = sorted(pair for demand in demands for pair in demand.pairs)
        tolerations = dict.fromkeys(toleration for demand in demands for toleration in demand.tolerations)
        demand = PairDemand(tuple(pairs), tuple(tolerations), any(demand.is_open for demand in demands))
        known = self._demands.get(demand)
        if known is None:
            self._demands.add(demand, demand)
        return known or demand

    def _read_claim(self, claim: objects.DeviceClaim) -> PairDemand:
        key = (self._names.version, claim)
        demand = self._claims.get(key)
        if demand is None:
            kinds = [kind for request in claim.requests for kind in request.kinds]
            tolerations = dict.fromkeys(toleration for kind in kinds for toleration in kind.tolerations or ())
            demand = PairDemand(
                tuple(sorted(self._read_constraints(claim))),
                tuple(tolerations),
                any(request.is_open for request in claim.requests),
            )
            self._claims.add(key, demand)
        return demand

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
