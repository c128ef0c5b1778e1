"""Constants of dranet, the driver of NICs that come as claims, and of ResourceClaims."""

DRANET = "dra.net"
"""spec.driver of its slices."""
RDMA_DEVICE = "dra.net/rdmaDevice"
"""Attribute with the name of the RDMA device."""
WITHDRAWN = frozenset(
    f"dra.net/{name}"
    for name in ("ifName", "mac", "mtu", "encapsulation", "alias", "state", "type", "ipv4", "ipv6", "ebpf")
)
"""Attributes that dranet reads from the host's interface (pkg/inventory/db.go, addLinkAttributes).

They are gone while a pod holds the device, because its interface is in the pod then.
"""
MAX_DEVICES = 32
"""Devices of a claim (resource.k8s.io/v1, AllocationResultsMaxSize). The API server does not check the sum."""
