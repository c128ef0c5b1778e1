"""Rules about the network of the fabric, the interfaces for control traffic, and GIDs of RoCE."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint.rule_types import (
    WITHOUT_GIDS,
    RankContext,
    Setting,
    Severity,
    Violation,
    is_exclusive_resource,
    rule,
)
from railwright.fabric.nccl import parsing
from railwright.fabric.policy import model as policies

# --- the network of the fabric ----------------------------------------------------------------------

_NET, _PLUGIN, _DISABLE = "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"
_BUILT_IN = frozenset({"ib", "socket"})
_VERBS = frozenset(policies.Transport) - {  # transports of NCCL's own IB network
    policies.Transport.EFA,
    policies.Transport.PLUGIN,
    policies.Transport.TCP,
}
_EFA = frozenset({policies.Transport.EFA})
# The fabrics that a network can use. Nothing is known about other names.
_TRANSPORTS_BY_NETWORK: Mapping[str, frozenset[policies.Transport]] = {
    "ib": _VERBS,
    "ibext": _VERBS,  # HPC-X; its names carry a version: IBext_v11
    "aws libfabric": _EFA,  # before aws-ofi-nccl 1.12
    "libfabric": _EFA,
    "ofi": _EFA,
    "gib": frozenset({policies.Transport.ROCE}),  # Google
    "socket": frozenset({policies.Transport.TCP}),
}
_NAMES = {policies.Transport.EFA: "AWS Libfabric", policies.Transport.TCP: "Socket"}  # of others: IB


@rule("N31", Severity.ERROR, settings=frozenset({_NET, _DISABLE}))
def check_network(setting: Setting, ranks: RankContext) -> Iterator[str]:
    """NCCL cannot use the fabric's network, or silently uses TCP.

    NCCL_IB_DISABLE turns off NCCL's own RDMA transport: the job holds RDMA devices that others wait for, and uses TCP.
    Not reported on EFA or if NCCL_NET names a plugin, because the variable is not read then, nor on a TCP fabric.

    NCCL_NET names the only network that NCCL may use, in any letter case, and NCCL fails at start if it is absent.
    Socket on an RDMA fabric uses TCP and leaves RDMA devices idle. IB on EFA finds nothing and fails, as do IB with
    NCCL_IB_DISABLE=1 and a plugin's network with NCCL_NET_PLUGIN=none. The plugins of an image are not known, so other
    names are accepted.

    Source: NVIDIA/nccl src/plugin/net.cc and user guide, NCCL_IB_DISABLE; aws-ofi-nccl doc/efa-env-var.md.
    """
    resources = ", ".join(sorted(ranks.rdma_devices))
    if setting.name == _DISABLE:
        named = ranks.get_value(_NET)
        by_plugin = ranks.is_on_efa or (named is not None and named.casefold() not in _BUILT_IN)
        if setting.number and ranks.is_rdma_requested and not by_plugin:
            yield f"turns RDMA off, although the ranks request {resources}; remove the variable, or the request"
        return
    if not setting.value:
        return
    network = setting.text.casefold().partition("_")[0]  # without a version
    if network == "ib" and (disable := ranks.get_setting(_DISABLE)) and disable.number:
        yield "NCCL_IB_DISABLE turns this network off, so NCCL fails at start; remove one of the two variables"
    if network in _TRANSPORTS_BY_NETWORK.keys() - _BUILT_IN and ranks.get_value(_PLUGIN) == "none":
        yield (
            "is the network of a plugin, and NCCL_NET_PLUGIN=none turns plugins off: NCCL fails at start; "
            "remove NCCL_NET_PLUGIN"
        )
    else:
        yield from _check_transport(network, ranks)


def _check_transport(network: str, ranks: RankContext) -> Iterator[str]:
    transport = policies.Transport.EFA if ranks.is_on_efa else ranks.fabric_context.transport
    fabric = ranks.fabric_context.fabric
    plugin = fabric.nccl.plugin if fabric is not None else None
    if transport is None and network == "socket" and ranks.is_rdma_requested:
        resources = ", ".join(sorted(ranks.rdma_devices))
        yield f"keeps NCCL on TCP, although the ranks request {resources}; write IB, or remove the variable"
    elif (
        transport is not None
        and network != (plugin or "").casefold()
        and transport not in _TRANSPORTS_BY_NETWORK.get(network, frozenset(policies.Transport))
    ):
        name = plugin or _NAMES.get(transport, "IB")
        yield f"is not a network of this fabric ({transport}); write {name}, or remove the variable"


@rule("N55", Severity.WARNING, settings=lambda name: name.startswith("RDMAV_"))
def check_verbs_on_efa(_: Setting, ranks: RankContext) -> Iterator[str]:
    """RDMAV_ variables on EFA.

    RDMAV_FORK_SAFE and similar variables make the verbs library protect registered memory during a fork. Kernels that
    do this themselves do not need them, and they break EFA; the plugin's documentation says never to set them.

    Source: aws-ofi-nccl doc/efa-env-var.md.
    """
    if ranks.is_on_efa:
        yield "breaks EFA on newer kernels; remove it"


_VERBS_DEVICES = "/dev/infiniband"


@rule("N62", Severity.ERROR)
def check_efa_reachable(ranks: RankContext) -> Iterator[Violation]:
    """A container requests EFA devices that NCCL cannot reach.

    NCCL reaches EFA only by the plugin aws-ofi-nccl and libfabric's provider efa. NCCL_NET_PLUGIN=none, which is right
    on RoCE, or a list of providers without efa leaves TCP. So does the node's /dev/infiniband beside the devices of the
    device plugin, on nodes that have other RDMA devices too.

    Source: aws/aws-ofi-nccl doc/efa-env-var.md; aws-samples/aws-do-eks issue 63; libfabric fi_provider(7).
    """
    if not ranks.is_on_efa:
        return
    plugin, provider = ranks.get_setting(_PLUGIN), ranks.get_setting("FI_PROVIDER")
    if plugin is not None and plugin.text.casefold() == "none":
        yield Violation(
            "turns off the EFA plugin, so NCCL uses TCP without a message; remove the variable, or write ofi", plugin
        )
    if provider is not None and provider.value:  # layered providers are written `efa;ofi_rxr`
        named = provider.text.removeprefix("^").replace(";", ",").split(",")
        if ("efa" in map(str.strip, named)) == provider.text.startswith("^"):
            yield Violation(
                "excludes libfabric's provider efa, so NCCL uses TCP; remove the variable, or write efa", provider
            )
    if ranks.mounts.get(_VERBS_DEVICES) == "hostPath":
        yield Violation(
            f"the container has EFA devices and mounts the node's {_VERBS_DEVICES}: where nodes also have other RDMA "
            "devices, libfabric finds no EFA, and NCCL uses TCP; remove the mount: the device plugin adds all that is "
            "needed"
        )


IMAGE_WITH_PLUGIN = "coreweave/nccl-tests"  # images whose environment names a network plugin


@rule("N70", Severity.WARNING)
def check_image_plugin(ranks: RankContext) -> Iterator[Violation]:
    """The image chooses NCCL's network plugin.

    Images may set NCCL_NET_PLUGIN in their own environment, which neither lint nor a webhook sees. Images of
    coreweave/nccl-tests have HPC-X's plugin for Spectrum-X in first place since September 2026, so the variable has to
    be set where the vendor's manifests set it to none.

    Source: coreweave/nccl-tests pull request 100.
    """
    is_chosen = _PLUGIN in ranks.effective_settings or _NET in ranks.effective_settings
    if not is_chosen and IMAGE_WITH_PLUGIN in (ranks.image or "") and ranks.is_rdma_requested:
        yield Violation(
            f"{_PLUGIN} is not set, but images of {IMAGE_WITH_PLUGIN} choose a network plugin themselves (spcx since "
            "September 2026); set it to none, or to the plugin that you want",
            name=_PLUGIN,
        )


# --- interfaces and GIDs ----------------------------------------------------------------------------

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
        is_absent = not parsing.select_interfaces(setting.text, present)
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
        rails = parsing.select_interfaces(setting.text, context.rail_interfaces)
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
    if is_on_node and parsing.select_interfaces(setting.text, (_POD_IDENTITY,)):
        yield (
            f"also selects {_POD_IDENTITY}, which nodes with EKS Pod Identity have: its address is the same on all "
            f"nodes, so ranks cannot connect; exclude {_POD_IDENTITY} too"
        )


# How each library chooses the GID index if its variable is not set
_CHOICES_WITHOUT_INDEX = {
    "NCCL_IB_GID_INDEX": "NCCL chooses the index itself since 2.21",
    "NVSHMEM_IB_GID_INDEX": "NVSHMEM 3 chooses the index itself",
    "UCX_IB_GID_INDEX": "UCX chooses the index itself",
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
        yield f"the right index differs from pod to pod; remove the variable: {_CHOICES_WITHOUT_INDEX[setting.name]}"
