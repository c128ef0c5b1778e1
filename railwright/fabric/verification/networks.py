"""Classifies NCCL's network and device names: RDMA or TCP, and the common name of the transport.

An unknown plugin counts as RDMA only if it lists devices.
"""

import re
from collections.abc import Collection, Iterable

from railwright.fabric.verification import log_types

# FastSocket, FasTrak and GPUDirectTCPX are Google's and run over TCP.
_TCP = re.compile(r"^(?:Socket|FastSocket|FasTrak|GPUDirectTCPX)", re.IGNORECASE)
_RDMA = re.compile(r"^(?:IB$|IBext|NCCL RDMA Plugin|gIB|UCX|AWS Libfabric|Libfabric|eRDMA|SHARP)", re.IGNORECASE)
_LIBFABRIC = re.compile(r"libfabric", re.IGNORECASE)
_TCP_PROVIDERS = ("tcp", "sockets", "udp", "net")  # of libfabric; also as `tcp;ofi_rxm`
_DEVICES = (("erdma", "eRDMA"), ("vmw_pvrdma", "PVRDMA"))  # by prefix; their link layer would say RoCE
_LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}
_PROVIDERS = {"efa": "EFA", "cxi": "Slingshot"}
_POLICY = {  # transport in the policy -> names in the log; udev renames PVRDMA devices
    "roce": ("RoCE",),
    "infiniband": ("InfiniBand",),
    "erdma": ("eRDMA",),
    "pvrdma": ("PVRDMA", "RoCE", "InfiniBand"),
    "efa": ("EFA",),
}


def is_tcp(name: str, providers: Iterable[log_types.Provider]) -> bool:
    """True for sockets, and for libfabric over sockets."""
    if _LIBFABRIC.search(name):
        return any(provider.name.partition(";")[0].removeprefix("ofi_") in _TCP_PROVIDERS for provider in providers)
    return bool(_TCP.match(name))


def is_rdma(name: str, hcas: Collection[log_types.Hca]) -> bool:
    """True if the network is known to be RDMA or lists RDMA devices."""
    return not _TCP.match(name) and (bool(_RDMA.match(name)) or bool(hcas))


def describe_transport(
    names: Iterable[str], hcas: Iterable[log_types.Hca], providers: Iterable[log_types.Provider]
) -> str:
    """Return the common name of the transport, such as `RoCE` or `InfiniBand by plugin IBext_v8`."""
    by_provider = {_PROVIDERS.get(provider.name, provider.name) for provider in providers}
    kinds = sorted({_find_device_transport(hca) for hca in hcas} or by_provider)
    plugins = [name for name in sorted(set(names)) if name != "IB"]
    if not plugins:
        return "+".join(kinds) or "IB"
    return f"{'+'.join(kinds)} by plugin {', '.join(plugins)}" if kinds else f"plugin {', '.join(plugins)}"


def matches_policy(expected: str, observed: str) -> bool:
    """True if the observed transport is that of the policy, or is unknown. `observed` is from describe_transport."""
    kinds = observed.partition(" by plugin ")[0]
    is_unknown = not expected or kinds.startswith("plugin ") or kinds == "IB"
    return is_unknown or set(kinds.split("+")) <= set(_POLICY[expected])


def _find_device_transport(hca: log_types.Hca) -> str:
    return next((kind for prefix, kind in _DEVICES if hca.name.startswith(prefix)), _LINKS[hca.link])
