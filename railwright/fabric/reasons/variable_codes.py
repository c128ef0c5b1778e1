"""Lists the reasons for which a pod gets a variable, each with the source of its rule.

The codes are part of the public interface (docs/interface.md 5.1, generated from this table): they are in the injection
record. `railwright.fabric.nccl` has the value of each variable.
"""

from typing import Self

from railwright.fabric.reasons.reason_code import Group, ReasonCode

_NCCL_GUIDE = "NCCL user guide, env.rst"
_NVSHMEM_GUIDE = "NVSHMEM documentation, environment variables"
_ALIBABA = "Alibaba Cloud PAI, NCCL over eRDMA"
_PVRDMA = "rdma-core providers/vmw_pvrdma"


class VariableCode(ReasonCode):
    """A reason for a variable. `text` is the reason in the words of a message, without the source."""

    text: str
    source: str

    def __new__(cls, name: str, text: str, source: str = _NCCL_GUIDE) -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.text, code.source = text, source
        code.group, code.fix = Group.VARIABLE, ""
        code.meaning = f"{text[0].upper()}{text[1:]} ({source})."
        return code

    # --- every fabric -----------------------------------------------------------------------------------------

    SET_BY_POLICY = ("SetByPolicy", "set by the policy", "`env` of the fabric")
    BOOTSTRAP_INTERFACE = ("BootstrapInterface", "keeps bootstrap and the RDMA handshake off the rails")
    GLOO_INTERFACE = (
        "GlooInterface",
        "keeps PyTorch's CPU traffic off the rails; Gloo takes a plain name only",
        "PyTorch torch.distributed, common environment variables",
    )
    TENSOR_PIPE_INTERFACE = (
        "TensorPipeInterface",
        "keeps PyTorch's RPC off the rails; TensorPipe takes a plain name only",
        "PyTorch TensorPipe agent, TP_SOCKET_IFNAME",
    )
    LOG_LEVEL = ("LogLevel", "log level set in the policy")

    # --- verbs ------------------------------------------------------------------------------------------------

    RAIL_DEVICES = (
        "RailDevices",
        "exactly the rails' devices: the node's other devices are for storage or management",
    )
    TCP_FORBIDDEN = ("TcpForbidden", "a broken fabric fails instead of running slowly over TCP")
    GID_INDEX = ("GidIndex", "the site's fixed GID table index")
    ADDRESS_FAMILY = ("AddressFamily", "the family of the rails' addresses")
    ADDRESS_RANGE = ("AddressRange", "selects the pod's addresses on the rails, not the host's")
    TRAFFIC_CLASS = ("TrafficClass", "the fabric's lossless class")
    CONTROL_TRAFFIC_CLASS = ("ControlTrafficClass", "the fabric's class for control messages")
    SERVICE_LEVEL = ("ServiceLevel", "the fabric's service level")
    RAILS_ISOLATED = ("RailsIsolated", "the rails of this fabric do not reach each other")
    QUEUE_PAIRS = ("QueuePairs", "spreads flows over the paths of this fabric")
    ADAPTIVE_ROUTING = ("AdaptiveRouting", "whether switches and NICs route adaptively")
    TIMEOUT = ("Timeout", "longer than a route change of this fabric takes")
    RETRY_COUNT = ("RetryCount", "retries before NCCL considers a link broken")
    GPU_DIRECT_REACH = ("GpuDirectReach", "how far GPUDirect reaches on these nodes")
    FUNCTIONS_MERGED = ("FunctionsMerged", "whether functions of one card count as one NIC")
    TOPOLOGY_FILE = ("TopologyFile", "these nodes hide their PCI tree")

    # --- single transports ------------------------------------------------------------------------------------

    EFA_PLUGIN_REQUIRED = (
        "EfaPluginRequired",
        "an image without the EFA plugin fails instead of running slowly over TCP",
        "aws-ofi-nccl doc/efa-env-var.md",
    )
    NETWORK_PLUGIN_DISABLED = ("NetworkPluginDisabled", "disables the network plugin in HPC-X images", _ALIBABA)
    ERDMA_DEVICES = ("ErdmaDevices", "only the eRDMA devices, all named erdma_N", _ALIBABA)
    RELAXED_ORDERING_ABSENT = (
        "RelaxedOrderingAbsent",
        "the paravirtual device does not offer relaxed ordering",
        _PVRDMA,
    )
    GPU_DIRECT_ABSENT = (
        "GpuDirectAbsent",
        "the driver supports neither peer memory nor dma-buf, so GPUDirect would fail in the job",
        _PVRDMA,
    )
    SOCKETS_ONLY = ("SocketsOnly", "also restricts network plugins to sockets")
    NO_NETWORK_PLUGIN = ("NoNetworkPlugin", "NCCL loads no network plugin")
    VERBS_DISABLED = ("VerbsDisabled", "for images with an NCCL too old for the others")

    # --- other libraries --------------------------------------------------------------------------------------

    NVSHMEM_INTERFACE = ("NvshmemInterface", "keeps NVSHMEM's bootstrap off the rails", _NVSHMEM_GUIDE)
    NVSHMEM_DEVICES = ("NvshmemDevices", "exactly the devices of the rails", _NVSHMEM_GUIDE)
    NVSHMEM_MAPPING = ("NvshmemMapping", "without it NVSHMEM ignores NVSHMEM_HCA_LIST", _NVSHMEM_GUIDE)
    NVSHMEM_ADDRESS_RANGE = (
        "NvshmemAddressRange",
        "selects the pod's addresses on the rails, not the host's",
        _NVSHMEM_GUIDE,
    )
    NVSHMEM_TRAFFIC_CLASS = ("NvshmemTrafficClass", "the fabric's lossless class", _NVSHMEM_GUIDE)
    NVSHMEM_TRANSPORT = ("NvshmemTransport", "EFA uses libfabric, not verbs", _NVSHMEM_GUIDE)
    NVSHMEM_PROVIDER = ("NvshmemProvider", "libfabric's provider for EFA", _NVSHMEM_GUIDE)
    UCX_DEVICES = (
        "UcxDevices",
        "exactly the devices that the pod's claims hold, written at binding",
        "UCX documentation, ucx_info -f",
    )
    UCX_TRAFFIC_CLASS = (
        "UcxTrafficClass",
        "the fabric's lossless class, if UCX carries data",
        "UCX documentation, ucx_info -f",
    )
    OPEN_MPI_CONTROL_INTERFACE = (
        "OpenMpiControlInterface",
        "keeps Open MPI 4's control messages off the rails",
        "Open MPI 4 FAQ, TCP: which interfaces",
    )
    OPEN_MPI_TCP_INTERFACE = (
        "OpenMpiTcpInterface",
        "keeps Open MPI's TCP transport off the rails",
        "Open MPI documentation, TCP: which interfaces",
    )
    PRTE_INTERFACE = (
        "PrteInterface",
        "keeps Open MPI 5's runtime off the rails",
        "PRRTE documentation, prte_if_include",
    )
