"""Variables of libraries other than NCCL, by transport: NVSHMEM, UCX, Open MPI.

A rank started by torchrun loads none of these libraries. A library's variables are therefore derived only if the pod or
the policy already sets one of them. UCX_TLS and UCX_NET_DEVICES are never derived from the policy for a rank: they
would force UCX to TCP also where it carries the rank's data. Claims name the devices (injection/ucx_devices.py).
"""

from collections.abc import Iterable, Mapping

from railwright.fabric.nccl import common, values
from railwright.fabric.nccl.derivation_types import Row
from railwright.fabric.policy.model import Transport
from railwright.fabric.reasons.codes import VariableCode

_LIBRARIES: Mapping[str, str] = {  # library by the first word of a variable's name
    "NVSHMEM": "NVSHMEM",
    "UCX": "UCX",
    "OMPI": "Open MPI",
    "PRTE": "Open MPI",
}
_NO_LIBRARIES: frozenset[str] = frozenset()
OPEN_MPI = frozenset({"Open MPI"})  # a launcher always uses it
UCX_TRANSPORTS = "UCX_TLS"
# Names of transports over verbs, and their aliases (openucx/ucx, src/ucp/core/ucp_context.c, ucp_tl_aliases; `all`).
_RDMA_TRANSPORTS = frozenset(
    {
        *("all", "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5"),
        *("dc", "dc_x", "dc_mlx5", "srd", "gga", "gga_mlx5"),
    }
)
_PREFIXES = tuple((f"\n{word}_", library) for word, library in _LIBRARIES.items())

_BOOTSTRAP = Row(
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME",
    values.return_primary_interface(str),
    VariableCode.NVSHMEM_INTERFACE,
)
_ROCE = (
    Row("NVSHMEM_HCA_LIST", values.list_devices, VariableCode.NVSHMEM_DEVICES),
    Row(
        "NVSHMEM_ENABLE_NIC_PE_MAPPING",
        values.return_if_devices_known("1"),
        VariableCode.NVSHMEM_MAPPING,
    ),
    Row(
        "NVSHMEM_IB_ADDR_RANGE",
        # NVSHMEM reads the range as IPv4 unless NVSHMEM_IB_ADDR_FAMILY is set, which railwright does not derive
        lambda case: None if case.nccl.address_family == "AF_INET6" else values.return_address_range(case),
        VariableCode.NVSHMEM_ADDRESS_RANGE,
    ),
    Row(
        "NVSHMEM_IB_TRAFFIC_CLASS",
        values.return_policy_value("traffic_class"),
        VariableCode.NVSHMEM_TRAFFIC_CLASS,
    ),
    Row(
        "UCX_IB_TRAFFIC_CLASS",
        values.return_policy_value("traffic_class"),
        VariableCode.UCX_TRAFFIC_CLASS,
    ),
)
_EFA = (
    Row("NVSHMEM_REMOTE_TRANSPORT", values.return_constant("libfabric"), VariableCode.NVSHMEM_TRANSPORT),
    Row("NVSHMEM_LIBFABRIC_PROVIDER", values.return_constant("efa"), VariableCode.NVSHMEM_PROVIDER),
)
_TABLES: Mapping[Transport, tuple[Row, ...]] = {Transport.ROCE: _ROCE, Transport.EFA: _EFA}

# A variable is left out if the user has set one of these to another value. NVSHMEM reads NVSHMEM_HCA_LIST only with
# the mapping on, and an explicit mapping or a prefix replaces the list.
CONFLICTING_VARIABLES: Mapping[str, tuple[str, ...]] = {
    **common.CONFLICTING_VARIABLES,
    "NVSHMEM_HCA_LIST": ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": ("NVSHMEM_HCA_LIST", "NVSHMEM_HCA_PE_MAPPING", "NVSHMEM_HCA_PREFIX"),
    "NVSHMEM_IB_ADDR_RANGE": ("NVSHMEM_IB_GID_INDEX",),
}


def list_rows(transport: Transport) -> tuple[Row, ...]:
    """Return the rows of every library for a transport."""
    return (_BOOTSTRAP, *_TABLES.get(transport, ()), *common.LAUNCHER_ROWS)


def may_use_rdma(transports: str | None) -> bool:
    """True unless a value of UCX_TLS leaves out every RDMA transport.

    None is an unset or unknown value. UCX reads `^` before a list as "all but these", and a backslash before a name as
    "this transport only, without those it needs beside it" (openucx/ucx, src/ucp/core/ucp_context.c).
    """
    if transports is None:
        return True
    named = {name.strip().lstrip("\\").partition(":")[0] for name in transports.lower().lstrip("^").split(",")}
    if transports.startswith("^"):
        return not ("all" in named or "ib" in named or named >= {"rc", "ud", "dc"})
    return not named.isdisjoint(_RDMA_TRANSPORTS)


def detect(names: Iterable[str]) -> frozenset[str]:
    """Return the libraries to which at least one of the variables `names` belongs."""
    text = "\n" + "\n".join(names)  # one search per library is faster than a look-up per name
    libraries = [library for prefix, library in _PREFIXES if prefix in text]
    return frozenset(libraries) if libraries else _NO_LIBRARIES


def get_library(name: str) -> str:
    """Return the library of a variable of these rows. Raises KeyError for other variables."""
    return _LIBRARIES[name.partition("_")[0]]
