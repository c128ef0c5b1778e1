"""Constants of the drivers of NICs: names, attributes, and the form of their opaque configuration."""

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"

Parameters = dict[str, Any]
"""Content of `opaque.parameters` in the configuration of a request."""

# pkg/apis/types.go of kubernetes-sigs/dranet: the sections of NetworkConfig. All other keys belong to its interface.
_DRANET_SECTIONS = frozenset({"profile", "interface", "routes", "rules", "neighbors", "ethtool"})

WITHDRAWN = frozenset(
    f"dra.net/{name}"
    for name in ("ifName", "mac", "mtu", "encapsulation", "alias", "state", "type", "ipv4", "ipv6", "ebpf")
)
"""Attributes that dranet reads from the host's interface (pkg/inventory/db.go, addLinkAttributes).

They are gone while a pod holds the device, because its interface is in the pod then.
"""
ALWAYS_SET = frozenset({"dra.net/rdma"})
"""Attributes that a driver publishes for each of its devices (pkg/inventory/db.go, addRDMAAttributes)."""
LINK_STATE, ENCAPSULATION = "dra.net/state", "dra.net/encapsulation"
"""Attributes of dranet with the state of an interface, `up` or `down`, and its kind, `ether` or `infiniband`."""
NIC_NAMES = ("dra.net/rdmaDevice", "dra.net/ifName", "dra.net/pciAddress", PCI_BUS_ID)
"""Attributes by which others name a NIC of a node."""
RDMA_CAPABLE = ("dra.net/rdma", "sriovnetwork.k8snetworkplumbingwg.io/rdmaCapable")
"""Attributes of the known drivers that are false for a network interface without RDMA."""
MAX_DEVICES = 32
"""Devices of a claim (resource.k8s.io/v1, AllocationResultsMaxSize). The API server does not check the sum."""
MAX_PARAMETERS = 10 * 1024
"""Bytes of an opaque configuration (resource.k8s.io/v1, OpaqueParametersMaxLength)."""


class Form(enum.Enum):
    """Form of a driver's opaque configuration."""

    NETWORK_CONFIG = enum.auto()  # dranet: {interface: {name, mtu}}
    VF_CONFIG = enum.auto()  # dra-driver-sriov: VfConfig with ifName and netAttachDefName
    NONE = enum.auto()  # the driver reads none; Multus attaches the networks of the pod's annotation
    PLAIN = enum.auto()  # the policy's parameters as they are


class Driver(msgspec.Struct, frozen=True):
    """A driver of NICs."""

    name: str  # spec.driver of its slices
    form: Form
    rail_attribute: str | None  # whose value identifies a rail, unless the policy names another
    has_rdma_names: bool  # whether values of `rail_attribute` are names of RDMA devices
    pci_attribute: str = PCI_BUS_ID
    has_pci_names: bool = False  # whether names of its devices have the PCI address


DRANET = Driver(
    name="dra.net",
    form=Form.NETWORK_CONFIG,
    rail_attribute="dra.net/rdmaDevice",
    has_rdma_names=True,
    pci_attribute="dra.net/pciAddress",
    has_pci_names=True,
)
SRIOV = Driver(
    name="sriovnetwork.k8snetworkplumbingwg.io",
    form=Form.VF_CONFIG,
    rail_attribute="k8s.cni.cncf.io/resourceName",
    has_rdma_names=False,
)
SRIOV_MULTUS = msgspec.structs.replace(SRIOV, form=Form.NONE)
TESTED_SLICES: Mapping[str, tuple[str, ...]] = {
    DRANET.name: ("dranet v1.4.0", "its main branch of August 2026"),
    "gpu.nvidia.com": ("dra-driver-nvidia-gpu v0.4.1", "v0.5.0"),
}
"""Drivers whose slices the tests have (tests/data/claims/shapes), and the releases that write these attributes."""
KNOWN: Mapping[str, Driver] = {"dranet": DRANET, "sriov": SRIOV, "sriov-multus": SRIOV_MULTUS}


def describe_other(name: str) -> Driver:
    """Return a driver that railwright does not know."""
    return Driver(name=name, form=Form.PLAIN, rail_attribute=None, has_rdma_names=True)


def read_pci_address(device_name: str) -> str | None:
    """Return the PCI address in a device name of dranet (pkg/names): `pci-0000-20-1b-0` is 0000:20:1b.0."""
    kind, _, rest = device_name.partition("-")
    parts = rest.split("-")
    return f"{parts[0]}:{parts[1]}:{parts[2]}.{parts[3]}" if kind == "pci" and len(parts) == 4 else None


def build_parameters(
    form: Form, interface: str | None, network: tuple[str, str] | None, parameters: Mapping[str, Any]
) -> Parameters | None:
    """Return the opaque configuration of a rail, or None if it needs none.

    `network` is namespace and name of the rail's NetworkAttachmentDefinition. `parameters` are those of the policy.
    """
    if form is Form.NETWORK_CONFIG:
        return _build_network_config(interface, parameters)
    if form is Form.VF_CONFIG:
        return _build_vf_config(interface, network, parameters)
    return dict(parameters) or None if form is Form.PLAIN else None


def _build_network_config(interface: str | None, parameters: Mapping[str, Any]) -> Parameters | None:
    sections = {key: value for key, value in parameters.items() if key in _DRANET_SECTIONS}
    keys = {key: value for key, value in parameters.items() if key not in _DRANET_SECTIONS}
    name = {"name": interface} if interface else {}
    merged = {**name, **keys, **sections.pop("interface", {})}
    return {"interface": merged, **sections} if merged or sections else None


def _build_vf_config(
    interface: str | None, network: tuple[str, str] | None, parameters: Mapping[str, Any]
) -> Parameters:
    config: Parameters = {"apiVersion": f"{SRIOV.name}/v1alpha1", "kind": "VfConfig"}
    if interface:
        config["ifName"] = interface
    if network is not None:
        config["netAttachDefNamespace"], config["netAttachDefName"] = network
    return {**config, **parameters}
