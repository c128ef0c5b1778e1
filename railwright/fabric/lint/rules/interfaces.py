"""Rules about the interfaces for control traffic of NCCL, NVSHMEM, Gloo and TensorPipe, and about RoCE GIDs."""

from collections.abc import Iterator

from railwright.fabric.lint.rule_types import (
    WITHOUT_GIDS,
    RankContext,
    Setting,
    Severity,
    Violation,
    is_exclusive_resource,
    rule,
)
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies

SOCKET = "NCCL_SOCKET_IFNAME"
# The library that reads each variable: as a list in NCCL's grammar, or as plain names
_NCCL_LISTS = {SOCKET: "NCCL", "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "NVSHMEM"}
_PLAIN_NAMES = {"GLOO_SOCKET_IFNAME": "Gloo", "TP_SOCKET_IFNAME": "TensorPipe"}
_LOOPBACK = "lo"  # every network namespace has it


@rule("N17", Severity.ERROR, settings=frozenset({*_NCCL_LISTS, *_PLAIN_NAMES}))
def check_interface_exists(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """A variable for control traffic selects no interface of the pod.

    If NCCL_SOCKET_IFNAME matches nothing, NCCL fails at start with 'Bootstrap : no socket interface found'. So do
    NVSHMEM's bootstrap, which reads its variable in the same way, and Gloo and TensorPipe, which look for exactly these
    names. A pod has eth0 and the interfaces of its secondary networks. Only a pod on the host's network has those of
    the node.

    Source: NVIDIA/nccl src/misc/socket.cc, observed on 2.30.7; NVIDIA/nvshmem src/modules/bootstrap/uid; PyTorch
    torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
    """
    interfaces = ranks.fabric_context.interfaces
    if not setting.value or interfaces is None:
        return
    present, library = (*interfaces, _LOOPBACK), _NCCL_LISTS.get(setting.name)
    if library is not None:
        is_absent = not lists.select_interfaces(setting.text, present)
    else:
        is_absent = not any(mark in setting.text for mark in "^=") and set(setting.text.split(",")).isdisjoint(present)
    if is_absent:
        name = ranks.fabric_context.control_interface
        reader, fix = (library, f"={name}") if library else (_PLAIN_NAMES[setting.name], name)
        yield (
            f"selects no interface of the pod, which has {', '.join(interfaces)}: {reader} fails to start; write {fix}"
        )


@rule("N18", Severity.WARNING)
def check_socket_interface(ranks: RankContext) -> Iterator[Violation]:
    """NCCL_SOCKET_IFNAME selects a rail, or is unset in a pod with rails.

    The interface carries NCCL's bootstrap, the handshake of RDMA and, with the TCP transport, the data. On a rail that
    is rail-only or lossless, this traffic may not reach the other pods, or may disturb the traffic of the rail. If the
    variable is unset, NCCL prefers names that begin with ib, then all but docker, lo and virbr: any secondary network.

    Source: NVIDIA/nccl src/misc/socket.cc.
    """
    setting, context = ranks.get_setting(SOCKET), ranks.fabric_context
    primary = context.control_interface
    is_plugin = context.transport is policies.Transport.PLUGIN
    is_left_to_plugin = is_plugin and context.fabric is not None and not context.fabric.nccl.derive
    if setting is None and ranks.has_ranks and context.rail_interfaces and not is_left_to_plugin:
        yield Violation(
            f"{SOCKET} is not set, and the pod has {', '.join(context.rail_interfaces)}: NCCL may choose a rail for "
            f"bootstrap; set it to ={primary}",
            name=SOCKET,
        )
    if setting is not None and setting.value:
        rails = lists.select_interfaces(setting.text, context.rail_interfaces)
        if rails and rails != (primary,):
            yield Violation(
                f"selects {', '.join(rails)}, a secondary network: bootstrap and the RDMA handshake would run on it; "
                f"write ={primary}",
                setting,
            )


_POD_IDENTITY = "pod-id-link0"  # of EKS Pod Identity on each node, with the address 169.254.170.23


@rule("N68", Severity.WARNING, settings=frozenset({SOCKET}))
def check_pod_identity_interface(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL_SOCKET_IFNAME also selects the interface of EKS Pod Identity.

    A pod on the host's network has the interfaces of its node. On EKS with Pod Identity one of them is pod-id-link0
    with 169.254.170.23, an address that every node has. A list such as ^lo,docker,veth also selects it: connections of
    bootstrap and of the TCP transport are refused.

    Source: aws-samples/aws-do-eks pull request 54.
    """
    is_on_node = bool(setting.value) and ranks.host_network and ranks.is_on_efa
    if is_on_node and lists.select_interfaces(setting.text, (_POD_IDENTITY,)):
        yield (
            f"also selects {_POD_IDENTITY}, which nodes with EKS Pod Identity have: its address is the same on all "
            f"nodes, so ranks cannot connect; exclude {_POD_IDENTITY} too"
        )


# How each library chooses the GID index if its variable is not set
_CHOICES_WITHOUT_INDEX = {
    "NCCL_IB_GID_INDEX": "NCCL chooses it itself since 2.21",
    "NVSHMEM_IB_GID_INDEX": "NVSHMEM 3 chooses it itself",
    "UCX_IB_GID_INDEX": "UCX chooses it itself",
}
# Devices whose GID table the vendor fixes: its manifests set the index (vllm-project/aibrix samples/disaggregation)
_FIXED_BY_VENDOR = frozenset({"vke.volcengine.com/rdma"})


@rule("N21", Severity.WARNING, settings=frozenset(_CHOICES_WITHOUT_INDEX))
def check_gid_index(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """A variable fixes the GID index on RoCE.

    The right index depends on the pod, because it follows the order in which addresses appeared, but NCCL, NVSHMEM and
    UCX use one value for every HCA, unchecked. Without it they choose the entry themselves, NCCL since 2.21. Not
    reported: the value of gidIndex in the policy, a pod on the host's network, and devices that pods do not share
    (virtual functions, host devices). Nor are devices of Volcengine's plugin, for which the vendor gives the index.

    Source: NVIDIA/nccl networking troubleshooting guide and src/transport/net_ib/connect.cc; NVIDIA/nvshmem
    src/modules/transport/common/env_defs.h; openucx/ucx src/uct/ib/base/ib_md.c; multus-cni issue 1100.
    """
    index, fabric, requested = setting.number, ranks.fabric_context.fabric, ranks.rdma_devices
    if index is None or index < 0 or ranks.fabric_context.transport in WITHOUT_GIDS:
        return
    is_of_policy = fabric is not None and fabric.nccl.gid_index == index
    has_own_devices = bool(requested) and all(
        name in _FIXED_BY_VENDOR or is_exclusive_resource(name) for name in requested
    )
    if not is_of_policy and not ranks.host_network and not has_own_devices:
        yield f"the right index differs from pod to pod; remove it: {_CHOICES_WITHOUT_INDEX[setting.name]}"
