"""Derives the environment of a fabric's ranks from the policy. Each variable has a reason.

The tables have the variables in the order of the environment: those of every fabric, of single transports, of other
libraries. `fabric/injection` adds the policy's `env` and delivers the variables.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric.policy.model import Fabric, Nccl, Transport
from railwright.fabric.reasons.codes import VariableCode


class Variable(msgspec.Struct, frozen=True):
    """A variable of the environment, with the code of its reason."""

    name: str
    value: str
    code: VariableCode


class RankFacts(msgspec.Struct, frozen=True):
    """The facts about a rank from which its variables are derived.

    `devices` are the names of the rails' RDMA devices; None if the policy does not name them or they differ between
    nodes. The policy describes the network namespace of the pod, or that of the node if the fabric sets hostNetwork;
    `is_foreign`: the rank runs in the other namespace. `has_interface`: the pod has the primary interface.
    """

    fabric: Fabric
    devices: tuple[str, ...] | None
    is_foreign: bool
    has_interface: bool = True

    @property
    def nccl(self) -> Nccl:
        """The `nccl` section of the fabric."""
        return self.fabric.nccl


Value = Callable[[RankFacts], str | None]


class VariableRule(msgspec.Struct, frozen=True):
    """The rule for one variable. `value` returns its value, or None to leave the variable out.

    `code` stands for the reason, with the source of the rule.
    """

    name: str
    value: Value
    code: VariableCode
    transports: frozenset[Transport] = frozenset(Transport)


# --- values -----------------------------------------------------------------------------------------------


def _return_constant(text: str) -> Value:
    return lambda _: text


def _read_key(key: str) -> Value:
    """Return a function that reads a key of the policy's `nccl` section."""

    def read_key(rank: RankFacts) -> str | None:
        setting = getattr(rank.nccl, key)
        return None if setting is None else str(setting)

    return read_key


def _enable_with_nvlink(rank: RankFacts) -> str | None:
    """Return 1 if the nodes of the fabric have NVLink domains, otherwise None."""
    return None if rank.fabric.nvlink_segment is None else "1"


def _name_interface(mark: str = "") -> Value:
    """Return a function that returns `mark` and the primary interface, None if the rank does not have the interface."""
    return lambda rank: None if rank.is_foreign or not rank.has_interface else f"{mark}{rank.fabric.primary_interface}"


def _read_address_range(rank: RankFacts) -> str | None:
    """Return the address range of the rails; None if the rank runs in another network namespace."""
    return None if rank.is_foreign else rank.nccl.address_range


def _read_address_family(rank: RankFacts) -> str | None:
    """Return the address family of the rails if it is not IPv4, NCCL's default; None too if their range is not used."""
    return "AF_INET6" if ":" in (_read_address_range(rank) or "") else None


def _read_gid_index(rank: RankFacts) -> str | None:
    """Return the policy's GID index; None for -1, which only NCCL understands."""
    index = rank.nccl.gid_index
    return None if index is None or index < 0 else str(index)


def _require_network(network: str = "") -> Value:
    """Return a function that returns, if TCP is forbidden, the plugin's network or else `network`; otherwise None."""
    return lambda rank: (rank.nccl.plugin or network or None) if rank.nccl.forbid_tcp_fallback else None


def _list_devices(rank: RankFacts) -> str | None:
    """Return the rails' device names as a comma-separated list, or None if they are unknown."""
    return ",".join(dict.fromkeys(rank.devices)) if rank.devices else None


def _list_ports(rank: RankFacts) -> str | None:
    """Return port 1 of each device, as UCX names it (UCX documentation, UCX_NET_DEVICES)."""
    return None if not rank.devices else ",".join(f"{device}:1" for device in dict.fromkeys(rank.devices))


def _list_exact_devices(rank: RankFacts) -> str | None:
    """Return the device list after '=': without it NCCL reads names as prefixes, and mlx5_1 also selects mlx5_10."""
    return f"={devices}" if (devices := _list_devices(rank)) else None


# --- the table --------------------------------------------------------------------------------------------

_ROCE, _EFA, _ERDMA = (frozenset({name}) for name in (Transport.ROCE, Transport.EFA, Transport.ERDMA))
_PVRDMA, _PLUGIN, _TCP = (frozenset({name}) for name in (Transport.PVRDMA, Transport.PLUGIN, Transport.TCP))
# GID index, traffic class and addresses have no effect on native InfiniBand.
_NATIVE = _ROCE | {Transport.INFINIBAND}
# Alibaba documents no traffic class, service level or adaptive routing for eRDMA.
_WITH_VENDOR_SETTINGS = _NATIVE | _ERDMA
# VMware documents no NCCL settings for PVRDMA; its rules follow from the limits of the driver.
_VERBS = _WITH_VENDOR_SETTINGS | _PVRDMA
_WITH_GIDS = _ROCE | _ERDMA | _PVRDMA
# The EFA plugin sets its own defaults and does not read NCCL_IB_* variables.
_WITH_RAILS = _VERBS | _EFA | _PLUGIN

# Sources: NCCL user guide, env.rst. Gloo and TensorPipe take plain names of interfaces (PyTorch torch.distributed,
# common environment variables). EFA: aws-ofi-nccl doc/efa-env-var.md. eRDMA: Alibaba Cloud PAI, NCCL over eRDMA; its
# devices are named erdma_N, and the images' HPC-X would load another plugin. PVRDMA: rdma-core providers/vmw_pvrdma,
# without relaxed ordering, peer memory and dma-buf.
_RULES = (
    VariableRule("NCCL_SOCKET_IFNAME", _name_interface("="), VariableCode.INTERFACE_OFF_RAILS),
    VariableRule("GLOO_SOCKET_IFNAME", _name_interface(), VariableCode.INTERFACE_OFF_RAILS),
    VariableRule("TP_SOCKET_IFNAME", _name_interface(), VariableCode.INTERFACE_OFF_RAILS),
    VariableRule("NCCL_CUMEM_ENABLE", _enable_with_nvlink, VariableCode.NVLINK_MEMORY, _WITH_RAILS),
    VariableRule("NCCL_NET", _require_network("IB"), VariableCode.TCP_FORBIDDEN, _VERBS),
    VariableRule("NCCL_NET", _require_network("AWS Libfabric"), VariableCode.TCP_FORBIDDEN, _EFA),
    VariableRule("NCCL_NET", _require_network(), VariableCode.TCP_FORBIDDEN, _PLUGIN),
    VariableRule("NCCL_NET", _return_constant("Socket"), VariableCode.TCP_ONLY, _TCP),
    VariableRule("NCCL_NET_PLUGIN", _return_constant("none"), VariableCode.REQUIRED_BY_TRANSPORT, _ERDMA),
    VariableRule("NCCL_NET_PLUGIN", _return_constant("none"), VariableCode.TCP_ONLY, _TCP),
    VariableRule("NCCL_IB_DISABLE", _return_constant("1"), VariableCode.TCP_ONLY, _TCP),
    VariableRule("NCCL_IB_HCA", _list_exact_devices, VariableCode.RAIL_DEVICES, _VERBS - _ERDMA),
    VariableRule("NCCL_IB_HCA", lambda rank: _list_exact_devices(rank) or "erdma", VariableCode.RAIL_DEVICES, _ERDMA),
    VariableRule("NCCL_IB_GID_INDEX", _read_key("gid_index"), VariableCode.SET_BY_POLICY, _WITH_GIDS),
    VariableRule("MC_GID_INDEX", _read_gid_index, VariableCode.SET_BY_POLICY, _WITH_GIDS),
    VariableRule("NCCL_IB_ADDR_FAMILY", _read_address_family, VariableCode.SET_BY_POLICY, _WITH_GIDS),
    VariableRule("NCCL_IB_ADDR_RANGE", _read_address_range, VariableCode.SET_BY_POLICY, _WITH_GIDS),
    VariableRule("NCCL_IB_TC", _read_key("traffic_class"), VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("NCCL_IB_PCI_RELAXED_ORDERING", _return_constant("0"), VariableCode.REQUIRED_BY_TRANSPORT, _PVRDMA),
    VariableRule("NCCL_NET_GDR_LEVEL", _return_constant("LOC"), VariableCode.REQUIRED_BY_TRANSPORT, _PVRDMA),
)

# NVSHMEM documentation, environment variables: without the mapping it ignores NVSHMEM_HCA_LIST. UCX documentation,
# ucx_info -f; NIXL moves the KV cache over UCX (ai-dynamo/dynamo, recipes/addons/providers/aks-ib.yaml).
LIBRARY_RULES = (
    VariableRule("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", _name_interface(), VariableCode.INTERFACE_OFF_RAILS),
    VariableRule("NVSHMEM_HCA_LIST", _list_devices, VariableCode.RAIL_DEVICES, _NATIVE),
    VariableRule(
        "NVSHMEM_ENABLE_NIC_PE_MAPPING",
        lambda rank: "1" if rank.devices else None,
        VariableCode.RAIL_DEVICES,
        _NATIVE,
    ),
    VariableRule("NVSHMEM_IB_ADDR_FAMILY", _read_address_family, VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("NVSHMEM_IB_ADDR_RANGE", _read_address_range, VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("UCX_IB_TRAFFIC_CLASS", _read_key("traffic_class"), VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("UCX_NET_DEVICES", _list_ports, VariableCode.RAIL_DEVICES, _NATIVE),
    VariableRule("UCX_IB_GID_INDEX", _read_gid_index, VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("NVSHMEM_IB_GID_INDEX", _read_gid_index, VariableCode.SET_BY_POLICY, _ROCE),
    VariableRule("NVSHMEM_REMOTE_TRANSPORT", _return_constant("libfabric"), VariableCode.REQUIRED_BY_TRANSPORT, _EFA),
    VariableRule("NVSHMEM_LIBFABRIC_PROVIDER", _return_constant("efa"), VariableCode.REQUIRED_BY_TRANSPORT, _EFA),
)


# --- the derivation ---------------------------------------------------------------------------------


def derive_variables(rank: RankFacts, rules: Sequence[VariableRule] = _RULES) -> tuple[Variable, ...]:
    """Return the variables of a rank. Without known devices, none of them lists devices.

    With LIBRARY_RULES they are those of other libraries, of which the caller selects what the rank uses.
    """
    if not rank.nccl.derive:
        return ()
    values = [
        (rule, rule.value(rank))
        for rule in rules
        if rank.fabric.transport in rule.transports and not rank.nccl.is_set_by_vendor(rule.name)
    ]
    return tuple([Variable(rule.name, value, rule.code) for rule, value in values if value is not None])


# What the init container finds (railwright/preflight/files.py), by transport. UCX: documentation of UCX_NET_DEVICES and
# UCX_IB_GID_INDEX. NVSHMEM ignores its list without the mapping, and looks for IPv4 unless told otherwise. Mooncake:
# MC_GID_INDEX; with isolated rails it loses what it sends to another rail (NVIDIA-NeMo/RL issue 2935). UCCL:
# ep/README.md. MORI otherwise uses every device that it sees (ROCm/mori, RdmaContext::Initialize), and an index of its
# own choice.
FOUND: Mapping[str, frozenset[Transport]] = {
    "NCCL_IB_HCA": _VERBS,
    "NCCL_IB_GID_INDEX": _WITH_GIDS,
    "NCCL_IB_ADDR_FAMILY": _WITH_GIDS,
    "UCX_NET_DEVICES": _NATIVE,
    "UCX_IB_GID_INDEX": _ROCE,
    "NVSHMEM_HCA_LIST": _NATIVE,
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": _NATIVE,
    "NVSHMEM_IB_GID_INDEX": _ROCE,
    "NVSHMEM_IB_ADDR_FAMILY": _ROCE,
    "NVSHMEM_IB_ADDR_RANGE": _ROCE,
    "MC_GID_INDEX": _WITH_GIDS,
    "MC_ENABLE_DEST_DEVICE_AFFINITY": _VERBS,
    "UCCL_IB_GID_INDEX": _ROCE,
    "MORI_RDMA_DEVICES": _NATIVE,
    "MORI_IB_GID_INDEX": _ROCE,
}

NAMES = frozenset([rule.name for rule in (*_RULES, *LIBRARY_RULES)]) | FOUND.keys()  # that admission may write


def list_found_variables(fabric: Fabric) -> tuple[str, ...]:
    """Return the names of variables whose values the init container may find for the ranks of a fabric."""
    left_out = set() if fabric.has_isolated_rails else {"MC_ENABLE_DEST_DEVICE_AFFINITY"}
    if fabric.nccl.address_range is None:
        left_out.add("NVSHMEM_IB_ADDR_RANGE")
    return tuple(
        [
            name
            for name, transports in FOUND.items()
            if fabric.transport in transports and name not in left_out and not fabric.nccl.is_set_by_vendor(name)
        ]
    )


def list_unstated_variables(fabric: Fabric, devices: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of NCCL's variables for devices and GID index, without those whose value the policy states.

    NCCL 2.21 and newer choose a GID index themselves, but other libraries may take one that belongs to the host.
    """
    needs = {
        "NCCL_IB_HCA": fabric.transport in _VERBS and not devices,
        "NCCL_IB_GID_INDEX": fabric.transport in _WITH_GIDS and fabric.nccl.gid_index is None,
    }
    return tuple([name for name, is_open in needs.items() if is_open])


def is_derived(name: str, fabric: Fabric) -> bool:
    """True if the variable is derived for the transport of a fabric, and its policy does not forbid that."""
    return (
        fabric.nccl.derive
        and not fabric.nccl.is_set_by_vendor(name)
        and any(rule.name == name and fabric.transport in rule.transports for rule in (*_RULES, *LIBRARY_RULES))
    )
