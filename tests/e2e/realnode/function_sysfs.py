"""The part of /sys that shows a node's virtual functions as PCI and RDMA devices, made of files.

No test machine has such NICs. dranet reads there which interface and which RDMA device belong to a PCI function; the
interfaces themselves are real.
"""

import pathlib
from collections.abc import Mapping

from realnode import hardware, layout

_MODALIAS = "pci:v000015B3d0000101Esv000015B3sd00000000bc02sc00i00\n"  # a ConnectX function; class 02 is a network card
_DRIVER = "mlx5_core"


def make(folder: pathlib.Path) -> None:
    """Make the new folder `folder`, to be mounted at /sys."""
    for name in (f"bus/pci/drivers/{_DRIVER}", "bus/pci/devices", "class/net", "class/infiniband"):
        (folder / name).mkdir(parents=True)
    for index in range(layout.FUNCTIONS):
        _make_function(folder, index)


def make_class(folder: pathlib.Path, addresses: Mapping[int, str]) -> None:
    """Make the new folder `folder`, to be mounted at a rank's /sys/class, with functions as net1, net2 and so on.

    `addresses` maps each function, in the order of the interfaces, to the IPv4 address of its interface.
    """
    hardware.link_interfaces(folder)
    for rail, (index, address) in enumerate(addresses.items(), 1):
        verbs = layout.name_function_verbs(index)
        port = hardware.make_rdma_device(folder, layout.name_function_device(index), verbs)
        for name, value in (
            ("gids", f"::ffff:{address}"),
            ("gid_attrs/types", "RoCE v2"),
            ("gid_attrs/ndevs", f"net{rail}"),
        ):
            (port / name / "0").write_text(f"{value}\n")


def name_root(index: int) -> str:
    """Return the name of a virtual function's PCIe root; each function has its own."""
    return f"pci{layout.name_pci_function(index)[:7]}"


def _make_function(folder: pathlib.Path, index: int) -> None:
    address = layout.name_pci_function(index)
    interface, rdma_device = layout.name_function(index), layout.name_function_device(index)
    path = f"devices/{name_root(index)}/{address}"
    function = folder / path
    (function / "net" / interface).mkdir(parents=True)
    (function / "modalias").write_text(_MODALIAS)
    (function / "driver").symlink_to(f"../../../bus/pci/drivers/{_DRIVER}")
    (function / "net" / interface / "device").symlink_to("../..")
    (folder / "bus/pci/devices" / address).symlink_to(f"../../../{path}")
    (folder / "class/net" / interface).symlink_to(f"../../{path}/net/{interface}")
    (folder / "class/infiniband" / rdma_device).symlink_to(f"../../{path}/infiniband/{rdma_device}")
    netdevs = function / "infiniband" / rdma_device / "ports/1/gid_attrs/ndevs"
    netdevs.mkdir(parents=True)
    (function / "infiniband" / rdma_device / "device").symlink_to("../..")
    (netdevs / "0").write_text(f"{interface}\n")
    verbs = folder / "class/infiniband_verbs" / layout.name_function_verbs(index)
    verbs.mkdir(parents=True)
    (verbs / "ibdev").write_text(f"{rdma_device}\n")
