"""Lists all reason codes. The row of a code is its section in railwright/fabric/reasons/reasons.md.

A row has the message, the meaning and what the user can do about it. `rendering` explains messages, and has functions
for those that a line cannot express. The codes are part of the public interface (docs/interface.md 3.6, 3.7, 5.1 and
7.8, generated from this table): they are in warnings, denials, Events, injection records, JSON and metrics. Nothing may
parse the messages. A warning of lint has the code of its rule instead.
"""

from typing import Self

from railwright.fabric.reasons.reason import ReasonCode

_NCCL_GUIDE = "NCCL user guide, env.rst"
_NVSHMEM_GUIDE = "NVSHMEM documentation, environment variables"
_ALIBABA = "Alibaba Cloud PAI, NCCL over eRDMA"
_PVRDMA = "rdma-core providers/vmw_pvrdma"


class Code(ReasonCode):
    """A reason code of placement."""

    # --- nodes that are filtered ------------------------------------------------------------------------------

    RAIL_BUSY = "RailBusy"
    RAIL_UNAVAILABLE = "RailUnavailable"
    RAIL_EXCLUDED = "RailExcluded"
    DEVICE_ASSUMED_ELSEWHERE = "DeviceAssumedElsewhere"
    DEVICE_ALLOCATED_ELSEWHERE = "DeviceAllocatedElsewhere"
    RAILS_UNCOUNTED = "RailsUncounted"
    PAIR_BUSY = "PairBusy"
    NUMA_ALIGNMENT_BUSY = "NumaAlignmentBusy"
    NUMA_ALIGNMENT_UNAVAILABLE = "NumaAlignmentUnavailable"
    TOPOLOGY_SIZES_DIFFER = "TopologySizesDiffer"
    TOPOLOGY_DEVICES_BUSY = "TopologyDevicesBusy"
    SESSION_UNKNOWN = "SessionUnknown"
    SEGMENT_ELSEWHERE = "SegmentElsewhere"
    SEGMENT_TOO_LARGE = "SegmentTooLarge"
    SEGMENT_UNKNOWN = "SegmentUnknown"

    # --- other properties of nodes ----------------------------------------------------------------------------

    NODE_UNKNOWN = "NodeUnknown"
    NODE_NOT_SCORED = "NodeNotScored"
    ONE_NODE_LEFT = "OneNodeLeft"
    NOT_ASKED = "NotAsked"
    ALL_NODES_REJECTED = "AllNodesRejected"
    NODE_INELIGIBLE = "NodeIneligible"
    DEVICE_SHORTAGE = "DeviceShortage"
    OTHER_RESOURCES = "OtherResources"
    RAIL_SHORTAGE = "RailShortage"
    NUMA_SPLIT = "NumaSplit"
    RAIL_NOT_FREE = "RailNotFree"
    RAIL_DEAD = "RailDead"
    RAIL_DEGRADED = "RailDegraded"
    RAIL_AVOIDED = "RailAvoided"
    RAIL_REPORTED = "RailReported"
    NICS_SHARED = "NicsShared"
    TOO_FEW_NICS = "TooFewNics"
    PEER_RAIL_MISSING = "PeerRailMissing"
    UPLINKS_LIMIT = "UplinksLimit"
    DEGRADED_NODES = "DegradedNodes"
    BLOCKED_NODES = "BlockedNodes"
    DEVICE_IN_USE = "DeviceInUse"
    DEGRADED_MEMBER = "DegradedMember"

    # --- gangs ------------------------------------------------------------------------------------------------

    CAPACITY_NEVER = "CapacityNever"
    CAPACITY_INSUFFICIENT = "CapacityInsufficient"
    GANG_RAILS_SAME = "GangRailsSame"
    CAPACITY_NOT_OFFERED = "CapacityNotOffered"
    NODES_BLOCKED = "NodesBlocked"
    DEVICES_IN_USE = "DevicesInUse"
    EARLIER_GANGS = "EarlierGangs"
    LEAVES_MINIMUM = "LeavesMinimum"
    FEWER_LEAVES_NOT_OFFERED = "FewerLeavesNotOffered"
    FEWER_LEAVES_UPLINKS = "FewerLeavesUplinks"
    FEWER_LEAVES_PEERS = "FewerLeavesPeers"
    FEWER_LEAVES_NODE_TYPE = "FewerLeavesNodeType"
    FEWER_LEAVES_UNTRIED = "FewerLeavesUntried"
    FEWER_LEAVES_SLOWER = "FewerLeavesSlower"
    SINGLE_POD_PACKED = "SinglePodPacked"
    NODES_FILLED = "NodesFilled"
    UNLABELLED_NODES = "UnlabelledNodes"
    BANDWIDTH_UPLINKS = "BandwidthUplinks"
    BANDWIDTH_NOT_OFFERED = "BandwidthNotOffered"
    BANDWIDTH_UNTRIED = "BandwidthUntried"
    FASTER_NODES_TOO_FEW = "FasterNodesTooFew"
    RAILS_LOST = "RailsLost"
    PLAN_NOT_EXACT = "PlanNotExact"
    POLICIES_DIFFER = "PoliciesDiffer"
    PLACEMENT = "Placement"
    PODS_MISSING = "PodsMissing"
    FITS_NOW = "FitsNow"
    NODES_FIT = "NodesFit"
    BETTER_PLAN = "BetterPlan"
    FEWER_LEAVES_POSSIBLE = "FewerLeavesPossible"
    PEERS_LACK_RAILS = "PeersLackRails"
    FABRIC_UNDEFINED = "FabricUndefined"
    DOMAINS_UNDEFINED = "DomainsUndefined"

    # --- scores -----------------------------------------------------------------------------------------------

    PARTLY_USED_FIRST = "PartlyUsedFirst"
    OTHERS_PARTLY_USED = "OthersPartlyUsed"
    NODE_TYPE_DIFFERS = "NodeTypeDiffers"
    NODE_TOO_SLOW = "NodeTooSlow"
    NODE_RESERVED = "NodeReserved"
    TIGHTEST_LEAF = "TightestLeaf"
    TARGET_LEAF = "TargetLeaf"
    PLANNED_LEAF = "PlannedLeaf"
    SIBLING_LEAF = "SiblingLeaf"
    UNPLANNED_LEAF = "UnplannedLeaf"
    NUMA_UNKNOWN = "NumaUnknown"
    NUMA_DEVICES_BUSY = "NumaDevicesBusy"
    NUMA_GPUS_TOGETHER = "NumaGpusTogether"
    NUMA_GPUS_SPLIT = "NumaGpusSplit"
    NUMA_ALIGNED = "NumaAligned"
    NUMA_PARTLY_LOCAL = "NumaPartlyLocal"
    NO_DEVICES_REQUESTED = "NoDevicesRequested"
    DEVICES_UTILIZED = "DevicesUtilized"
    NO_RAILS_NEEDED = "NoRailsNeeded"
    TERM_DETAIL = "TermDetail"
    RAILS_FREE = "RailsFree"


class AdmissionCode(ReasonCode):
    """A code of admission: what its warnings report, and why an injection record has an entry in `skipped`."""

    # --- mode `warn` ------------------------------------------------------------------------------------------

    WOULD_INJECT = "WouldInject"
    WOULD_REJECT = "WouldReject"

    # --- left out as the author or the policy says ------------------------------------------------------------

    SKIPPED_BY_ANNOTATION = "SkippedByAnnotation"
    DISABLED_BY_POLICY = "DisabledByPolicy"
    NO_RAILS = "NoRails"
    PREFLIGHT_WITHOUT_DEVICES = "PreflightWithoutDevices"
    OWN_CLAIM = "OwnClaim"
    EXCLUDED_BY_POLICY = "ExcludedByPolicy"
    HELPER_POD = "HelperPod"
    LAUNCHER_WITHOUT_ACCELERATORS = "LauncherWithoutAccelerators"
    HEAD_WITHOUT_ACCELERATORS = "HeadWithoutAccelerators"
    INITIALIZER = "Initializer"
    SUBMITTER = "Submitter"
    CONTAINERS_IGNORED = "ContainersIgnored"
    RAILS_WITHOUT_ACCELERATORS = "RailsWithoutAccelerators"

    # --- networks ---------------------------------------------------------------------------------------------

    HOST_NETWORK = "HostNetwork"
    DEFAULT_ROUTE = "DefaultRoute"
    NETWORK_MISSING = "NetworkMissing"

    # --- devices ----------------------------------------------------------------------------------------------

    SKIPPED_DEVICES_NEEDED = "SkippedDevicesNeeded"
    NETWORK_DEVICES_NOT_REQUESTED = "NetworkDevicesNotRequested"
    RAIL_WITHOUT_RESOURCE = "RailWithoutResource"
    GPUS_NOT_CLAIMED = "GpusNotClaimed"
    GPUS_EXCEED_NODE = "GpusExceedNode"
    RAIL_RESOURCES_DIFFER = "RailResourcesDiffer"
    RAIL_DEVICES_NOT_OFFERED = "RailDevicesNotOffered"
    NETWORK_DEVICES_NOT_OFFERED = "NetworkDevicesNotOffered"
    REQUESTED_DEVICES_NOT_OFFERED = "RequestedDevicesNotOffered"

    # --- mounts and privileges --------------------------------------------------------------------------------

    PATH_OCCUPIED = "PathOccupied"
    HOST_MEMORY = "HostMemory"
    POD_SECURITY_FORBIDS = "PodSecurityForbids"
    CAPABILITY_DROPPED = "CapabilityDropped"
    LOCKING_IN_USER_NAMESPACE = "LockingInUserNamespace"
    LOCKING_WITHOUT_ROOT = "LockingWithoutRoot"

    # --- variables --------------------------------------------------------------------------------------------

    VARIABLE_FORCED = "VariableForced"
    VARIABLE_FORCED_AT_BINDING = "VariableForcedAtBinding"
    ENV_FROM_OVERRIDDEN = "EnvFromOverridden"
    VARIABLES_LEFT_TO_ENV_FROM = "VariablesLeftToEnvFrom"
    WRITTEN_AT_BINDING = "WrittenAtBinding"
    NODE_NAME_SET = "NodeNameSet"
    CONFIG_REPLACED = "ConfigReplaced"
    CONFIG_PATH_OCCUPIED = "ConfigPathOccupied"

    # --- fields of the pod and its resources ------------------------------------------------------------------

    FIELD_OF_POD = "FieldOfPod"
    SCRIPT_WITHOUT_COMMAND = "ScriptWithoutCommand"
    CONTAINER_OF_POD = "ContainerOfPod"
    TOPOLOGY_FILE_UNKNOWN = "TopologyFileUnknown"
    LIBRARY_PATH_UNKNOWN = "LibraryPathUnknown"
    HUGE_PAGES_WITHOUT_MEMORY = "HugePagesWithoutMemory"

    # --- keys of railwright -----------------------------------------------------------------------------------

    KEY_ON_WORKLOAD = "KeyOnWorkload"
    KEY_OF_NAMESPACE = "KeyOfNamespace"
    KEY_WRITTEN_BY_RAILWRIGHT = "KeyWrittenByRailwright"
    KEY_MISPLACED = "KeyMisplaced"
    KEY_UNKNOWN = "KeyUnknown"
    MORE_KEYS = "MoreKeys"

    # --- records and bindings ---------------------------------------------------------------------------------

    RECORD_TOO_LARGE = "RecordTooLarge"
    BOUND_POD_UNKNOWN = "BoundPodUnknown"
    BOUND_NODE_UNKNOWN = "BoundNodeUnknown"
    BOUND_DEVICES_UNKNOWN = "BoundDevicesUnknown"
    ALLOCATION_UNKNOWN = "AllocationUnknown"
    ALLOCATED_DEVICES_UNNAMED = "AllocatedDevicesUnnamed"
    PLACED_WITHOUT_EXTENDER = "PlacedWithoutExtender"
    PLACEMENT_TOO_LARGE = "PlacementTooLarge"

    # --- workloads --------------------------------------------------------------------------------------------

    POLICY_MISSING = "PolicyMissing"
    PODS_REJECTED = "PodsRejected"
    LABEL_OVERRIDDEN = "LabelOverridden"
    LABEL_NOT_PASSED = "LabelNotPassed"
    LABEL_TOO_LATE = "LabelTooLate"
    TEMPLATE_IMMUTABLE = "TemplateImmutable"

    # --- policy -----------------------------------------------------------------------------------------------

    TOPOLOGY_REQUESTED = "TopologyRequested"
    TOPOLOGY_OF_AUTHOR = "TopologyOfAuthor"
    TOPOLOGY_OF_OWNER = "TopologyOfOwner"
    TOPOLOGY_COMPLETIONS = "TopologyCompletionsDiffer"
    TOPOLOGY_HARD_ONLY = "TopologyHardOnly"
    TOPOLOGY_NOT_SERVED = "TopologyNotServed"
    TOPOLOGY_NO_KEY = "TopologyNoKey"
    TOPOLOGY_CAPACITY_UNKNOWN = "TopologyCapacityUnknown"
    TOPOLOGY_GANG_TOO_LARGE = "TopologyGangTooLarge"
    TOPOLOGY_NO_FIELD = "TopologyNoField"
    TOPOLOGY_QUEUE_UNKNOWN = "TopologyQueueUnknown"
    TOPOLOGY_QUEUE_GROUPS = "TopologyQueueGroups"
    TOPOLOGY_NOT_IN_FLAVOR = "TopologyNotInFlavor"
    TOPOLOGY_NOT_IN_QUEUE = "TopologyNotInQueue"
    TOPOLOGY_ELASTIC = "TopologyElastic"
    TOPOLOGY_OF_CLAIMS = "TopologyOfClaims"
    TOPOLOGY_PARTS = "TopologyParts"
    TOPOLOGY_SMALLER_GANG = "TopologySmallerGang"
    TOPOLOGY_DROPPED = "TopologyDropped"
    POLICY_NETWORK_MISSING = "PolicyNetworkMissing"
    POLICY_RESOURCE_UNSET = "PolicyResourceUnset"
    POLICY_RESOURCES_DIFFER = "PolicyResourcesDiffer"
    POLICY_RESOURCE_NOT_OFFERED = "PolicyResourceNotOffered"
    POLICY_KIND_IGNORED = "PolicyKindIgnored"

    # --- lint and limits --------------------------------------------------------------------------------------

    MORE_FINDINGS = "MoreFindings"
    LINT_TOO_LARGE = "LintTooLarge"
    LINT_FAILED = "LintFailed"
    MORE_WARNINGS = "MoreWarnings"

    # --- reported by the admission policy, because the webhook did not run ------------------------------------

    NOT_INJECTED = "NotInjected"


class RejectionCode(ReasonCode):
    """A code of a rejection. It has no message: each rejection has its own."""

    NO_POLICY = "no-policy"
    UNKNOWN_FABRIC = "unknown-fabric"
    NAMESPACE = "namespace"
    NAMESPACE_UNKNOWN = "namespace-unknown"
    ANNOTATION = "annotation"
    ANNOTATIONS = "annotations"
    PLACEMENT = "placement"
    RAILS = "rails"
    CONTAINERS = "containers"
    QUANTITY = "quantity"
    NETWORKS = "networks"
    MISSING_NETWORK = "missing-network"
    VOLUME = "volume"
    CLAIM = "claim"
    NODE_NAME = "node-name"
    SECURITY = "security"
    POD_SECURITY = "pod-security"
    PREFLIGHT = "preflight"
    WHOLE_NODE = "whole-node"
    WINDOWS = "windows"
    TEMPLATES = "templates"
    TOO_LARGE = "too-large"


class VariableCode(ReasonCode):
    """A reason for which a pod gets a variable, with the source of the rule."""

    words: str  # the text without the source
    source: str

    def __new__(cls, name: str, words: str, source: str = _NCCL_GUIDE) -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.words, code.source, code.template = words, source, f"{words} ({source})"
        code.meaning, code.fix = f"{words[0].upper()}{words[1:]} ({source}).", ""
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
    NVLINK_MEMORY = ("NvlinkMemory", "NVLink between nodes needs memory of CUDA's virtual memory API")
    NVLINK_REQUIRED = ("NvlinkRequired", "a broken NVLink domain fails instead of leaving the gang to the rails")

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
    PLUGIN_OF_FABRIC = ("PluginOfFabric", "the network plugin of this fabric; that of the image may be another")
    LIBRARY_PATH = (
        "LibraryPath",
        "has the directories in which the vendor installs libraries on the node",
        "`libraryPath` of the fabric",
    )
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
    NIXL_DEVICES = (
        "NixlDevices",
        "NIXL moves the KV cache over UCX, which may otherwise use a NIC beside the rails",
        "UCX documentation, ucx_info -f; ai-dynamo/dynamo, recipes/addons/providers/aks-ib.yaml",
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
