"""Views of ResourceSlice, ResourceClaim, ResourceClaimTemplate and DeviceClass (resource.k8s.io/v1).

A view has only the fields that railwright reads, like the views in `railwright.fabric.views`. The constants are of the
API and of dranet.
"""

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric import node_views, views

DRANET = "dra.net"
"""spec.driver of the ResourceSlices of dranet, the driver whose NICs pods request by claims."""
RDMA_DEVICE = "dra.net/rdmaDevice"
"""dranet's attribute with the name of the RDMA device, such as mlx5_0."""
WITHDRAWN = frozenset(
    f"dra.net/{name}"
    for name in ("ifName", "mac", "mtu", "encapsulation", "alias", "state", "type", "ipv4", "ipv6", "ebpf")
)
"""Attributes that dranet reads from the host's interface (pkg/inventory/db.go, addLinkAttributes).

A slice lacks them while a pod holds the device, because the interface is then in the pod's network namespace.
"""
MAX_DEVICES = 32
"""Maximum number of devices of a claim (AllocationResultsMaxSize). The API server does not add up `count`s."""
IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource by which a container can request devices of a DeviceClass (KEP-5004)."""


class Attribute(views.View, frozen=True):
    """Value of a device's attribute: exactly one of the fields is set, by the type of the value."""

    string: str | None = None
    integer: int | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        """The value, of any type; None if its type is none of these fields."""
        return next((own for own in (self.string, self.integer, self.boolean, self.version) if own is not None), None)


class Device(views.View, frozen=True):
    """Entry of spec.devices of a ResourceSlice."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    node_name: str = ""  # only in slices with perDeviceNodeSelection
    taints: list[node_views.Taint] | None = None


class ResourcePool(views.View, frozen=True):
    """Field spec.pool of a ResourceSlice. Slices of an old generation are obsolete; the newest may be incomplete."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(views.View, frozen=True):
    """Field spec of a ResourceSlice."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""  # "" if the devices name their node, or several nodes may use them
    devices_or_none: list[Device] | None = msgspec.field(default=None, name="devices")

    @property
    def devices(self) -> Sequence[Device]:
        """Devices of the slice; empty if the field is absent."""
        return self.devices_or_none or ()


class ResourceSlice(views.View, frozen=True):
    """Devices that a driver offers, usually those of one node."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CelSelector(views.View, frozen=True):
    """Field cel of a selector: a CEL expression about the variable `device`."""

    expression: str = ""


class DeviceSelector(views.View, frozen=True):
    """Entry of `selectors` in a DeviceClass or in a request of a claim."""

    cel: CelSelector | None = None


class DeviceClassSpec(views.View, frozen=True):
    """Field spec of a DeviceClass."""

    selectors: list[DeviceSelector] | None = None
    extended_resource_name: str = ""


class DeviceClass(views.View, frozen=True):
    """Class of devices. A device belongs to it if all its CEL expressions are true."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions of the class's selectors. All must be true."""
        return read_expressions(self.spec.selectors)


class ExactDeviceRequest(views.View, frozen=True):
    """DeviceClass, selectors and number of devices: field exactly of a request, or an entry of firstAvailable."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The CEL expressions of the request's selectors. All must be true."""
        return read_expressions(self.selectors)

    @property
    def min_devices(self) -> int:
        """Minimum number of devices that are allocated; 0 for admin access and for an unknown allocationMode."""
        return 0 if self.admin_access else {"ExactCount": self.count, "All": 1}.get(self.allocation_mode, 0)


class DeviceRequest(views.View, frozen=True):
    """Entry of `requests` in a claim: one request, or alternatives, of which the first available is allocated."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] | None = None

    @property
    def alternatives(self) -> Sequence[ExactDeviceRequest]:
        """The alternatives of the request, the preferred first; only one for `exactly`."""
        return (self.exactly,) if self.exactly is not None else self.first_available or ()


class DeviceConstraint(views.View, frozen=True):
    """Entry of `constraints` in a claim: devices of these requests, or of all, share one value of an attribute."""

    requests: tuple[str, ...] | None = None
    match_attribute: str = ""


class DeviceClaim(views.View, frozen=True):
    """Field spec.devices of a ResourceClaim."""

    requests_or_none: tuple[DeviceRequest, ...] | None = msgspec.field(default=None, name="requests")
    constraints_or_none: tuple[DeviceConstraint, ...] | None = msgspec.field(default=None, name="constraints")

    @property
    def requests(self) -> Sequence[DeviceRequest]:
        """Requests of the claim; empty if the field is absent."""
        return self.requests_or_none or ()

    @property
    def constraints(self) -> Sequence[DeviceConstraint]:
        """Constraints of the claim; empty if the field is absent."""
        return self.constraints_or_none or ()


class ResourceClaimSpec(views.View, frozen=True):
    """Field spec of a ResourceClaim."""

    devices: DeviceClaim = DeviceClaim()


class TemplateClaimSpec(views.View, frozen=True):
    """Field spec.spec of a ResourceClaimTemplate. `devices` keeps all fields, because a hash of them is in the name."""

    devices: Any = None


class ClaimTemplateSpec(views.View, frozen=True):
    """Field spec of a ResourceClaimTemplate, which contains the spec of the claims."""

    spec: TemplateClaimSpec = TemplateClaimSpec()


class ResourceClaimTemplate(views.View, frozen=True, dict=True, gc=True):
    """Template from which Kubernetes generates a ResourceClaim for each pod that names it."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()

    @functools.cached_property
    def devices(self) -> DeviceClaim:
        """spec.spec.devices as a view; without requests if a field has a type that the view does not know."""
        try:
            return msgspec.convert(self.spec.spec.devices or {}, DeviceClaim)
        except msgspec.ValidationError:
            return DeviceClaim()

    @property
    def device_classes(self) -> frozenset[str]:
        """Names of the DeviceClasses in the template's requests."""
        return frozenset(kind.device_class_name for request in self.devices.requests for kind in request.alternatives)


class DeviceResult(views.View, frozen=True):
    """Allocated device: an entry of status.allocation.devices.results in a ResourceClaim."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None  # does not make the device unavailable to others
    share_id: str | None = msgspec.field(default=None, name="shareID")  # only of devices for several claims


class DeviceAllocation(views.View, frozen=True):
    """Field status.allocation.devices of a ResourceClaim."""

    results: list[DeviceResult] | None = None


class AllocationResult(views.View, frozen=True):
    """Field status.allocation of a ResourceClaim."""

    devices: DeviceAllocation = DeviceAllocation()


class Consumer(views.View, frozen=True):
    """Entry of status.reservedFor in a ResourceClaim: usually a pod."""

    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(views.View, frozen=True):
    """Field status of a ResourceClaim."""

    allocation: AllocationResult | None = None
    reserved_for: list[Consumer] | None = None


class ResourceClaim(views.View, frozen=True):
    """Claim of devices, generated for a pod or written by a user."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def results(self) -> Sequence[DeviceResult]:
        """Allocated devices of the claim; empty before allocation."""
        return (self.status.allocation.devices.results or ()) if self.status.allocation else ()

    @property
    def generated_for(self) -> str:
        """UID of the pod for which the claim was generated from a template; "" for any other claim."""
        owner = self.metadata.controller
        return owner.uid if owner is not None and owner.api_version == "v1" and owner.kind == "Pod" else ""

    @property
    def consumers(self) -> frozenset[str]:
        """UIDs of the pods that use the claim: those for which it is reserved or was generated."""
        pods = {consumer.uid for consumer in self.status.reserved_for or () if consumer.resource == "pods"}
        return frozenset(pods | {self.generated_for} if self.generated_for else pods)


def read_expressions(selectors: Sequence[DeviceSelector] | None) -> tuple[str, ...]:
    """Return the CEL expressions of selectors."""
    return tuple(selector.cel.expression for selector in selectors or () if selector.cel is not None)


def find_attribute(device: Device, driver: str, name: str) -> Attribute | None:
    """Return a device's attribute with the name DOMAIN/NAME, or None.

    A slice may omit the domain if it is the driver's name (Kubernetes' package cel).
    """
    attributes = device.attributes or {}
    return attributes.get(name) or attributes.get(name.removeprefix(f"{driver}/"))
