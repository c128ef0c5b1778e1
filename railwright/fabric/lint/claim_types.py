"""Types of linting claims and the pods that refer to them: what a rule reads, and the rule itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.claims import drivers, objects

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


class ClaimedDevices(objects.DeviceClaim, frozen=True):
    """devices of the spec of a ResourceClaim or ResourceClaimTemplate, with the configuration for drivers."""

    config_or_none: list[objects.DeviceConfiguration] | None = msgspec.field(default=None, name="config")

    @property
    def config(self) -> Sequence[objects.DeviceConfiguration]:
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


class PodClaimContext(msgspec.Struct, frozen=True):
    """A pod or pod template, and the templates of claims in the same files."""

    title: str  # "Job prod/llm"
    spec: views.PodSpec
    templates: Mapping[str, ClaimedDevices] = {}  # by name
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)

    def list_containers(self) -> Iterator[tuple[views.Container, Path]]:
        """Yield the containers, those of initialization first, each with its path below the pod's spec."""
        for index, init_container in enumerate(self.spec.init_containers or ()):
            yield init_container, ("initContainers", index)
        for index, container in enumerate(self.spec.containers):
            yield container, ("containers", index)

    def list_used(self) -> set[str]:
        """Return the entries of spec.resourceClaims that containers use."""
        return {
            claim.name
            for container, _ in self.list_containers()
            if container.resources is not None
            for claim in container.resources.claims
        }


class ClaimViolation(msgspec.Struct, frozen=True):
    """A violation. `path` is below `devices` of a claim, or below the spec of a pod."""

    message: str
    path: Path = ()


class ClaimRule(msgspec.Struct, frozen=True):
    """A rule about claims, or about the claims of a pod."""

    code: str
    check_claim: Callable[[ClaimContext], Iterable[ClaimViolation]] = lambda _claim: ()
    check_pod: Callable[[PodClaimContext], Iterable[ClaimViolation]] = lambda _pod: ()


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


def has_gpus(devices: ClaimedDevices) -> bool:
    """True if a request is known to be for GPUs. Of alternatives, the first one counts."""
    kinds = (request.preferred for request in devices.requests)
    return any(kind is not None and find_driver(kind) == GPU_DRIVER for kind in kinds)


def read_devices(tree: Mapping[str, Any]) -> ClaimedDevices:
    """Return `devices` of a spec. Raises msgspec.ValidationError."""
    return msgspec.convert(tree, ClaimedDevices)
