"""Simulates a node's hardware: devices, and a sysfs of RDMA devices. Standard library only.

Devices are copies of /dev/null: they can be opened and counted, and carry no traffic.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from realnode import layout, roots

GPUS = 8
GPU_FILES = {f"nvidia{index}" for index in range(GPUS)}  # in /dev
SHARES = 16  # how many pods may share an RDMA device
SYSFS = pathlib.Path("/run/railwright-sysfs")  # `class` below it is what a container gets as /sys/class
FUNCTION_SYSFS = pathlib.Path("/run/railwright-function-sysfs")  # likewise, for a container with virtual functions
_NULL = (1, 3)


def list_resources() -> list[dict[str, Any]]:
    """Return the device plugin's resources, under the names of three published deployments for the same hardware.

    Shared RDMA devices are those of 360 Smart Cloud and of vivo, as from k8s-rdma-shared-dev-plugin; each virtual
    function is a pool of its own, as from sriov-network-device-plugin.
    """
    rails = [
        {"name": name, "devices": [_share(rail, index) for index in range(SHARES)]}
        for rail in range(layout.RAILS)
        for name in _name_shares(rail)
    ]
    functions = [
        {"name": f"nvidia.com/ib{index}_sriov_vf", "devices": [_function(index)]} for index in range(layout.FUNCTIONS)
    ]
    return [*rails, *functions, _list_gpus()]


def list_soft_roce() -> list[dict[str, Any]]:
    """Return the resources of a virtual node: its kernel's shared RDMA devices, with an additional name, and GPUs."""
    rails = [
        {"name": name, "devices": [{"id": f"{rail}-{index}", "nodes": nodes} for index in range(SHARES)]}
        for rail in range(layout.RAILS)
        for nodes in [_nodes(f"infiniband/uverbs{rail}", "infiniband/rdma_cm")]
        for name in (*_name_shares(rail), name_soft_roce(rail))
    ]
    return [*rails, _list_gpus()]


def name_soft_roce(rail: int) -> str:
    """Return the name of a rail's resource that only virtual nodes offer."""
    return f"rdma/soft_roce_{rail}"


def _name_shares(rail: int) -> tuple[str, ...]:
    return (f"nvidia.com/{layout.name_device(rail)}", f"spidernet.io/shared_cx6_rail{rail}")


def _list_gpus() -> dict[str, Any]:
    devices = [{"id": f"GPU-{index}", "nodes": _nodes(f"nvidia{index}", "nvidiactl")} for index in range(GPUS)]
    return {"name": "nvidia.com/gpu", "listEnv": "NVIDIA_VISIBLE_DEVICES", "devices": devices}


def write_resources(path: pathlib.Path, resources: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the device plugin's file, which it reads again after a change."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(list(resources) or list_resources()))
    temporary.replace(path)


def _share(rail: int, index: int) -> dict[str, Any]:
    paths = (f"infiniband/uverbs{rail}", f"infiniband/umad{rail}", "infiniband/rdma_cm")
    mounts = [{"host": str(SYSFS / "class"), "container": "/sys/class"}]
    return {"id": f"{rail}-{index}", "nodes": _nodes(*paths), "mounts": mounts}


def _function(index: int) -> dict[str, Any]:
    paths = (f"infiniband/{layout.name_function_verbs(index)}", "infiniband/rdma_cm")
    mounts = [{"host": str(FUNCTION_SYSFS / "class"), "container": "/sys/class"}]
    return {"id": layout.name_pci_function(index), "nodes": _nodes(*paths), "mounts": mounts}


def _nodes(*names: str) -> list[dict[str, str]]:
    return [{"host": f"/dev/{name}", "container": f"/dev/{name}", "permissions": "rw"} for name in names]


def make_gpus() -> None:
    """Make the device files of all GPUs."""
    _make_devices(["nvidiactl", *GPU_FILES])


def make_verbs() -> None:
    """Make the device files of all rails and virtual functions."""
    names = ["infiniband/rdma_cm", *(f"infiniband/umad{rail}" for rail in range(layout.RAILS))]
    names += [f"infiniband/uverbs{index}" for index in range(layout.RAILS + layout.FUNCTIONS)]
    _make_devices(names)


def _make_devices(names: Sequence[str]) -> None:
    for name in names:
        roots.make_device(pathlib.Path("/dev") / name, *_NULL)


def make_sysfs() -> None:
    """Make the sysfs of the RDMA devices, and that of the virtual functions, whose fabric is InfiniBand.

    GIDs are written by the CNI plugin `gids`, as the kernel would.
    """
    link_interfaces(SYSFS / "class")
    for rail in range(layout.RAILS):
        make_rdma_device(SYSFS / "class", layout.name_device(rail), f"uverbs{rail}")
    link_interfaces(FUNCTION_SYSFS / "class")
    for index in range(layout.FUNCTIONS):
        device, verbs = layout.name_function_device(index), layout.name_function_verbs(index)
        make_rdma_device(FUNCTION_SYSFS / "class", device, verbs, link_layer="InfiniBand")


def link_interfaces(classes: pathlib.Path) -> None:
    """Make a new folder for a container's /sys/class, in which `net` has the container's own interfaces."""
    classes.mkdir(parents=True)
    (classes / "net").symlink_to("../devices/virtual/net")


def make_rdma_device(classes: pathlib.Path, name: str, verbs: str, *, link_layer: str = "Ethernet") -> pathlib.Path:
    """Make an RDMA device without GIDs below a folder for /sys/class; return the folder of its port."""
    device = classes / "infiniband" / name
    port = device / "ports/1"
    for table in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / table).mkdir(parents=True)
    (device / "device/infiniband_verbs" / verbs).mkdir(parents=True)
    for entry, value in (("link_layer", link_layer), ("state", "4: ACTIVE"), ("rate", "100 Gb/sec (4X EDR)")):
        (port / entry).write_text(f"{value}\n")
    owner = classes / "infiniband_verbs" / verbs
    owner.mkdir(parents=True)
    (owner / "ibdev").write_text(f"{name}\n")
    return port


def make_functions() -> None:
    """Make the PCI folders of virtual functions, for CNI plugins. `inside` makes the interfaces."""
    folder = pathlib.Path("/run/railwright-pci")
    (folder / "driver/mlx5_core").mkdir(parents=True)
    for index in range(layout.FUNCTIONS):
        function = folder / "devices" / layout.name_pci_function(index)
        (function / "net" / layout.name_function(index)).mkdir(parents=True)
        (function / "driver").symlink_to(folder / "driver/mlx5_core")
    roots.mount("--bind", folder / "devices", "/sys/bus/pci/devices")
