"""Views of the objects of resource.k8s.io/v1: slices, claims and device classes; constants of them and of dranet.

They have only the fields that railwright reads, as those in `railwright.fabric.views`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric import node_views, views

DRANET = "dra.net"
"""spec.driver of the slices of dranet, the driver of NICs that come as claims."""
RDMA_DEVICE = "dra.net/rdmaDevice"
"""Attribute with the name of the RDMA device."""
WITHDRAWN = frozenset(
    f"dra.net/{name}"
    for name in ("ifName", "mac", "mtu", "encapsulation", "alias", "state", "type", "ipv4", "ipv6", "ebpf")
)
"""Attributes that dranet reads from the host's interface (pkg/inventory/db.go, addLinkAttributes).

They are gone while a pod holds the device, because its interface is in the pod then.
"""
MAX_DEVICES = 32
"""Most devices of a claim (resource.k8s.io/v1, AllocationResultsMaxSize). The API server does not check their sum."""
IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Each DeviceClass can be requested as an extended resource with this prefix and its name (KEP-5004)."""


class Attribute(views.View, frozen=True):
    """The value of a device's attribute; exactly one of the fields is set."""

    string: str | None = None
    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        """The value; None if it has a type that railwright does not read."""
        return next((own for own in (self.string, self.integer, self.boolean, self.version) if own is not None), None)


class Device(views.View, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    node_name: str = ""  # only in slices with perDeviceNodeSelection
    taints: list[node_views.Taint] | None = None


class ResourcePool(views.View, frozen=True):
    """The pool of a slice. Slices of an old generation are obsolete; a pool without all its slices is incomplete."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(views.View, frozen=True):
    """spec of a ResourceSlice."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""  # "" if the devices name their node, or several nodes may use them
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


class ExactDeviceRequest(views.View, frozen=True):
    """One kind of device that a claim requests, and how many."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions of the request."""
        return read_expressions(self.selectors)

    @property
    def min_devices(self) -> int:
        """Minimum number of devices for the request; 0 if its mode is unknown."""
        return 0 if self.admin_access else {"ExactCount": self.count, "All": 1}.get(self.allocation_mode, 0)


class DeviceRequest(views.View, frozen=True):
    """A request of a claim: one kind of device, or the first of several that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] | None = None

    @property
    def alternatives(self) -> Sequence[ExactDeviceRequest]:
        """The alternatives of the request, the preferred one first."""
        return (self.exactly,) if self.exactly is not None else self.first_available or ()


class DeviceConstraint(views.View, frozen=True):
    """A constraint of a claim: the devices of these requests, or of all, have one value of the attribute."""

    requests: tuple[str, ...] | None = None
    match_attribute: str = ""


class DeviceClaim(views.View, frozen=True):
    """spec.devices of a ResourceClaim."""

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


class TemplateClaimSpec(views.View, frozen=True):
    """spec of the claims of a template. `devices` is kept whole, because its hash is in the template's name."""

    devices: Any = None


class ClaimTemplateSpec(views.View, frozen=True):
    """spec of a ResourceClaimTemplate: the spec of the claims."""

    spec: TemplateClaimSpec = TemplateClaimSpec()


class ResourceClaimTemplate(views.View, frozen=True, dict=True, gc=True):
    """A template from which the claim of a pod is generated."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()

    @functools.cached_property
    def devices(self) -> DeviceClaim:
        """The devices of the claims; none if they have fields that railwright does not know."""
        try:
            return msgspec.convert(self.spec.spec.devices or {}, DeviceClaim)
        except msgspec.ValidationError:
            return DeviceClaim()

    @property
    def device_classes(self) -> frozenset[str]:
        """The DeviceClasses that the template's requests name."""
        return frozenset(kind.device_class_name for request in self.devices.requests for kind in request.alternatives)


class DeviceResult(views.View, frozen=True):
    """A device that was allocated for a request."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None  # does not make the device unavailable to others
    share_id: str | None = msgspec.field(default=None, name="shareID")  # only of devices for several claims


class DeviceAllocation(views.View, frozen=True):
    """The devices that were allocated to a claim."""

    results: list[DeviceResult] | None = None


class AllocationResult(views.View, frozen=True):
    """status.allocation of a ResourceClaim."""

    devices: DeviceAllocation = DeviceAllocation()


class Consumer(views.View, frozen=True):
    """A pod, or another object, for which a claim is reserved."""

    resource: str = ""
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
    def generated_for(self) -> str:
        """UID of the pod for which the claim was generated from a template; "" for a claim of another origin."""
        owner = self.metadata.controller
        return owner.uid if owner is not None and owner.api_version == "v1" and owner.kind == "Pod" else ""

    @property
    def consumers(self) -> frozenset[str]:
        """UIDs of the pods that use the claim: those for which it is reserved or was generated."""
        pods = {consumer.uid for consumer in self.status.reserved_for or () if consumer.resource == "pods"}
        return frozenset(pods | {self.generated_for} if self.generated_for else pods)


def read_expressions(selectors: Sequence[DeviceSelector] | None) -> tuple[str, ...]:
    """Return the CEL expressions of selectors. All must be true."""
    return tuple(selector.cel.expression for selector in selectors or () if selector.cel is not None)


def find_attribute(device: Device, driver: str, name: str) -> Attribute | None:
    """Return the attribute DOMAIN/NAME. A slice may leave out the driver's own domain (Kubernetes' package cel)."""
    attributes = device.attributes or {}
    return attributes.get(name) or attributes.get(name.removeprefix(f"{driver}/"))
