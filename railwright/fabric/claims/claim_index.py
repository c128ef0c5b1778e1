"""Indexes ResourceClaims: by pod, and by the devices that they hold.

Updated by events, which may arrive in any order and repeatedly.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, views
from railwright.fabric.claims import device_facts, objects, slices

_MAX_SPECS = 4096  # distinct specs; the claims of a gang have one


class NamedTemplate(NamedTuple):
    """An entry of spec.resourceClaims that names a template."""

    entry: str
    key: str  # namespace/name of the template


class Holder(NamedTuple):
    """A claim that holds devices, and the UIDs of the pods that use it."""

    claim: objects.ResourceClaim
    pods: frozenset[str]


class PodKey(NamedTuple):
    """Identifies the claims of a pod: its UID, namespace/name of the claims that its spec names, and its templates."""

    uid: str
    claims: tuple[str, ...] = ()
    templates: tuple[NamedTemplate, ...] = ()


class ClaimIndex:
    """All claims by namespace/name."""

    def __init__(self) -> None:
        self._claims: dict[str, objects.ResourceClaim] = {}
        self._allocated: set[str] = set()  # claims
        self._claims_by_pod: dict[str, set[str]] = {}  # UID of the pod -> claims
        self._claim_by_device: dict[slices.DeviceId, str] = {}  # that keeps others from the device
        self._shares_by_device: dict[slices.DeviceId, dict[str, list[device_facts.Consumed]]] = {}  # by claim
        self._specs: bounded_cache.BoundedCache[objects.ResourceClaimSpec, objects.ResourceClaimSpec]
        self._specs = bounded_cache.BoundedCache(_MAX_SPECS)

    def __iter__(self) -> Iterator[objects.ResourceClaim]:
        return iter(self._claims.values())

    def list_claims(self, pod: PodKey) -> Sequence[objects.ResourceClaim]:
        """Return the known claims of a pod: those generated or reserved for it, and those that its spec names."""
        own = self._claims_by_pod.get(pod.uid, ())
        if not own and not pod.claims:
            return ()
        keys = {*own, *pod.claims}
        return [self._claims[key] for key in sorted(keys) if key in self._claims]

    def list_held_devices(self, pod: PodKey) -> set[slices.DeviceId]:
        """Return the devices that the claims of a pod hold."""
        return set().union(*map(list_devices, self.list_claims(pod)))

    def has_allocated(self, uid: str, claims: Collection[str]) -> bool:
        """True if a claim of the pod is allocated. `claims` are those that its spec names."""
        own = self._claims_by_pod.get(uid)
        return (own is not None and not self._allocated.isdisjoint(own)) or (
            bool(claims) and not self._allocated.isdisjoint(claims)
        )

    def list_consumers(self, claim: objects.ResourceClaim) -> frozenset[str]:
        """Return the UIDs of the pods that use a claim as it is known now."""
        known = self._claims.get(format_key(claim.metadata))
        return known.consumers if known is not None else frozenset()

    def list_holders(self, devices: Iterable[slices.DeviceId]) -> Sequence[Holder]:
        """Return the claims that hold any of these devices, sorted by namespace/name."""
        keys = {key for device in devices for key in self._list_keys(device)}
        return [Holder(self._claims[key], self._claims[key].consumers) for key in sorted(keys)]

    def get_holder(self, device: slices.DeviceId) -> objects.ResourceClaim | None:
        """Return the claim that holds a device and keeps others from it."""
        key = self._claim_by_device.get(device)
        return self._claims[key] if key is not None else None

    def is_held(self, device: slices.DeviceId) -> bool:
        """True if a claim holds the device, alone or with others."""
        return device in self._claim_by_device or device in self._shares_by_device

    def count_taken(self, device: slices.OfferedDevice, shares: int) -> int:
        """Return how many of the claims that a device has room for when free, `shares`, it has no room for now."""
        if device.id in self._claim_by_device:
            return shares
        consumed = self._shares_by_device.get(device.id)
        if consumed is None or not device.device.allow_multiple_allocations:
            return 0
        amounts = [amount for of_claim in consumed.values() for amount in of_claim]
        return max(min(len(amounts), shares - 1), shares - device_facts.count_shares(device.device, amounts))

    def _list_keys(self, device: slices.DeviceId) -> Sequence[str]:
        """Return the claims that hold a device."""
        if device in self._claim_by_device:
            return (self._claim_by_device[device],)
        return tuple(self._shares_by_device.get(device, ()))

    def upsert(self, claim: objects.ResourceClaim) -> set[slices.DeviceId]:
        """Add or update a claim. Returns the devices that it held and holds; none if it is unchanged."""
        key = format_key(claim.metadata)
        if self._claims.get(key) == claim:
            return set()
        released = self._remove(key)
        claim = self._claims[key] = self._share_spec(claim)
        for uid in claim.consumers:
            self._claims_by_pod.setdefault(uid, set()).add(key)
        if claim.results:
            self._allocated.add(key)
        for result in claim.results:
            device = _identify(result)
            if result.share_id is not None and not result.admin_access:
                shares = self._shares_by_device.setdefault(device, {}).setdefault(key, [])
                shares.append(result.consumed_capacity or {})
            elif not result.admin_access:
                self._claim_by_device[device] = key
        return released | list_devices(claim)

    def _share_spec(self, claim: objects.ResourceClaim) -> objects.ResourceClaim:
        """Return the claim with one object for equal specs, which are most of a claim's memory."""
        spec = self._specs.get(claim.spec)
        if spec is None:
            self._specs.add(claim.spec, claim.spec)
            return claim
        return msgspec.structs.replace(claim, spec=spec)

    def remove(self, claim: objects.ResourceClaim) -> set[slices.DeviceId]:
        """Remove a claim. Returns the devices that it held."""
        return self._remove(format_key(claim.metadata))

    def replace(self, claims: Sequence[objects.ResourceClaim]) -> set[slices.DeviceId]:
        """Replace all claims. Returns the devices of claims that changed."""
        removed = self._claims.keys() - {format_key(claim.metadata) for claim in claims}
        return set().union(*[self._remove(key) for key in removed], *[self.upsert(claim) for claim in claims])

    def _remove(self, key: str) -> set[slices.DeviceId]:
        claim = self._claims.pop(key, None)
        self._allocated.discard(key)
        if claim is None:
            return set()
        for uid in claim.consumers:
            claims = self._claims_by_pod.get(uid, set())
            claims.discard(key)
            if not claims:
                self._claims_by_pod.pop(uid, None)
        devices = list_devices(claim)
        for device in devices:
            if self._claim_by_device.get(device) == key:
                del self._claim_by_device[device]
            shares = self._shares_by_device.get(device, {})
            if shares.pop(key, None) is not None and not shares:
                del self._shares_by_device[device]
        return devices


def list_devices(claim: objects.ResourceClaim) -> set[slices.DeviceId]:
    """Return the devices that are allocated to a claim, also those with admin access."""
    return {_identify(result) for result in claim.results}


def identify_claims(pod: views.Pod) -> PodKey:
    """Return the key of a pod's claims."""
    entries, namespace = pod.spec.resource_claims, pod.metadata.namespace
    if not entries:
        return PodKey(pod.metadata.identity)
    return PodKey(
        pod.metadata.identity,
        tuple([f"{namespace}/{entry.resource_claim_name}" for entry in entries if entry.resource_claim_name]),
        tuple(
            [
                NamedTemplate(entry.name, f"{namespace}/{entry.resource_claim_template_name}")
                for entry in entries
                if entry.resource_claim_template_name
            ]
        ),
    )


def _identify(result: objects.DeviceResult) -> slices.DeviceId:
    return slices.DeviceId(result.driver, result.pool, result.device)


def format_key(metadata: views.ObjectMeta) -> str:
    """Return namespace/name."""
    return f"{metadata.namespace}/{metadata.name}"
