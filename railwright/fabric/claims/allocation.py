"""Reads which devices the claims of a pod hold: the allocations of its claims, joined with the slices.

Schedulers write the allocation before they bind the pod. A watch may deliver it later than the Binding.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import views
from railwright.fabric.claims import objects, slices


class AllocatedDevice(msgspec.Struct, frozen=True):
    """A device that a claim holds. `offered` is that of its slice; None if no known slice has the device."""

    claim: str  # the entry of spec.resourceClaims if it names a template, otherwise the claim's own name
    request: str  # without the name of an alternative
    driver: str
    device: str
    offered: objects.Device | None
    interface: str = ""  # that the claim's configuration gives the device in the pod
    resources: tuple[str, ...] = ()  # extended resources of the request's DeviceClass, if the pod requested one

    def get_attribute(self, name: str) -> object:
        """Return the value of a qualified attribute, None if the device does not have it."""
        domain, _, identifier = name.rpartition("/")
        attribute = self.offered and objects.find_attribute(
            self.offered, self.driver, domain or self.driver, identifier
        )
        return attribute and attribute.value


def list_unallocated(
    pod: views.Pod, claims: Sequence[objects.ResourceClaim], *, has_extended: bool = False
) -> tuple[str, ...]:
    """Return the claims of a pod without a known allocation: entries of spec.resourceClaims, or the claim's kind.

    `claims` are the known ones of the pod. `has_extended`: slices offer extended resources that the pod requests, so it
    has a claim for these (KEP-5004).
    """
    allocated = {claim.metadata.name for claim in claims if claim.results and _may_use(pod, claim)}
    by_entry = {claim.metadata.annotations.get(objects.POD_CLAIM_NAME) for claim in claims if claim.results}
    generated = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses or ()}
    missing = []
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name:
            is_known = entry.resource_claim_name in allocated
        elif entry.name in generated:
            is_known = generated[entry.name] is None or generated[entry.name] in allocated
        else:
            is_known = entry.name in by_entry
        if not is_known:
            missing.append(entry.name)
    if has_extended and not any(claim.results and claim.is_for_extended_resources for claim in claims):
        missing.append("extended resources")
    return tuple(missing)


def list_devices(
    pod: views.Pod,
    claims: Sequence[objects.ResourceClaim],
    devices: slices.SliceIndex,
    names_by_class: Mapping[str, tuple[str, ...]],
) -> tuple[AllocatedDevice, ...]:
    """Return the devices that a pod holds, in the order of its claims and their allocations.

    `names_by_class` has the extended resources of each DeviceClass.
    """
    entries = [entry.resource_claim_name or entry.name for entry in pod.spec.resource_claims or ()]
    positions = {name: position for position, name in reversed([*enumerate(entries)])}
    allocated = []
    for claim in claims:
        if not claim.results or not _may_use(pod, claim):
            continue
        own_name = claim.metadata.name
        name = claim.metadata.annotations.get(objects.POD_CLAIM_NAME) or own_name
        position = positions.get(own_name, positions.get(name, len(positions)))
        allocated.append((position, name, claim))
    return tuple(
        _build_device(name, result, claim, devices, names_by_class)
        for _, name, claim in sorted(allocated, key=lambda row: row[:2])
        for result in claim.results
    )


def _may_use(pod: views.Pod, claim: objects.ResourceClaim) -> bool:
    """True if the claim is the pod's own or reserved for it. A claim that the spec names may be another pod's yet."""
    return not pod.metadata.uid or pod.metadata.uid in claim.consumers


def _build_device(
    name: str,
    result: objects.DeviceResult,
    claim: objects.ResourceClaim,
    devices: slices.SliceIndex,
    names_by_class: Mapping[str, tuple[str, ...]],
) -> AllocatedDevice:
    request = result.request.partition("/")[0]
    offered = devices.devices.get(slices.DeviceId(result.driver, result.pool, result.device))
    return AllocatedDevice(
        claim=name,
        request=request,
        driver=result.driver,
        device=result.device,
        offered=offered.device if offered is not None else None,
        interface=_find_interface(claim, request),
        resources=_find_resources(claim, request, names_by_class) if claim.is_for_extended_resources else (),
    )


def _find_resources(
    claim: objects.ResourceClaim, request: str, names_by_class: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the extended resources by which devices of the request's class can be requested."""
    rows = [row.exactly for row in claim.requests if row.name == request and row.exactly]
    return tuple(resource for row in rows for resource in names_by_class.get(row.device_class_name, ()))


def _find_interface(claim: objects.ResourceClaim, request: str) -> str:
    """Return the interface name in the drivers' configuration of a request: dranet's, or dra-driver-sriov's."""
    if not isinstance(claim, objects.ConfiguredClaim):
        return ""
    allocation = claim.status.allocation
    for configuration in reversed((allocation.devices.config if allocation else None) or ()):
        requests = configuration.requests or ()
        parameters = configuration.opaque.parameters if configuration.opaque else None
        if (requests and request not in {name.partition("/")[0] for name in requests}) or not isinstance(
            parameters, dict
        ):
            continue
        section = parameters.get("interface")
        interface = section.get("name") if isinstance(section, dict) else parameters.get("ifName")
        if isinstance(interface, str) and interface:
            return interface
    return ""
