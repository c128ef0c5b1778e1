"""Computes how many devices of each resource a pod's claims request.

A claim requests the same before and after allocation, so that equal pods stay equal. A pod that names a template counts
by it until the claim is generated, so that a gang that waits is planned whole.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import claim_index, objects, resource_names

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
        key = claim_index.format_key(template.metadata)
        previous = self._templates.get(key)
        self._templates[key] = template
        return set() if previous is not None and previous.requests == template.requests else {key}

    def remove(self, template: objects.ResourceClaimTemplate) -> set[str]:
        """Remove a template. Returns its key if it was known."""
        key = claim_index.format_key(template.metadata)
        return {key} if self._templates.pop(key, None) is not None else set()

    def replace(self, templates: Sequence[objects.ResourceClaimTemplate]) -> set[str]:
        """Replace all templates. Returns the keys of those that changed."""
        listed = {claim_index.format_key(template.metadata) for template in templates}
        removed = [template for key, template in self._templates.items() if key not in listed]
        return set().union(*map(self.remove, removed), *map(self.upsert, templates))


class RequestedDevices:
    """The devices that claims request, by resource name. Equal claims share the amounts: each pod of a gang has one."""

    def __init__(self, names: resource_names.ResourceNames) -> None:
        self._names = names
        self._amounts: bounded_cache.BoundedCache[tuple[int, objects.DeviceClaim], resources.FrozenAmounts]
        self._amounts = bounded_cache.BoundedCache(_MAX_CLAIMS)

    def count(self, claim: objects.DeviceClaim) -> resources.FrozenAmounts:
        """Return the devices that a claim asks for. Those with admin access take none from others."""
        key = (self._names.version, claim)
        amounts = self._amounts.get(key)
        if amounts is None:
            amounts = resources.freeze(self._count(claim.requests))
            self._amounts.add(key, amounts)
        return amounts

    def _count(self, requests: Iterable[objects.DeviceRequest]) -> Counter[str]:
        amounts: Counter[str] = Counter()
        for request in requests:
            amounts.update(self._count_request(request))
        return amounts

    def _count_request(self, request: objects.DeviceRequest) -> resources.Amounts:
        """Return the devices that a request takes whichever of its kinds the allocator finds."""
        choices = [dict.fromkeys(self._names.find_request_names(kind), kind.least_devices) for kind in request.kinds]
        least = {name: min([choice.get(name, 0) for choice in choices]) for name in choices[0]} if choices else {}
        return {name: number * resources.UNIT for name, number in least.items() if number > 0}


def compute_requests(
    requested: RequestedDevices,
    pod: claim_index.PodKey,
    claims: Iterable[objects.ResourceClaim],
    templates: ClaimTemplates,
) -> resources.FrozenAmounts:
    """Return what a pod's claims and templates request, in milli-units by resource name.

    Claims that stand for extended resources are left out, because the pod's containers request these.
    """
    return _add_up([requested.count(claim) for claim in list_device_claims(pod, claims, templates)])


def list_device_claims(
    pod: claim_index.PodKey, claims: Iterable[objects.ResourceClaim], templates: ClaimTemplates
) -> Sequence[objects.DeviceClaim]:
    """Return what a pod's claims ask for, and its templates whose claims are not generated yet.

    Claims that stand for extended resources are left out.
    """
    own = [claim for claim in claims if not claim.is_for_extended_resources]
    device_claims = [claim.spec.devices for claim in own]
    if pod.templates:
        generated = {claim.metadata.annotations.get(objects.POD_CLAIM_NAME, "") for claim in own}
        named = [template.key for template in pod.templates if template.entry not in generated]
        device_claims += [template.spec.spec.devices for template in templates.list_known(named)]
    return device_claims


def _add_up(amounts: Sequence[resources.FrozenAmounts]) -> resources.FrozenAmounts:
    if len(amounts) <= 1:
        return amounts[0] if amounts else resources.NO_AMOUNTS
    total: Counter[str] = Counter()
    for of_claim in amounts:
        total.update(of_claim)
    return resources.freeze(total)
