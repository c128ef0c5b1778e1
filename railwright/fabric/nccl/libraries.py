"""Variables of libraries beside NCCL, by transport: NVSHMEM, UCX, Open MPI.

Owns which library a variable's name shows, and what goes with it. A rank started by torchrun loads none of these, so
their variables are derived only where one of the library's own is set already, by the pod or by the policy. Never
UCX_TLS or UCX_NET_DEVICES for a rank: held to TCP, a rank whose data UCX carries would crawl.
"""

from collections.abc import Iterable, Mapping

from railwright.fabric.nccl import common, values
from railwright.fabric.nccl.model import Row
from railwright.fabric.policy.model import Transport

_LIBRARIES: Mapping[str, str] = {  # by the first word of a variable's name
    "NVSHMEM": "NVSHMEM",
    "UCX": "UCX",
    "OMPI": "Open MPI",
    "PRTE": "Open MPI",
}
_NONE: frozenset[str] = frozenset()
OPEN_MPI = frozenset({"Open MPI"})  # what a launcher shows by being one
_SHOWING = tuple((f"\n{word}_", library) for word, library in _LIBRARIES.items())
_NVSHMEM_GUIDE = "NVSHMEM documentation, environment variables"

_BOOTSTRAP = Row(
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
    values.in_pod(str),
    "keeps NVSHMEM's bootstrap off the rails",
    _NVSHMEM_GUIDE,
)
_ROCE = (
    Row("NVSHMEM_HCA_LIST", values.plain_devices, "exactly the devices of the rails", _NVSHMEM_GUIDE),
    Row(
        "NVSHMEM_ENABLE_NIC_PE_MAPPING",
        values.with_devices("1"),
        "without it NVSHMEM ignores NVSHMEM_HCA_LIST",
        _NVSHMEM_GUIDE,
    ),
    Row(
        "NVSHMEM_IB_ADDR_RANGE",
        # its family is IPv4 unless a variable says otherwise that nccl.md section 2 does not have
        lambda case: None if case.nccl.address_family == "AF_INET6" else case.nccl.address_range,
        "tells the pod's addresses on the rails from the host's",
        _NVSHMEM_GUIDE,
    ),
    Row("NVSHMEM_IB_TRAFFIC_CLASS", values.fact("traffic_class"), "the fabric's lossless class", _NVSHMEM_GUIDE),
    Row(
        "UCX_IB_TRAFFIC_CLASS",
        values.fact("traffic_class"),
        "the fabric's lossless class, where UCX carries data",
        "UCX documentation, ucx_info -f",
    ),
)
_EFA = (
    Row("NVSHMEM_REMOTE_TRANSPORT", values.constant("libfabric"), "EFA speaks libfabric, not verbs", _NVSHMEM_GUIDE),
    Row("NVSHMEM_LIBFABRIC_PROVIDER", values.constant("efa"), "libfabric's provider for EFA", _NVSHMEM_GUIDE),
)
_OF_TRANSPORT: Mapping[Transport, tuple[Row, ...]] = {Transport.ROCE: _ROCE, Transport.EFA: _EFA}

# A variable is left out where the user has set one of its twins to something else. NVSHMEM reads its list only with the
# mapping on, and takes an explicit mapping or a prefix instead of it.
TWINS: Mapping[str, tuple[str, ...]] = {
    **common.TWINS,
    "NVSHMEM_HCA_LIST": ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": ("NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_IB_ADDR_RANGE": ("NVSHMEM_IB_GID_INDEX",),
}


def rows(transport: Transport) -> tuple[Row, ...]:
    """The rows of every library on a transport."""
    return (_BOOTSTRAP, *_OF_TRANSPORT.get(transport, ()), *common.LAUNCHER_ROWS)


def shown(names: Iterable[str]) -> frozenset[str]:
    """The libraries that some of these variables belong to."""
    text = "\n" + "\n".join(names)  # one search a library is faster than one look at each name
    found = [library for start, library in _SHOWING if start in text]
    return frozenset(found) if found else _NONE


def library_of(name: str) -> str:
    """The library of a variable of these rows."""
    return _LIBRARIES[name.partition("_")[0]]
