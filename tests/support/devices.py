"""Objects of resource.k8s.io/v1 as drivers write them: an EKS p4d node of eight GPUs and four EFA devices."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric.claims import inventory, objects

ROOTS = ("10", "20", "90", "a0")  # PCI root complexes; each has two GPUs and a NIC
RDMA_DEVICES = ("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27")
ROOT_OF = {f"gpu-{number}": ROOTS[number // 2] for number in range(8)} | {
    f"pci-0000-{root}-1b-0": root for root in ROOTS
}
_API = "resource.k8s.io/v1"


def build_class(name: str, expression: str, extended_resource: str = "") -> dict[str, Any]:
    """Return a DeviceClass."""
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


GPU_CLASS = build_class(
    "gpu.nvidia.com",
    'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"',
    "nvidia.com/gpu",
)
NIC_CLASS = build_class("dranet", 'device.driver == "dra.net"')
CLASSES = (GPU_CLASS, NIC_CLASS)


def build_slices(
    node: str, *, taints: Mapping[str, str] | None = None, generation: int = 1, without: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the slices of a node: NICs of dranet and GPUs. `taints` has an effect by device name."""
    nics = [
        {
            "name": f"pci-0000-{root}-1b-0",
            "attributes": {
                "dra.net/rdma": {"bool": True},
                "dra.net/rdmaDevice": {"string": rdma_device},
                "dra.net/numaNode": {"int": number // 2},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{root}"},
            },
        }
        for number, (root, rdma_device) in enumerate(zip(ROOTS, RDMA_DEVICES, strict=True))
    ]
    management = {"name": "eth0", "attributes": {"dra.net/rdma": {"bool": False}}}
    gpus = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "driverVersion": {"version": "580.95.5"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{ROOTS[number // 2]}"},
            },
            "capacity": {"memory": {"value": "40Gi"}},
        }
        for number in range(8)
    ]
    by_driver = {"dra.net": [management, *nics], "gpu.nvidia.com": gpus}
    for device in (device for devices in by_driver.values() for device in devices):
        if effect := (taints or {}).get(device["name"]):
            device["taints"] = [{"key": "example.com/broken", "effect": effect}]
    return [
        {
            "apiVersion": _API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{driver}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
                "devices": [device for device in devices if device["name"] not in without],
            },
        }
        for driver, devices in by_driver.items()
    ]


def build_claim(
    name: str,
    requests: Mapping[str, str],
    *,
    pod_uid: str = "",
    allocated: Sequence[tuple[str, str, str]] = (),
) -> dict[str, Any]:
    """Return a claim in namespace train. `requests`: name -> DeviceClass; `allocated`: (driver, node, device)."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod_uid, "controller": True}
    metadata = {"name": name, "namespace": "train"} | ({"ownerReferences": [owner]} if pod_uid else {})
    results = [
        {"request": request, "driver": driver, "pool": node, "device": device}
        for request, (driver, node, device) in zip(requests, allocated, strict=False)
    ]
    status: dict[str, Any] = {}
    if results:
        reserved = [{"resource": "pods", "name": name, "uid": pod_uid}] if pod_uid else []
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    asked = [{"name": request, "exactly": {"deviceClassName": name}} for request, name in requests.items()]
    spec = {"devices": {"requests": asked}}
    return {"apiVersion": _API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec, "status": status}


def read_slices(*trees: Mapping[str, Any]) -> list[objects.ResourceSlice]:
    """Return slices as a watch decodes them."""
    return [msgspec.convert(tree, objects.ResourceSlice) for tree in trees]


def read_classes(*trees: Mapping[str, Any]) -> list[objects.DeviceClass]:
    """Return device classes as a watch decodes them."""
    return [msgspec.convert(tree, objects.DeviceClass) for tree in trees]


def read_claim(tree: Mapping[str, Any]) -> objects.ResourceClaim:
    """Return a claim as a watch decodes it."""
    return msgspec.convert(tree, objects.ResourceClaim)


def build_inventory(*nodes: str) -> inventory.Inventory:
    """Return the devices of these nodes by CLASSES."""
    known = inventory.Inventory()
    known.class_sink.replace(read_classes(*CLASSES))
    known.slice_sink.replace(read_slices(*(tree for node in nodes for tree in build_slices(node))))
    return known
