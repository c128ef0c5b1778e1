"""Derives the environment of a fabric's ranks from the policy. Each variable has a reason.

The table has a row for each variable of a transport. Its order is that of the environment: what every fabric has, what
a transport has, what other libraries have. The policy's `env`, and the way the variables reach a container, are those
of `fabric/injection`.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from railwright.fabric.policy.model import Fabric, Nccl, Rail, Transport
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import VariableCode


class Variable(msgspec.Struct, frozen=True):
    """A variable with its reason."""

    name: str
    value: str
    reason: reason.Reason


class Case(msgspec.Struct, frozen=True):
    """Input of the derivation for a rank.

    `devices` are the names of the rails' RDMA devices. It is None if the policy does not name them or they differ
    between nodes. `is_foreign`: the rank's network namespace is not the one that the policy describes. That is the
    pod's own, or the node's if the fabric sets hostNetwork.
    """

    fabric: Fabric
    rails: tuple[Rail, ...]
    devices: tuple[str, ...] | None
    primary_interface: str
    is_foreign: bool
    topology_file: str | None = None  # of the node's shape; "" if it is unknown, None if the fabric's counts

    @property
    def nccl(self) -> Nccl:
        """The `nccl` section of the fabric."""
        return self.fabric.nccl


Value = Callable[[Case], str | None]


class Row(msgspec.Struct, frozen=True):
    """A row of the table. `value` returns the variable's value, or None to leave the variable out.

    The code has the reason and the source of the rule.
    """

    name: str
    value: Value
    code: VariableCode
    transports: frozenset[Transport] = frozenset(Transport)


# --- values -----------------------------------------------------------------------------------------------


def _set(text: str) -> Value:
    return lambda _: text


def _read(key: str, default: str | None = None) -> Value:
    """Return a function that gives the policy's `nccl` key, or `default` if it is unset.

    Booleans become 0 and 1, because NCCL does not read true and false (NVIDIA/nccl src/misc/param.cc).
    """

    def read(case: Case) -> str | None:
        setting = getattr(case.nccl, key)
        if setting is None:
            return default
        return str(int(setting)) if isinstance(setting, bool) else str(setting)

    return read


def _set_if(key: str, text: str) -> Value:
    """Return a function that gives `text` if the policy's boolean `nccl` key is true."""
    return lambda case: text if getattr(case.nccl, key) else None


def _set_with_nvlink(*, required: bool) -> Value:
    """Return a function that gives 1 if the nodes have NVLink domains; with `required`, only if these must work."""
    return lambda case: "1" if (nvlink := case.fabric.nvlink) and (nvlink.required or not required) else None


def _name_interface(mark: str = "") -> Value:
    """Return a function that gives the primary interface's name after `mark`.

    It gives None in a foreign network namespace, where the interface has another name.
    """
    return lambda case: None if case.is_foreign else f"{mark}{case.primary_interface}"


def _read_address_range(case: Case) -> str | None:
    """Return the range of the rails' addresses; None in a foreign network namespace, unless it has those addresses."""
    return case.nccl.address_range if not case.is_foreign or case.nccl.address_range_includes_host else None


def _require(network: str = "") -> Value:
    """Return a function that gives the plugin's network, otherwise `network`, if TCP is forbidden."""
    return lambda case: (case.nccl.plugin.network or network or None) if case.nccl.forbid_tcp_fallback else None


def _read_topology_file(case: Case) -> str | None:
    return (case.nccl.topology_file if case.topology_file is None else case.topology_file) or None


def _list_devices(case: Case) -> str | None:
    """Return the rails' device names as a comma-separated list, or None if they are unknown."""
    return ",".join(dict.fromkeys(case.devices)) if case.devices else None


def _list_ports(case: Case) -> str | None:
    """Return port 1 of each device, as UCX names it; None if claims name the devices."""
    return None if case.fabric.claims or not case.devices else format_ucx_devices(case.devices)


def format_ucx_devices(devices: Iterable[str]) -> str:
    """Return the first port of each device, as UCX names it (UCX documentation, UCX_NET_DEVICES)."""
    return ",".join(f"{device}:1" for device in dict.fromkeys(devices))


def _list_exactly(case: Case) -> str | None:
    """Return the list after '=', because NCCL reads other names as prefixes: mlx5_1 would also select mlx5_10."""
    return f"={devices}" if (devices := _list_devices(case)) else None


# --- the table --------------------------------------------------------------------------------------------

_ROCE, _EFA, _ERDMA = (frozenset({name}) for name in (Transport.ROCE, Transport.EFA, Transport.ERDMA))
_PVRDMA, _PLUGIN, _TCP = (frozenset({name}) for name in (Transport.PVRDMA, Transport.PLUGIN, Transport.TCP))
# GID index, traffic class and addresses have no effect on native InfiniBand.
_NATIVE = _ROCE | {Transport.INFINIBAND}
# Alibaba documents no traffic class, service level or adaptive routing for eRDMA.
_TUNED = _NATIVE | _ERDMA
# VMware documents no NCCL settings for PVRDMA; its rows follow from the limits of the driver.
_VERBS = _TUNED | _PVRDMA
_WITH_GIDS = _ROCE | _ERDMA | _PVRDMA
# The EFA plugin sets its own defaults and does not read NCCL_IB_* variables.
_WITH_RAILS = _VERBS | _EFA | _PLUGIN

_ROWS = (
    Row("NCCL_SOCKET_IFNAME", _name_interface("="), VariableCode.BOOTSTRAP_INTERFACE),
    Row("GLOO_SOCKET_IFNAME", _name_interface(), VariableCode.GLOO_INTERFACE),
    Row("TP_SOCKET_IFNAME", _name_interface(), VariableCode.TENSOR_PIPE_INTERFACE),
    Row("NCCL_DEBUG", _read("debug"), VariableCode.LOG_LEVEL),
    Row("NCCL_CUMEM_ENABLE", _set_with_nvlink(required=False), VariableCode.NVLINK_MEMORY, _WITH_RAILS),
    Row("NCCL_MNNVL_ENABLE", _set_with_nvlink(required=True), VariableCode.NVLINK_REQUIRED, _WITH_RAILS),
    Row("NCCL_NET", _require("IB"), VariableCode.TCP_FORBIDDEN, _VERBS),
    Row("NCCL_NET", _require("AWS Libfabric"), VariableCode.EFA_PLUGIN_REQUIRED, _EFA),
    Row("NCCL_NET", _require(), VariableCode.TCP_FORBIDDEN, _PLUGIN),
    Row("NCCL_NET_PLUGIN", lambda case: case.nccl.plugin.library, VariableCode.PLUGIN_OF_FABRIC, _WITH_RAILS - _ERDMA),
    Row("NCCL_NET", _set("Socket"), VariableCode.SOCKETS_ONLY, _TCP),
    Row("NCCL_NET_PLUGIN", _set("none"), VariableCode.NETWORK_PLUGIN_DISABLED, _ERDMA),
    Row("NCCL_NET_PLUGIN", _set("none"), VariableCode.NO_NETWORK_PLUGIN, _TCP),
    Row("NCCL_IB_DISABLE", _set("1"), VariableCode.VERBS_DISABLED, _TCP),
    Row("NCCL_IB_HCA", _list_exactly, VariableCode.RAIL_DEVICES, _VERBS - _ERDMA),
    Row("NCCL_IB_HCA", lambda case: _list_exactly(case) or "erdma", VariableCode.ERDMA_DEVICES, _ERDMA),
    Row("NCCL_IB_GID_INDEX", _read("gid_index"), VariableCode.GID_INDEX, _WITH_GIDS),
    Row("NCCL_IB_ADDR_FAMILY", _read("address_family"), VariableCode.ADDRESS_FAMILY, _WITH_GIDS),
    Row("NCCL_IB_ADDR_RANGE", _read_address_range, VariableCode.ADDRESS_RANGE, _WITH_GIDS),
    Row("NCCL_IB_TC", _read("traffic_class"), VariableCode.TRAFFIC_CLASS, _ROCE),
    Row("NCCL_IB_FIFO_TC", _read("fifo_traffic_class"), VariableCode.CONTROL_TRAFFIC_CLASS, _ROCE),
    Row("NCCL_IB_SL", _read("service_level"), VariableCode.SERVICE_LEVEL, _NATIVE),
    Row("NCCL_CROSS_NIC", _set_if("rail_only", "0"), VariableCode.RAILS_ISOLATED, _TUNED),
    Row("NCCL_IB_QPS_PER_CONNECTION", _read("qps_per_connection"), VariableCode.QUEUE_PAIRS, _TUNED),
    Row("NCCL_IB_ADAPTIVE_ROUTING", _read("adaptive_routing"), VariableCode.ADAPTIVE_ROUTING, _NATIVE),
    Row("NCCL_IB_PCI_RELAXED_ORDERING", _set("0"), VariableCode.RELAXED_ORDERING_ABSENT, _PVRDMA),
    Row("NCCL_IB_TIMEOUT", _read("timeout"), VariableCode.TIMEOUT, _VERBS),
    Row("NCCL_IB_RETRY_CNT", _read("retry_count"), VariableCode.RETRY_COUNT, _VERBS),
    Row("NCCL_NET_GDR_LEVEL", _read("gdr_level"), VariableCode.GPU_DIRECT_REACH, _TUNED),
    Row("NCCL_NET_GDR_LEVEL", _read("gdr_level", "LOC"), VariableCode.GPU_DIRECT_ABSENT, _PVRDMA),
    Row("NCCL_IB_MERGE_VFS", _read("merge_vfs"), VariableCode.FUNCTIONS_MERGED, _NATIVE),
    Row("NCCL_TOPO_FILE", _read_topology_file, VariableCode.TOPOLOGY_FILE, _WITH_RAILS),
)

_LAUNCHER_ROWS = (
    Row("OMPI_MCA_oob_tcp_if_include", _name_interface(), VariableCode.OPEN_MPI_CONTROL_INTERFACE),
    Row("OMPI_MCA_btl_tcp_if_include", _name_interface(), VariableCode.OPEN_MPI_TCP_INTERFACE),
    Row("PRTE_MCA_prte_if_include", _name_interface(), VariableCode.PRTE_INTERFACE),
)

_LIBRARY_ROWS = (
    Row("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", _name_interface(), VariableCode.NVSHMEM_INTERFACE),
    Row("NVSHMEM_HCA_LIST", _list_devices, VariableCode.NVSHMEM_DEVICES, _ROCE),
    Row(
        "NVSHMEM_ENABLE_NIC_PE_MAPPING",
        lambda case: "1" if case.devices else None,
        VariableCode.NVSHMEM_MAPPING,
        _ROCE,
    ),
    Row(
        "NVSHMEM_IB_ADDR_RANGE",
        # NVSHMEM reads the range as IPv4 unless NVSHMEM_IB_ADDR_FAMILY is set, which railwright does not derive
        lambda case: None if case.nccl.address_family == "AF_INET6" else _read_address_range(case),
        VariableCode.NVSHMEM_ADDRESS_RANGE,
        _ROCE,
    ),
    Row("NVSHMEM_IB_TRAFFIC_CLASS", _read("traffic_class"), VariableCode.NVSHMEM_TRAFFIC_CLASS, _ROCE),
    Row("UCX_IB_TRAFFIC_CLASS", _read("traffic_class"), VariableCode.UCX_TRAFFIC_CLASS, _ROCE),
    Row("UCX_NET_DEVICES", _list_ports, VariableCode.NIXL_DEVICES, _NATIVE),
    Row("NVSHMEM_REMOTE_TRANSPORT", _set("libfabric"), VariableCode.NVSHMEM_TRANSPORT, _EFA),
    Row("NVSHMEM_LIBFABRIC_PROVIDER", _set("efa"), VariableCode.NVSHMEM_PROVIDER, _EFA),
    *_LAUNCHER_ROWS,
)


# --- the derivation ---------------------------------------------------------------------------------------


def derive(case: Case) -> tuple[Variable, ...]:
    """Return the variables of a rank. No variable lists devices that are unknown or differ between nodes."""
    return _evaluate(_ROWS, case)


def derive_library_variables(case: Case) -> tuple[Variable, ...]:
    """Return the variables of libraries other than NCCL. The caller keeps those of libraries that the rank uses."""
    return _evaluate(_LIBRARY_ROWS, case)


def derive_launcher_settings(fabric: Fabric, primary_interface: str, *, is_foreign: bool) -> tuple[Variable, ...]:
    """Return the variables that keep mpirun's own traffic on a launcher off the rails."""
    return _evaluate(_LAUNCHER_ROWS, Case(fabric, (), None, primary_interface, is_foreign))


def _evaluate(rows: Sequence[Row], case: Case) -> tuple[Variable, ...]:
    if not case.nccl.derive:
        return ()
    values = [
        (row, row.value(case))
        for row in rows
        if case.fabric.transport in row.transports and not case.nccl.is_of_vendor(row.name)
    ]
    return tuple([Variable(row.name, value, reason.make(row.code)) for row, value in values if value is not None])
