"""Nodes of four published shapes: their devices with published attributes, and their hardware groups.

They are in tests/data/claims/shapes.yaml. A device's `beside` names the hardware group of GPUs and NICs with a direct
path; it is not an attribute, so that a wrong pair is found whatever the claim asked for.
"""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import devices
import yaml

FILE = pathlib.Path(__file__).resolve().parents[1] / "data" / "claims" / "shapes.yaml"
NAMES = ("eks-p4d", "eks-p5", "gke-a3-ultra", "oke-gb200")
_API = "resource.k8s.io/v1"
_COLUMNS_OF_OURS = ("name", "beside")  # all further columns are attributes


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of a node, its attributes as in a ResourceSlice. `beside` is empty for a NIC without RDMA."""

    name: str
    beside: str
    attributes: dict[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A node type. Rail k is `nics[k]`. `classes` has the CEL expression of each DeviceClass by name.

    Pods of the tests have `pod_gpus` GPUs.
    """

    name: str
    title: str
    nics: tuple[Device, ...]
    gpus: tuple[Device, ...]
    others: tuple[Device, ...]
    classes: Mapping[str, str]
    policy: Mapping[str, str]
    pod_gpus: int

    @property
    def pod_nics(self) -> int:
        """The number of NICs of a pod with `pod_gpus` GPUs."""
        return len(self.nics) * self.pod_gpus // len(self.gpus)

    def build_policy(self) -> str:
        """Return railwright's policy for nodes of this shape, with fabric `claimed` and rail k on `nics[k]`."""
        rails = [
            {"name": f"rail{number}", "device": nic.attributes["dra.net/rdmaDevice"]["string"]}
            for number, nic in enumerate(self.nics)
        ]
        claims = {
            "deviceClass": self.policy["deviceClass"],
            "acceleratorClass": "gpu.nvidia.com",
            "pairBy": self.policy["pairBy"],
        }
        fabric = {
            "transport": self.policy["transport"],
            "gpusPerNode": len(self.gpus),
            "railsPerPod": "proportional",
            "claims": claims,
            "rails": rails,
        }
        document = {"apiVersion": "railwright.io/v1alpha1", "fabrics": {"claimed": fabric}}
        return yaml.safe_dump(document, sort_keys=False)

    @functools.cached_property
    def groups(self) -> Mapping[str, str]:
        """The hardware group of each GPU and RDMA NIC by device name."""
        return {device.name: device.beside for device in (*self.nics, *self.gpus)}

    def build_classes(self) -> list[dict[str, Any]]:
        """Return the DeviceClasses."""
        return [devices.build_class(name, expression) for name, expression in self.classes.items()]

    def build_slices(self, node: str) -> list[dict[str, Any]]:
        """Return the slices of a node: one of the NICs' driver, one of the GPUs'."""
        nics = [{"name": nic.name, "attributes": nic.attributes} for nic in (*self.others, *self.nics)]
        gpus = [
            {"name": gpu.name, "attributes": gpu.attributes | {"uuid": {"string": f"GPU-{node}-{gpu.name}"}}}
            for gpu in self.gpus
        ]
        return [_build_slice(node, driver, tree) for driver, tree in (("dra.net", nics), ("gpu.nvidia.com", gpus))]

    def is_paired(self, held: Collection[str]) -> bool:
        """Return True if the pod has the maximum number of disjoint pairs within hardware groups.

        Without NICs or without GPUs there is no pair.
        """
        gpus = collections.Counter(self.groups[name] for name in held if name.startswith("gpu-"))
        nics = collections.Counter(self.groups.get(name, "") for name in held if not name.startswith("gpu-"))
        pairs = sum(min(gpus[group], nics[group]) for group in gpus)
        return gpus.keys() == nics.keys() and pairs == min(gpus.total(), nics.total()) > 0


def list_nics(held: Iterable[str]) -> frozenset[str]:
    """Return the NICs among the devices of a pod, which are its rails."""
    return frozenset(name for name in held if not name.startswith("gpu-"))


@functools.cache
def load(name: str) -> Shape:
    """Return a shape of tests/data/claims/shapes.yaml."""
    tree = yaml.safe_load(FILE.read_text())[name]
    return Shape(
        name=name,
        title=tree["title"],
        nics=_read_devices(tree["nics"]),
        gpus=_read_devices(tree["gpus"]),
        others=tuple(
            Device(other.pop("name"), "", {key: _build_attribute(value) for key, value in other.items()})
            for other in tree["others"]
        ),
        classes=tree["classes"],
        policy=tree["policy"],
        pod_gpus=tree["podGpus"],
    )


def _read_devices(tree: Mapping[str, Any]) -> tuple[Device, ...]:
    rows = [dict(zip(tree["columns"], row, strict=True)) for row in tree["devices"]]
    return tuple(
        Device(
            row["name"],
            row["beside"],
            {
                key: _build_attribute(value)
                for key, value in (tree["common"] | row).items()
                if key not in _COLUMNS_OF_OURS
            },
        )
        for row in rows
    )


def _build_attribute(value: Any) -> Mapping[str, Any]:
    kind = {bool: "bool", int: "int", str: "string"}[type(value)]
    return {kind: value}


def _build_slice(node: str, driver: str, tree: list[dict[str, Any]]) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": tree}
    return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-{driver}"}, "spec": spec}
