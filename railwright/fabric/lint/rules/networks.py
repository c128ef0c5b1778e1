"""Rules about the network that NCCL uses: whether it is the fabric's, and whether the pod can use it."""

from collections.abc import Iterator, Mapping

from railwright.fabric.lint.rule_types import (
    RankContext,
    Setting,
    Severity,
    Violation,
    rule,
)
from railwright.fabric.policy import model as policies

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
        yield f"keeps NCCL on TCP, although the ranks request {resources}; write IB, or remove it"
    elif (
        transport is not None
        and network != (plugin or "").casefold()
        and transport not in _TRANSPORTS_BY_NETWORK.get(network, frozenset(policies.Transport))
    ):
        name = plugin or _NAMES.get(transport, "IB")
        yield f"is not a network of this fabric ({transport}); write {name}, or remove it"


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
            "turns off the plugin that drives EFA, so NCCL uses TCP without a message; remove it, or write ofi", plugin
        )
    if provider is not None and provider.value:  # layered providers are written `efa;ofi_rxr`
        named = provider.text.removeprefix("^").replace(";", ",").split(",")
        if ("efa" in map(str.strip, named)) == provider.text.startswith("^"):
            yield Violation("keeps libfabric from EFA, so NCCL uses TCP; remove it, or write efa", provider)
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
