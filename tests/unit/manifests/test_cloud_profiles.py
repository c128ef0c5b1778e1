"""Profiles of clouds: the vendor's published job, stripped to one label, becomes the vendor's published pods."""

import re

import admitting
import msgspec
import pytest
from simulated_clouds import SHAPES

from railwright.cli.clouds import comparison, profiles

COMMON = {difference.at for difference in comparison.read_common_differences()}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.profile.name} {shape.title}")
def test_the_pods_are_the_vendors_but_for_the_differences_that_the_profile_names(shape):
    for name, replacements in shape.replacements.items():
        assert all(old in shape.profile.read_text(name) for old in replacements)
    actual = comparison.compare(shape)
    assert actual.keys() - COMMON == {difference.at for difference in shape.differences}, actual


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_the_job_has_one_key_of_railwright_and_no_setting_of_nccl(profile):
    text = (admitting.PROFILES / profile.name / "job.yaml").read_text()
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
        ("gke-a3-mega", "tcpgpudmarxd-dev:v1.0.21", "tcpgpudmarxd-dev:v1", "pod tcpxo-daemon image"),
        ("digitalocean", "roce-net-fabric7", "roce-net-fabric8", "pod networks"),
        ("oke-host-network", "hostNetwork: true", "hostNetwork: false", "worker hostNetwork"),
        ("gke-a3-ultra-dranet", "count: 8", "count: 4", "pod claims mrdma.google.com"),
        ("eks-efa-claims", "pcieRoot", "numaNode", "worker claims by resource.kubernetes.io/numaNode"),
        ("crusoe-h100", "/etc/crusoe/nccl_topo", "/etc/topo", "worker /opt/nccl_topo path"),
    ],
)
def test_another_value_of_the_vendors_pods_is_a_difference(name, old, new, path):
    shape = next(shape for shape in SHAPES if shape.profile.name == name)
    assert old in shape.read_text("vendor.yaml")
    changed = msgspec.structs.replace(shape, replacements={"vendor.yaml": {old: new}, "job.yaml": {}})
    actual = comparison.compare(changed).keys() - comparison.compare(shape).keys()
    assert path in actual
