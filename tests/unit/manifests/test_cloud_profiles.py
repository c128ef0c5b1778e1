"""Profiles of clouds: the vendor's published job, stripped to one label, becomes the vendor's published pods."""

import re

import comparison
import msgspec
import pytest

from railwright.cli.clouds import profiles

SHAPES = comparison.list_shapes()
COMMON = {difference.at for difference in comparison.read_common_differences()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_pods_equal_the_vendors_except_for_the_named_differences(shape):
    for name, replacements in shape.replacements.items():
        text = (comparison.FOLDER / shape.profile.name / name).read_text()
        assert all(old in text for old in replacements)
    actual = comparison.compare(shape)
    assert actual.keys() - COMMON == {difference.at for difference in shape.differences}, actual


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_the_job_has_one_key_of_railwright_and_no_setting_of_nccl(profile):
    text = (comparison.FOLDER / profile.name / "job.yaml").read_text()
    assert text.count("railwright.io/") == 1
    assert not re.findall(r"NCCL_(?!LIB_DIR)\w+", text)  # NCCL_LIB_DIR is an argument of a script of Google's


@pytest.mark.parametrize(
    ("name", "old", "new", "path"),
    [
        ("eks-efa", "efa: 32", "efa: 31", "worker vpc.amazonaws.com/efa"),
        ("aks-h100", "IPC_LOCK", "SYS_NICE", "worker SYS_NICE"),
        ("aks-h100", "-x NCCL_IB_DISABLE=0", "-x NCCL_IB_DISABLE=1", "ranks NCCL_IB_DISABLE"),
        ("gke-a3-ultra-networks", "rdma-7", "rdma-8", "pod annotation networking.gke.io/interfaces"),
        ("gke-a3-ultra-networks", "/usr/local/gib/scripts", "/gib", "pod script /gib/set_nccl_env.sh"),
        ("oke-host-network", "hostNetwork: true", "hostNetwork: false", "worker hostNetwork"),
        ("gke-a3-ultra-dranet", "count: 8", "count: 4", "pod claims mrdma.google.com"),
        ("oke-h100-vf", "rdma-vf,rdma-vf,", "rdma-vf,other,", "worker networks"),
        ("gke-a3-ultra-networks", "/home/kubernetes/bin/gib", "/opt/gib", "pod /usr/local/gib path"),
        ("eks-efa-claims", "pcieRoot", "numaNode", "worker claims by resource.kubernetes.io/numaNode"),
    ],
)
def test_another_value_of_the_vendors_pods_is_a_difference(name, old, new, path):
    shape = next(shape for shape in SHAPES if shape.profile.name == name)
    assert old in shape.read_text("vendor.yaml")
    changed = msgspec.structs.replace(shape, replacements={"vendor.yaml": {old: new}, "job.yaml": {}})
    actual = comparison.compare(changed).keys() - comparison.compare(shape).keys()
    assert path in actual
