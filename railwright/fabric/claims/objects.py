"""Views of the objects of resource.k8s.io/v1: slices, claims, device classes and taint rules.

They have only the fields that railwright reads, as those in `railwright.fabric.views`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric import node_views, views

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of the claims that kube-scheduler makes for extended resources (KEP-5004)."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of generated claims: the entry of the pod's spec.resourceClaims (pkg/controller/resourceclaim)."""
EXACT_COUNT, ALL_DEVICES = "ExactCount", "All"
"""The allocation modes of requests. Kubernetes may add others."""
IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Each DeviceClass can be requested as an extended resource with this prefix and its name (KEP-5004)."""


class Attribute(views.View, frozen=True, gc=False):
    """The value of a device's attribute; exactly one of the fields is set."""

    string: str | None = None
    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        """The value, whatever its type; None if it has a type that railwright does not read."""
        values = (self.string, self.integer, self.boolean, self.version)
        return next((value for value in values if value is not None), None)


class CapacityRange(views.View, frozen=True):
    """The range of the amounts that one allocation may take."""

    minimum: views.RawQuantity | None = msgspec.field(default=None, name="min")


class CapacityPolicy(views.View, frozen=True):
    """The amounts that one allocation of a device for several claims may take."""

    valid_values: tuple[views.RawQuantity, ...] | None = None  # ascending
    valid_range: CapacityRange | None = None

    @property
    def smallest(self) -> views.RawQuantity:
        """The least that an allocation takes; 0 if it may take anything."""
        if self.valid_range is not None:
            return self.valid_range.minimum or 0
        return self.valid_values[0] if self.valid_values else 0


class Capacity(views.View, frozen=True):
    """An amount that a device has, such as memory."""

    value: views.RawQuantity = 0
    request_policy: CapacityPolicy | None = None


class Device(views.View, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    node_name: str = ""  # only in slices with perDeviceNodeSelection
    taints: list[node_views.Taint] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(views.View, frozen=True):
    """The pool of a slice. Slices of an old generation are obsolete; a pool without all its slices is incomplete."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(views.View, frozen=True):
    """spec of a ResourceSlice."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""  # "" if several nodes may use the devices
    devices_or_none: list[Device] | None = msgspec.field(default=None, name="devices")

    @property
    def devices(self) -> Sequence[Device]:
        """Devices; empty if absent."""
        return self.devices_or_none or ()


class ResourceSlice(views.View, frozen=True):
    """Devices that a driver offers, usually those of one node."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CelSelector(views.View, frozen=True):
    """A CEL expression over `device`."""

    expression: str = ""


class DeviceSelector(views.View, frozen=True):
    """A selector of devices."""

    cel: CelSelector | None = None


class DeviceClassSpec(views.View, frozen=True):
    """spec of a DeviceClass."""

    selectors: list[DeviceSelector] | None = None
    extended_resource_name: str = ""


class DeviceClass(views.View, frozen=True):
    """A class of devices: those for which all expressions are true."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions of the class."""
        return read_expressions(self.spec.selectors)


class DerivedAttribute(views.View, frozen=True):
    """An attribute that a request computes of each device, for the claim's constraints."""

    name: str = ""


class ExactDeviceRequest(views.View, frozen=True):
    """One kind of device that a claim requests, and how many."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[views.Toleration, ...] | None = None
    derived_attributes: tuple[DerivedAttribute, ...] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions of the request."""
        return read_expressions(self.selectors)

    @property
    def least_devices(self) -> int:
        """The least number of devices that the request takes from others; 0 if its mode is unknown."""
        if self.admin_access:
            return 0
        return self.count if self.allocation_mode == EXACT_COUNT else int(self.allocation_mode == ALL_DEVICES)


class DeviceRequest(views.View, frozen=True):
    """A request of a claim: one kind of device, or the first of several that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] | None = None

    @property
    def kinds(self) -> Sequence[ExactDeviceRequest]:
        """The kinds of device of which the scheduler takes one, the preferred one first."""
        return (self.exactly,) if self.exactly is not None else self.first_available or ()

    @property
    def is_open(self) -> bool:
        """True if it depends on the allocator what the request takes, or is not known."""
        return len(self.kinds) != 1 or self.kinds[0].allocation_mode not in {EXACT_COUNT, ALL_DEVICES}

    @property
    def preferred(self) -> ExactDeviceRequest | None:
        """The kind of device that the scheduler tries first."""
        return next(iter(self.kinds), None)


class DeviceConstraint(views.View, frozen=True):
    """A constraint of a claim: the devices of these requests, or of all, have one value of the attribute."""

    requests: tuple[str, ...] | None = None
    match_attribute: str = ""


class DeviceClaim(views.View, frozen=True, cache_hash=True):
    """devices of a claim's spec."""

    requests_or_none: tuple[DeviceRequest, ...] | None = msgspec.field(default=None, name="requests")
    constraints_or_none: tuple[DeviceConstraint, ...] | None = msgspec.field(default=None, name="constraints")

    @property
    def requests(self) -> Sequence[DeviceRequest]:
        """Requests; empty if absent."""
        return self.requests_or_none or ()

    @property
    def constraints(self) -> Sequence[DeviceConstraint]:
        """Constraints; empty if absent."""
        return self.constraints_or_none or ()


class ResourceClaimSpec(views.View, frozen=True):
    """spec of a ResourceClaim."""

    devices: DeviceClaim = DeviceClaim()


class ClaimTemplateSpec(views.View, frozen=True):
    """spec of a ResourceClaimTemplate: the spec of the claims."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(views.View, frozen=True):
    """A template from which the claim of a pod is generated."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()

    @property
    def requests(self) -> Sequence[DeviceRequest]:
        """Requests; empty if absent."""
        return self.spec.spec.devices.requests

    @property
    def device_classes(self) -> frozenset[str]:
        """DeviceClasses of its requests."""
        return frozenset(kind.device_class_name for request in self.requests for kind in request.kinds)


class DeviceResult(views.View, frozen=True):
    """A device that was allocated for a request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None  # does not make the device unavailable to others
    share_id: str | None = msgspec.field(default=None, name="shareID")  # only of devices for several claims
    consumed_capacity: dict[str, views.RawQuantity] | None = None


class DeviceAllocation(views.View, frozen=True):
    """The allocated devices."""

    results: list[DeviceResult] | None = None


class AllocationResult(views.View, frozen=True):
    """allocation of a claim's status."""

    devices: DeviceAllocation = DeviceAllocation()


class Consumer(views.View, frozen=True):
    """A pod, or another object, for which a claim is reserved."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(views.View, frozen=True):
    """status of a ResourceClaim."""

    allocation: AllocationResult | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(views.View, frozen=True):
    """A claim of devices, generated for a pod or written by a user."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def results(self) -> Sequence[DeviceResult]:
        """Allocated devices; empty if the claim is not allocated."""
        return (self.status.allocation.devices.results or ()) if self.status.allocation else ()

    @property
    def requests(self) -> Sequence[DeviceRequest]:
        """Requests; empty if absent."""
        return self.spec.devices.requests

    @property
    def is_for_extended_resources(self) -> bool:
        """True if kube-scheduler made the claim for extended resources that the pod's containers request."""
        return EXTENDED_RESOURCE_CLAIM in self.metadata.annotations

    @property
    def consumers(self) -> frozenset[str]:
        """UIDs of the pods that use the claim: those for which it is reserved, and the pod that owns it."""
        owners = self.metadata.owner_references_or_none or ()
        return frozenset(
            [consumer.uid for consumer in self.status.reserved_for or () if consumer.resource == "pods"]
            + [owner.uid for owner in owners if owner.kind == "Pod"]
        )


class OpaqueConfiguration(views.View, frozen=True):
    """Parameters of a driver, in its own form."""

    driver: str = ""
    parameters: Any = None


class DeviceConfiguration(views.View, frozen=True):
    """Configuration of the devices of these requests; of all requests if it names none."""

    requests: list[str] | None = None
    opaque: OpaqueConfiguration | None = None


class ConfiguredAllocation(DeviceAllocation, frozen=True):
    """The allocated devices, and the configuration of their class and of the claim, in this order."""

    config: list[DeviceConfiguration] | None = None


class ConfiguredResult(AllocationResult, frozen=True):
    """allocation of a claim's status, with the configuration."""

    devices: ConfiguredAllocation = ConfiguredAllocation()


class ConfiguredStatus(ResourceClaimStatus, frozen=True):
    """status of a ResourceClaim, with the configuration."""

    allocation: ConfiguredResult | None = None


class ConfiguredClaim(ResourceClaim, frozen=True):
    """A claim with the configuration of its devices, which takes much memory and which placement does not read."""

    status: ConfiguredStatus = ConfiguredStatus()


class DeviceTaintSelector(views.View, frozen=True):
    """The devices that a taint rule selects; an absent field selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(views.View, frozen=True):
    """spec of a DeviceTaintRule."""

    device_selector: DeviceTaintSelector | None = None
    taint: node_views.Taint = node_views.Taint()


class DeviceTaintRule(views.View, frozen=True):
    """A taint that an operator puts on devices."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


def read_expressions(selectors: Sequence[DeviceSelector] | None) -> tuple[str, ...]:
    """Return the CEL expressions of selectors. All must be true."""
    return tuple(selector.cel.expression for selector in selectors or () if selector.cel is not None)


def find_attribute(device: Device, driver: str, domain: str, name: str) -> Attribute | None:
    """Return an attribute. A name without a domain belongs to the driver's (k8s.io/dynamic-resource-allocation/cel)."""
    attributes = device.attributes or {}
    attribute = attributes.get(f"{domain}/{name}")
    return attributes.get(name) if attribute is None and domain == driver else attribute
