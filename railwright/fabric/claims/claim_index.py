"""Indexes ResourceClaims by pod and by devices that they hold, and ResourceClaimTemplates; counts what they request.

Updated by events, which may arrive in any order and repeatedly. A claim requests the same before and after allocation,
so that equal pods stay equal. A pod that names a template counts by it until the claim is generated, so that a gang
that waits is planned whole.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, resources, views
from railwright.fabric.claims import objects, resource_names, slices

_MAX_SPECS = 4096  # distinct specs; the claims of a gang have one


class NamedTemplate(NamedTuple):
    """An entry of spec.resourceClaims that names a template."""

    entry: str
    key: str  # namespace/name of the template


class Holder(NamedTuple):
    """A claim that holds devices, and the UIDs of the pods that use it."""

    claim: objects.ResourceClaim
    pods: frozenset[str]


class PodKey(msgspec.Struct, frozen=True, gc=False):
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
        self._shares_by_device: dict[slices.DeviceId, dict[str, list[slices.Consumed]]] = {}  # by claim
        # one object for equal specs, which are most of a claim's memory
        self._specs = bounded_cache.BoundedCache[objects.ResourceClaimSpec, objects.ResourceClaimSpec](_MAX_SPECS)

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
        known = self._claims.get(claim.metadata.full_name)
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
        """Return how many of a device's `shares` are taken: the claims that it has room for when free."""
        if device.id in self._claim_by_device:
            return shares
        consumed = self._shares_by_device.get(device.id)
        if consumed is None or not device.device.allow_multiple_allocations:
            return 0
        amounts = [amount for of_claim in consumed.values() for amount in of_claim]
        return max(min(len(amounts), shares - 1), shares - slices.count_shares(device.device, amounts))

    def _list_keys(self, device: slices.DeviceId) -> Sequence[str]:
        """Return the claims that hold a device."""
        if device in self._claim_by_device:
            return (self._claim_by_device[device],)
        return tuple(self._shares_by_device.get(device, ()))

    def upsert(self, claim: objects.ResourceClaim) -> set[slices.DeviceId]:
        """Add or update a claim. Returns the devices that it held and holds; none if it is unchanged."""
        key = claim.metadata.full_name
        if self._claims.get(key) == claim:
            return set()
        released = self._remove(key)
        spec = self._specs.find(claim.spec, lambda: claim.spec)
        claim = self._claims[key] = claim if spec is claim.spec else msgspec.structs.replace(claim, spec=spec)
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

    def remove(self, claim: objects.ResourceClaim) -> set[slices.DeviceId]:
        """Remove a claim. Returns the devices that it held."""
        return self._remove(claim.metadata.full_name)

    def replace(self, claims: Sequence[objects.ResourceClaim]) -> set[slices.DeviceId]:
        """Replace all claims. Returns the devices of claims that changed."""
        removed = self._claims.keys() - {claim.metadata.full_name for claim in claims}
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


_MAX_CLAIMS = 4096  # claims that request different devices; the pods of a gang request the same


class ClaimTemplates:
    """All ResourceClaimTemplates, by namespace/name."""

    def __init__(self) -> None:
        self._templates: dict[str, objects.ResourceClaimTemplate] = {}

    def list_known(self, keys: Iterable[str]) -> Sequence[objects.ResourceClaimTemplate]:
        """Return those of these templates that are known."""
        return [self._templates[key] for key in keys if key in self._templates]

    def __iter__(self) -> Iterator[objects.ResourceClaimTemplate]:
        return iter(self._templates.values())

    def upsert(self, template: objects.ResourceClaimTemplate) -> set[str]:
        """Add or update a template. Returns its key if its requests changed."""
        key = template.metadata.full_name
        previous = self._templates.get(key)
        self._templates[key] = template
        return set() if previous is not None and previous.requests == template.requests else {key}

    def remove(self, template: objects.ResourceClaimTemplate) -> set[str]:
        """Remove a template. Returns its key if it was known."""
        key = template.metadata.full_name
        return {key} if self._templates.pop(key, None) is not None else set()

    def replace(self, templates: Sequence[objects.ResourceClaimTemplate]) -> set[str]:
        """Replace all templates. Returns the keys of those that changed."""
        listed = {template.metadata.full_name for template in templates}
        removed = [template for key, template in self._templates.items() if key not in listed]
        return set().union(*map(self.remove, removed), *map(self.upsert, templates))


class RequestedDevices:
    """The devices that claims request, by resource name. Equal claims share the amounts: each pod of a gang has one."""

    def __init__(self, names: resource_names.ResourceNames) -> None:
        self._names = names
        self._amounts = bounded_cache.BoundedCache[tuple[int, objects.DeviceClaim], resources.FrozenAmounts](
            _MAX_CLAIMS
        )

    def count(self, claim: objects.DeviceClaim) -> resources.FrozenAmounts:
        """Return the devices that a claim asks for. Those with admin access take none from others."""
        return self._amounts.find(
            (self._names.version, claim), lambda: resources.add_up([*map(self._count_request, claim.requests)])
        )

    def _count_request(self, request: objects.DeviceRequest) -> resources.Amounts:
        """Return the devices that a request takes whichever of its kinds the allocator finds."""
        choices = [dict.fromkeys(self._names.find_request_names(kind), kind.least_devices) for kind in request.kinds]
        least = {name: min([choice.get(name, 0) for choice in choices]) for name in choices[0]} if choices else {}
        return {name: number * resources.UNIT for name, number in least.items() if number > 0}


def list_device_claims(
    pod: PodKey, claims: Iterable[objects.ResourceClaim], templates: ClaimTemplates
) -> Sequence[objects.DeviceClaim]:
    """Return what a pod's claims ask for, and its templates whose claims are not generated yet.

    Claims that stand for extended resources are left out, because the pod's containers request these.
    """
    own = [claim for claim in claims if not claim.is_for_extended_resources]
    device_claims = [claim.spec.devices for claim in own]
    if pod.templates:
        generated = {claim.metadata.annotations.get(objects.POD_CLAIM_NAME, "") for claim in own}
        named = [template.key for template in pod.templates if template.entry not in generated]
        device_claims += [template.spec.spec.devices for template in templates.list_known(named)]
    return device_claims
