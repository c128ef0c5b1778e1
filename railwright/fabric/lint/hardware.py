"""Recognizes RDMA devices among extended resources by the names of published device plugins."""

import re

from railwright.fabric.policy import model as policies

# Names of the published device plugins: network-operator, k8s-rdma-shared-dev-plugin, sriov-network-device-plugin,
# aliyun/erdma, vpc.amazonaws.com/efa. Only separate words match, so that "performance" does not.
_RDMA = re.compile(
    r"(?<![a-z])(rdma|hca|roce|infiniband|ib|mlx[0-9]*|mlnx|mellanox|hostdev|sriov|vfs?|erdma|efa|pvrdma|cx[0-9]+)(nics?)?(?![a-z])"
)
_VIRTUAL = re.compile(r"(?<![a-z])(sriov|vfs?[0-9]*)(?![a-z])")
_HOST_DEVICE = re.compile(r"(?<![a-z])hostdev(?![a-z])")  # network-operator, host device network
_ONE_BY_ONE = frozenset({policies.Transport.ERDMA, policies.Transport.EFA})


def is_rdma(resource: str) -> bool:
    """True if the name of a resource is that of an RDMA device."""
    return _RDMA.search(resource.lower()) is not None


def is_virtual(resource: str) -> bool:
    """True if the name of a resource is that of a pool of virtual functions."""
    return _VIRTUAL.search(resource.lower()) is not None


def is_exclusive(resource: str) -> bool:
    """True if the name of a resource is that of a plugin that hands out RDMA devices one by one."""
    return is_virtual(resource) or _HOST_DEVICE.search(resource.lower()) is not None


def are_exclusive(transport: policies.Transport | None, resources: frozenset[str]) -> bool | None:
    """True if devices are assigned to pods one by one, so their names are not known before; None if unknown."""
    if transport in _ONE_BY_ONE or any(is_virtual(resource) for resource in resources):
        return True
    return False if resources else None
