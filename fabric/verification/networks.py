"""What NCCL's names of networks and devices mean: RDMA or TCP, and what people call it.

Owns the table. An unknown plugin is no RDMA until it lists devices.
"""

import re
from collections.abc import Collection, Iterable

from fabric.verification import model

_TCP = re.compile(r"^(?:Socket|FastSocket|FasTrak|GPUDirectTCPX)", re.IGNORECASE)  # the last three: Google's, over TCP
_RDMA = re.compile(r"^(?:IB$|IBext|NCCL RDMA Plugin|gIB|UCX|AWS Libfabric|Libfabric|eRDMA|SHARP)", re.IGNORECASE)
_LIBFABRIC = re.compile(r"libfabric", re.IGNORECASE)
_TCP_PROVIDERS = ("tcp", "sockets", "udp", "net")  # of libfabric; also as `tcp;ofi_rxm`
_DEVICES = (("erdma", "eRDMA"), ("vmw_pvrdma", "PVRDMA"))  # by prefix: their link layer says RoCE or less
_LINKS = {"IB": "InfiniBand", "RoCE": "RoCE"}
_PROVIDERS = {"efa": "EFA", "cxi": "Slingshot"}
_POLICY = {  # transport of the policy -> what may be seen; PVRDMA's devices are renamed by udev
    "roce": ("RoCE",),
    "infiniband": ("InfiniBand",),
    "erdma": ("eRDMA",),
    "pvrdma": ("PVRDMA", "RoCE", "InfiniBand"),
    "efa": ("EFA",),
}


def is_tcp(name: str, providers: Iterable[model.Provider]) -> bool:
    """True for sockets, and for libfabric over them."""
    if _LIBFABRIC.search(name):
        return any(each.name.partition(";")[0].removeprefix("ofi_") in _TCP_PROVIDERS for each in providers)
    return bool(_TCP.match(name))


def is_rdma(name: str, hcas: Collection[model.Hca]) -> bool:
    """True where a network is known to be RDMA, or lists its devices."""
    return not _TCP.match(name) and (bool(_RDMA.match(name)) or bool(hcas))


def transport(names: Iterable[str], hcas: Iterable[model.Hca], providers: Iterable[model.Provider]) -> str:
    """What people call it, such as `RoCE` or `InfiniBand by plugin IBext_v8`."""
    kinds = sorted({_kind(each) for each in hcas} or {_PROVIDERS.get(each.name, each.name) for each in providers})
    own = [each for each in sorted(set(names)) if each != "IB"]
    if not own:
        return "+".join(kinds) or "IB"
    return f"{'+'.join(kinds)} by plugin {', '.join(own)}" if kinds else f"plugin {', '.join(own)}"


def fits(wanted: str, seen: str) -> bool:
    """Whether what was seen is the transport of the policy. A plugin that tells no kind fits all."""
    kinds = seen.partition(" by plugin ")[0]
    return not wanted or kinds.startswith("plugin ") or kinds == "IB" or set(kinds.split("+")) <= set(_POLICY[wanted])


def _kind(hca: model.Hca) -> str:
    return next((kind for prefix, kind in _DEVICES if hca.name.startswith(prefix)), _LINKS[hca.link])
