"""Types of linting ResourceClaims and ResourceClaimTemplates: what a rule reads, and the rule itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.claims import drivers, objects
from railwright.fabric.lint import rule_types

KINDS = ("ResourceClaim", "ResourceClaimTemplate")
GPU_DRIVER = "gpu.nvidia.com"
# DeviceClasses of drivers' charts and clouds, by name, and their driver
_CLASS_DRIVERS: Mapping[str, str] = {
    "dranet": drivers.DRANET.name,
    "dranet.net": drivers.DRANET.name,
    "mrdma.google.com": drivers.DRANET.name,
    "netdev.google.com": drivers.DRANET.name,
    "efa.networking.k8s.aws": drivers.DRANET.name,
    drivers.SRIOV.name: drivers.SRIOV.name,
    GPU_DRIVER: GPU_DRIVER,
    "mig.nvidia.com": GPU_DRIVER,
}
Path = tuple[str | int, ...]


class Opaque(views.View, frozen=True):
    """Configuration that a driver reads."""

    driver: str = ""


class Configuration(views.View, frozen=True):
    """Configuration of the devices of these requests, or of all."""

    requests: list[str] | None = None
    opaque: Opaque | None = None


class ClaimedDevices(views.View, frozen=True):
    """devices of the spec of a ResourceClaim or ResourceClaimTemplate."""

    requests_or_none: list[objects.DeviceRequest] | None = msgspec.field(default=None, name="requests")
    constraints_or_none: list[objects.DeviceConstraint] | None = msgspec.field(default=None, name="constraints")
    config_or_none: list[Configuration] | None = msgspec.field(default=None, name="config")

    @property
    def requests(self) -> Sequence[objects.DeviceRequest]:
        """Requests; empty if absent."""
        return self.requests_or_none or ()

    @property
    def constraints(self) -> Sequence[objects.DeviceConstraint]:
        """Constraints; empty if absent."""
        return self.constraints_or_none or ()

    @property
    def config(self) -> Sequence[Configuration]:
        """Configurations; empty if absent."""
        return self.config_or_none or ()


class ClaimContext(msgspec.Struct, frozen=True):
    """A claim, or a template of claims."""

    title: str  # "ResourceClaimTemplate prod/rdma"
    devices: ClaimedDevices
    is_template: bool = True

    def list_kinds(self) -> Iterator[tuple[int, objects.DeviceRequest, objects.ExactDeviceRequest, Path]]:
        """Yield each kind of device: index and view of its request, the kind, and its path below `devices`."""
        for index, request in enumerate(self.devices.requests):
            if request.exactly is not None:
                yield index, request, request.exactly, ("requests", index, "exactly")
            for position, kind in enumerate(request.first_available or ()):
                yield index, request, kind, ("requests", index, "firstAvailable", position)

    def list_covered(self, names: Sequence[str] | None) -> list[objects.DeviceRequest]:
        """Return the requests that a constraint or configuration covers: those it names, otherwise all."""
        if not names:
            return list(self.devices.requests)
        return [request for request in self.devices.requests if request.name in {name.split("/")[0] for name in names}]


class ClaimViolation(msgspec.Struct, frozen=True):
    """A violation. `path` is below `devices`."""

    message: str
    path: Path = ()


class ClaimRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule about claims. `source` names the published example in which the trap was found."""

    code: str  # C01
    name: str
    severity: rule_types.Severity
    title: str
    explanation: str
    source: str
    good: Mapping[str, Any]  # `devices` of a claim that complies, as in its manifest
    bad: Mapping[str, Any]
    check: Callable[[ClaimContext], Iterable[ClaimViolation]]


def find_driver(kind: objects.ExactDeviceRequest) -> str | None:
    """Return the driver of a kind of device: by its DeviceClass, or by the attributes that it reads. None: unknown."""
    driver = _CLASS_DRIVERS.get(kind.device_class_name)
    if driver is not None:
        return driver
    text = " ".join(kind.expressions)
    for name in (drivers.DRANET.name, drivers.SRIOV.name, GPU_DRIVER):
        if f'attributes["{name}"]' in text or f'driver == "{name}"' in text:
            return name
    return None


def is_nic(kind: objects.ExactDeviceRequest) -> bool:
    """True if the devices are known to be NICs."""
    return find_driver(kind) in (drivers.DRANET.name, drivers.SRIOV.name)


def read_devices(tree: Mapping[str, Any]) -> ClaimedDevices:
    """Return `devices` of a spec. Raises msgspec.ValidationError."""
    return msgspec.convert(tree, ClaimedDevices)
