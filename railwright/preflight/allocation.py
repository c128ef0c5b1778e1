"""Compares what claims of the pod hold with what is in the container (Dynamic Resource Allocation).

The annotation `placement`, which a volume shows as a file, lists the devices that were allocated when the pod was
bound. Drivers that implement KEP-5304 write what they gave the container: one file for each claim, request and driver
(k8s.io/dynamic-resource-allocation/api/metadata).
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from railwright.preflight import expected
from railwright.preflight import host as hosts
from railwright.preflight.report import Problem

METADATA = "/var/run/kubernetes.io/dra-device-attributes"
NOT_WRITTEN = "=not-written-at-binding"  # NCCL_IB_HCA until binding; railwright.fabric.names has the same word
_CLAIMS = ("resourceclaimtemplates", "resourceclaims")
_SUFFIX = "-metadata.json"
_RDMA_DEVICE = "dra.net/rdmaDevice"
_MAX_BYTES = 256 * 1024  # a pod's annotations; 32 devices of 32 attributes are less
_MAX_FILES = 512
REBIND = "delete the pod so that it is bound again; if that does not help, `railwright check` finds the cause"
_decode = json.JSONDecoder().raw_decode


class Device(NamedTuple):
    """A device that a claim holds. "" where a name is not known."""

    claim: str
    request: str
    name: str
    rdma_device: str = ""
    interface: str = ""
    rail: str = ""

    @property
    def source(self) -> str:
        """Return the claim for messages."""
        return f"claim {self.claim}, request {self.request}, device {self.name}"


class Allocation(NamedTuple):
    """The devices by the annotation, None if it is missing or unreadable; and by the drivers' files."""

    bound: tuple[Device, ...] | None
    given: tuple[Device, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return the NICs of the annotation, otherwise those of the files."""
        return self.bound or tuple(device for device in self.given if device.rdma_device)


def read(host: hosts.Host, path: str) -> Allocation:
    """Read the annotation's file and the drivers' files. What cannot be read is left out."""
    return Allocation(_read_placement(host.head(path, _MAX_BYTES)), tuple(_read_metadata(host)))


def name_rails(allocation: Allocation, rails: Sequence[expected.Rail]) -> tuple[expected.Rail, ...]:
    """Return a rail for each allocated NIC of which the RDMA device is known; `rails` if there is none."""
    interfaces = {rail.name: rail.interface for rail in rails}
    named = [device for device in allocation.devices if device.rdma_device]
    return tuple(
        expected.Rail(
            name=device.rail or device.rdma_device,
            device=device.rdma_device,
            interface=device.interface or interfaces.get(device.rail, ""),
            source=device.source,
        )
        for device in named
    ) or tuple(rails)


def compare(
    allocation: Allocation, expectations: expected.Expected, present: Mapping[str, hosts.Device]
) -> Iterator[Problem]:
    """Yield how the container differs from the allocation."""
    if allocation.bound is None:
        what = (
            "is not known: the pod has no annotation railwright.io/placement, so railwright was not called at binding"
        )
        yield Problem("allocation", what, REBIND)
    elif expectations.rule.by_hca and expectations.hca == NOT_WRITTEN:
        yield Problem("NCCL_IB_HCA", "was not written at binding: the claims' devices were not known", REBIND)
    elif expectations.rule.by_hca:
        yield from _compare_list(allocation.bound, expectations.hca, present)
    yield from _compare_files(allocation.bound or (), allocation.given)


def _compare_list(
    allocated: Sequence[Device], value: str | None, present: Mapping[str, hosts.Device]
) -> Iterator[Problem]:
    """Yield the differences of NCCL_IB_HCA. There are none if some device has no known name."""
    names = {device.rdma_device for device in allocated}
    if not names or "" in names:
        return
    fix = "remove NCCL_IB_HCA from the pod and its image: railwright writes the devices of the claims"
    for device in allocated:
        if device.rdma_device in present and not expected.selects_device(value, present[device.rdma_device]):
            yield Problem("NCCL_IB_HCA", f"{value} leaves out {device.rdma_device} ({device.source})", fix)
    others = [
        name
        for name, device in present.items()
        if name not in names and device.visible and expected.selects_device(value, device)
    ]
    if others:
        state = f"{(value or '')[:80]} also selects" if value else "is not set, so NCCL also uses"
        yield Problem("NCCL_IB_HCA", f"{state} {', '.join(others[:8])}, which no claim of the pod holds", fix)


def _compare_files(bound: Sequence[Device], given: Sequence[Device]) -> Iterator[Problem]:
    """Yield the requests for which the drivers gave other devices than were allocated."""
    given_by_request: dict[tuple[str, str], dict[str, Device]] = {}
    for device in given:
        given_by_request.setdefault((device.claim, device.request), {})[device.name] = device
    for device in bound:
        own = given_by_request.get((device.claim, device.request))
        if own is None:
            continue
        where = f"claim {device.claim}, request {device.request}"
        match = own.get(device.name)
        if match is None:
            what = f"the driver gave {_join(own)}, but {device.name} was allocated"
            yield Problem(where, what, "check the log of the driver on the node, then delete the pod")
        elif match.rdma_device and device.rdma_device and match.rdma_device != device.rdma_device:
            what = f"{device.name} is RDMA device {match.rdma_device}, but its ResourceSlice said {device.rdma_device}"
            yield Problem(where, what, "the device was renamed: restart the driver on the node, then delete the pod")


def _join(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:8]) or "nothing"


# --- reading ----------------------------------------------------------------------------------------------


def _read_placement(text: str | None) -> tuple[Device, ...] | None:
    """Return the devices in the annotation, () if it has none, None if it is missing or no JSON object."""
    tree = _parse(text)
    if tree is None:
        return None
    return tuple(
        Device(
            claim=_get_text(row, "claim"),
            request=_get_text(row, "request"),
            name=_get_text(row, "device"),
            rdma_device=_get_text(row, "rdmaDevice"),
            interface=_get_text(row, "interface"),
            rail=_get_text(row, "rail"),
        )
        for row in _list_objects(tree, "devices")
    )


def _read_metadata(host: hosts.Host) -> Iterator[Device]:
    """Yield the devices in the drivers' files."""
    for claim, request, path in _list_files(host):
        tree = _parse(host.head(path, _MAX_BYTES)) or {}
        for row in _list_objects(tree, "requests"):
            if _get_text(row, "name").partition("/")[0] != request:
                continue
            for device in _list_objects(row, "devices"):
                attributes, network = device.get("attributes"), device.get("networkData")
                attribute = attributes.get(_RDMA_DEVICE) if isinstance(attributes, dict) else None
                yield Device(
                    claim=claim,
                    request=request,
                    name=_get_text(device, "name"),
                    rdma_device=_get_text(attribute, "string") if isinstance(attribute, dict) else "",
                    interface=_get_text(network, "interfaceName") if isinstance(network, dict) else "",
                )


def _list_files(host: hosts.Host) -> Iterator[tuple[str, str, str]]:
    """Yield claim, request and path of the drivers' files, at most _MAX_FILES."""
    count = 0
    for kind in _CLAIMS:
        for claim in host.list_names(f"{METADATA}/{kind}"):
            for request in host.list_names(f"{METADATA}/{kind}/{claim}"):
                for name in host.list_names(f"{METADATA}/{kind}/{claim}/{request}"):
                    if name.endswith(_SUFFIX) and count < _MAX_FILES:
                        count += 1
                        yield claim, request, f"{METADATA}/{kind}/{claim}/{request}/{name}"


def _parse(text: str | None) -> dict[str, Any] | None:
    """Return the first JSON object of a text, None if there is none. Drivers write one for each version of the API."""
    try:
        tree, _ = _decode(text or "")
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _list_objects(tree: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = tree.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _get_text(tree: Mapping[str, Any], key: str) -> str:
    value = tree.get(key)
    return value if isinstance(value, str) else ""
