"""Computes how many devices of each resource a pod's claims request.

A claim requests the same before and after allocation, so that equal pods stay equal. A pod that names a template counts
by it until the claim is generated, so that a gang that waits is planned whole.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, objects, resource_names


class ClaimTemplates:
    """All ResourceClaimTemplates, by namespace/name."""

    def __init__(self) -> None:
        self._templates: dict[str, objects.ResourceClaimTemplate] = {}

    def get_requests(self, key: str) -> Sequence[objects.DeviceRequest]:
        """Return the requests of a template; none if it is not known."""
        template = self._templates.get(key)
        return template.requests if template is not None else ()

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


def compute_requests(
    names: resource_names.ResourceNames,
    pod: claim_index.PodKey,
    claims: Iterable[objects.ResourceClaim],
    templates: ClaimTemplates,
) -> resources.Amounts:
    """Return what a pod's claims and templates request, in milli-units by resource name.

    Claims that stand for extended resources are left out, because the pod's containers request these.
    """
    amounts: Counter[str] = Counter()
    generated: set[str] = set()
    for claim in claims:
        if not claim.is_for_extended_resources:
            generated.add(claim.metadata.annotations.get(objects.POD_CLAIM_NAME, ""))
            amounts.update(count_devices(names, claim.requests))
    for template in pod.templates:
        if template.entry not in generated:
            amounts.update(count_devices(names, templates.get_requests(template.key)))
    return amounts


def count_devices(names: resource_names.ResourceNames, requests: Iterable[objects.DeviceRequest]) -> Counter[str]:
    """Return the devices that requests of a claim ask for. Those with admin access take none from others."""
    amounts: Counter[str] = Counter()
    for request in requests:
        preferred = request.preferred
        if preferred is not None and not preferred.admin_access:
            amounts.update(dict.fromkeys(names.find_request_names(preferred), preferred.count * resources.UNIT))
    return amounts
