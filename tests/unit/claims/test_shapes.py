"""The node shapes that the claims' tests use, and how they find devices that are no pair."""

import pytest
import shapes
from devices import read_slices

from railwright.fabric.claims import slices

DEVICES = {
    "eks-p4d": (8, 4),
    "eks-p5": (8, 32),
    "gke-a3-ultra": (8, 8),
    "h100-8x8": (8, 8),
    "aks-gb300": (4, 4),
    "oke-gb200": (4, 8),
}


@pytest.mark.parametrize("name", shapes.NAMES)
def test_each_shape_has_the_devices_of_its_machine(name):
    shape = shapes.load(name)
    assert (len(shape.gpus), len(shape.nics)) == DEVICES[name]
    assert {gpu.beside for gpu in shape.gpus} == {nic.beside for nic in shape.nics}
    index = slices.SliceIndex()
    index.replace(read_slices(*shape.build_slices("node")))
    assert len(index.ids_by_node["node"]) == sum(DEVICES[name]) + len(shape.others)


@pytest.mark.parametrize(
    ("held", "paired"),
    [
        (("gpu-0", "pci-0000-10-1b-0"), True),
        (("gpu-0", "pci-0000-20-1b-0"), False),
        (("gpu-0", "gpu-2", "pci-0000-10-1b-0", "pci-0000-20-1b-0"), True),
        (("gpu-0", "gpu-1", "pci-0000-10-1b-0", "pci-0000-20-1b-0"), False),
        (("gpu-0", "gpu-1", "pci-0000-10-1b-0"), True),
        (("gpu-0", "pci-0000-10-1b-0", "pci-0000-20-1b-0"), False),
        (("gpu-0",), False),
        ((), False),
    ],
)
def test_pairs_are_true_within_one_hardware_group(held, paired):
    assert shapes.load("eks-p4d").is_paired(held) is paired


def test_equal_attributes_of_devices_are_one_object():
    shape = shapes.load("h100-8x8")
    index = slices.SliceIndex()
    trees = [*shape.build_slices("a"), *shape.build_slices("b")]
    index.replace([index.share(offered) for offered in read_slices(*trees)])
    vendors = {
        id(device.device.attributes["dra.net/pciVendor"])
        for device in index.devices.values()
        if "dra.net/pciVendor" in device.device.attributes
    }
    assert len(vendors) == 1
