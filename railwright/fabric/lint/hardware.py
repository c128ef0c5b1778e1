"""What the ranks' container was given: RDMA devices among its extended resources.

Owns the guess by name where no policy says which resources are rails. Refuses to know what a rule makes of it.
"""

import functools
import re
from collections.abc import Mapping

from railwright.fabric.lint import model
from railwright.fabric.policy import model as policies

# Names of the published device plugins: network-operator, k8s-rdma-shared-dev-plugin, sriov-network-device-plugin,
# aliyun/erdma, vpc.amazonaws.com/efa; a word of its own or with a number, so that "performance" is none.
_RDMA = re.compile(
    r"(?<![a-z])(rdma|hca|roce|infiniband|ib|mlx[0-9]*|mlnx|mellanox|hostdev|sriov|vfs?|erdma|efa|pvrdma|cx[0-9]+)(nics?)?(?![a-z])"
)
_VIRTUAL = re.compile(r"(?<![a-z])(sriov|vfs?[0-9]*)(?![a-z])")
_ONE_BY_ONE = frozenset({policies.Transport.ERDMA, policies.Transport.EFA})


def rdma(ranks: model.Ranks) -> Mapping[str, int]:
    """Resource -> amount of the RDMA devices the container requests: those of the fabric's rails, and by their name."""
    fabric = ranks.site.fabric
    rails = {rail.resource for rail in fabric.rails} if fabric else set()
    return {name: amount for name, amount in ranks.devices.items() if name in rails or is_rdma(name)}


@functools.lru_cache(maxsize=256)
def is_rdma(resource: str) -> bool:
    """True for a resource whose name says that it is an RDMA device."""
    return _RDMA.search(resource.lower()) is not None


def is_virtual(resource: str) -> bool:
    """True for a resource whose name says that it is a pool of virtual functions."""
    return _VIRTUAL.search(resource.lower()) is not None


def exclusive(transport: policies.Transport | None, resources: frozenset[str]) -> bool | None:
    """True where devices are handed out one by one, under names nobody knows before; None where nothing is known."""
    if transport in _ONE_BY_ONE or any(is_virtual(resource) for resource in resources):
        return True
    return False if resources else None
