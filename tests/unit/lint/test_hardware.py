import pytest

from railwright.fabric.lint import rule_types
from railwright.fabric.policy import model as policies


@pytest.mark.parametrize(
    "name",
    ["rdma/hca_shared_devices_a", "nvidia.com/mlx5_0", "nvidia.com/mlnx_roce", "aliyun/erdma", "vpc.amazonaws.com/efa",
     "nvidia.com/sriov-rdma-vf", "openshift.io/mellanoxnics", "nvidia.com/hostdev", "example.com/ib0", "x.y/cx7"],
)  # fmt: skip
def test_published_device_plugins_are_known_by_the_names_of_their_resources(name):
    assert rule_types.is_rdma(name)


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "example.com/performance", "example.com/library", "x.y/attribute"],
)
def test_other_resources_are_not_taken_for_rdma_devices(name):
    assert not rule_types.is_rdma(name)


@pytest.mark.parametrize(
    ("transport", "resource", "exclusive"),
    [
        ("roce", "nvidia.com/mlx5_0", False),
        ("roce", "nvidia.com/roce_vf", True),
        ("infiniband", "nvidia.com/sriov_pool", True),
        ("erdma", "aliyun/erdma", True),
        ("efa", "vpc.amazonaws.com/efa", True),
        ("roce", None, None),
    ],
)
def test_devices_are_handed_out_one_by_one_where_transport_or_name_says_so(transport, resource, exclusive):
    resources = frozenset([resource] if resource else [])
    assert rule_types.are_exclusive(policies.Transport(transport), resources) is exclusive
