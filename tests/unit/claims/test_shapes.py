"""How the tests of claims find devices that are no pair."""

import pytest
import shapes


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
