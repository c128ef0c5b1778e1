"""Lists all reason codes with their meanings. Tables of codes in docs/ are generated from this file.

The codes are part of the public interface (docs/interface.md 3.6, 3.7, 5.1 and 7.8): they are in warnings, denials,
Events, injection records, JSON and metrics. Nothing may parse messages. A warning of lint has the code of its rule.
"""

import enum
from typing import Self


class ReasonCode(enum.StrEnum):
    """Base class of the reason codes. The value of a member is the public name of the code."""

    meaning: str
    fix: str  # "" if there is nothing to fix, or each message says it

    def __new__(cls, name: str, meaning: str, fix: str = "") -> Self:
        """Create a member with the public name as its value."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.meaning, code.fix = meaning, fix
        return code


class PlacementCode(ReasonCode):
    """Why a node is refused or gets a lower score, and why a gang does not fit or gets no better placement."""

    SEGMENT_ELSEWHERE = (
        "SegmentElsewhere",
        "The node is outside of the NVLink domain of the pod's segment (annotation `railwright.io/segment`).",
        "Wait, or delete pods in that domain. If its nodes are gone, recreate the gang. Label nodes without a domain.",
    )
    RAIL_BROKEN = (
        "RailBroken",
        "The node's annotation `railwright.io/broken-rails` names a rail, or devices of a rail are not allocatable.",
        "Check the device plugin and the NIC of the node. After a repair, remove the rail from the annotation.",
    )
    NODE_UNKNOWN = (
        "NodeUnknown",
        "The extender has not read the node yet: the node scores 0 and is not refused.",
        "If it persists, check the extender's access to nodes.",
    )
    NODE_INELIGIBLE = (
        "NodeIneligible",
        "The node is cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity.",
        "Uncordon or repair the node, or change the pod's tolerations or selector.",
    )
    DEVICE_SHORTAGE = (
        "DeviceShortage",
        "Too few devices of a rail or resource are free. The pods that use them are named if they are known.",
        "Wait, or delete one of the pods that use them.",
    )
    OTHER_RESOURCES = (
        "OtherResources",
        "The node has too little CPU or memory, or too many pods.",
        "Request less CPU or memory, or remove other pods from the node.",
    )
    NUMA_SPLIT = (
        "NumaSplit",
        "GPUs and rails are on different NUMA nodes.",
        "Free devices on one NUMA node, or request fewer devices.",
    )
    NICS_SHARED = (
        "NicsShared",
        "Other pods share the NICs, or the node has too few NICs for several pods of the gang.",
        "Request whole NICs, use one pod for each node, or move one of the pods.",
    )
    PEER_RAIL_MISSING = (
        "PeerRailMissing",
        "Pods cannot use a rail, because the node of another pod of the gang lacks it.",
        "Place the gang on nodes that have the same rails.",
    )
    UPLINKS_LIMIT = (
        "UplinksLimit",
        "The oversubscribed uplinks of a domain carry less than the nodes could send.",
        "Place the gang below one switch, or correct `placement.oversubscription`.",
    )
    CAPACITY_NEVER = (
        "CapacityNever",
        "The gang does not fit the present nodes that it may use, even if no other pod runs.",
        "Reduce the gang or its requests, correct its node selector, add or uncordon nodes, or wait for an autoscaler.",
    )
    CAPACITY_INSUFFICIENT = (
        "CapacityInsufficient",
        "The cluster has too few slots for the pods of the gang that have no node yet.",
        "Wait, add nodes, or reduce the gang.",
    )
    NODES_BLOCKED = (
        "NodesBlocked",
        "The message counts nodes without a slot, or with slots that other pods take, and names the main causes.",
    )
    EARLIER_GANGS = (
        "EarlierGangs",
        "Nodes are left free for the remaining pods of gangs that are partly placed.",
        "If the gang's placement matters, recreate it after those gangs are placed.",
    )
    LEAVES_MINIMUM = (
        "LeavesMinimum",
        "No smaller number of leaves has enough slots for the gang, on nodes of one type and at this bandwidth.",
        "Free nodes of one leaf, or reduce the gang. Recreate it to place all of its pods together.",
    )
    NODES_FILLED = (
        "NodesFilled",
        "A job of one pod fills used nodes first, so that idle nodes stay free for pods that need whole nodes.",
    )
    UNLABELLED_NODES = (
        "UnlabelledNodes",
        "Only nodes without a topology label have slots.",
        "Label these nodes (docs/reference/policy.md, `placement.domains`).",
    )
    FASTER_NODES_TOO_FEW = (
        "FasterNodesTooFew",
        "Faster nodes have too few slots for the gang.",
        "Free or repair the rails that other nodes lack.",
    )
    POLICIES_DIFFER = (
        "PoliciesDiffer",
        "Pods of the gang were admitted under different versions of the policy.",
        "Recreate the pods that are not under the current version.",
    )
    PODS_MISSING = (
        "PodsMissing",
        "Some pods of the gang do not exist yet.",
        "Check the job's controller, quota and admission.",
    )
    FITS_NOW = (
        "FitsNow",
        "All remaining pods fit now.",
        "Wait, or check the scheduler and its queue.",
    )
    BETTER_PLAN = (
        "BetterPlan",
        "A better placement is possible now, or an equal one on fewer leaves.",
        "Recreate the gang to place it again.",
    )
    FABRIC_UNDEFINED = (
        "FabricUndefined",
        "The current policy does not define the fabric of these pods, or is in mode `warn`.",
        "Define the fabric, or recreate the pods with a defined one.",
    )
    DOMAINS_UNDEFINED = (
        "DomainsUndefined",
        "The policy names no domains, so a plan does not consider leaves and uplinks.",
        "Set `placement.domains` or `placement.preset`.",
    )


class AdmissionCode(ReasonCode):
    """Why admission warns, or why `skipped` in the injection record has an entry. The message contains the fix."""

    # mode `warn`
    WOULD_INJECT = "WouldInject", "The policy is in mode `warn`: the pod is not changed. The warning lists the changes."
    WOULD_REJECT = (
        "WouldReject",
        "The policy is in mode `warn`: the object is admitted, and would be rejected otherwise.",
    )

    # left out as the author or the policy says
    SKIPPED_BY_ANNOTATION = "SkippedByAnnotation", "The annotation `railwright.io/skip` names what is left out."
    TRANSPORT_WITHOUT_PREFLIGHT = (
        "TransportWithoutPreflight",
        "With transport `plugin` no init container is added, as there are no RDMA devices that it could check.",
    )
    OWN_CLAIM = "OwnClaim", "The pod has a claim of its own for NICs of the fabric, and keeps it."
    RAILS_IN_PROPORTION = (
        "RailsInProportion",
        "The namespace opted the pod in, so it gets rails in proportion to its GPUs.",
    )
    NO_ACCELERATOR = (
        "NoAccelerator",
        "No container requests an accelerator or is named in `railwright.io/containers`, so the pod gets no rails.",
    )

    # networks
    HOST_NETWORK = "HostNetwork", "`hostNetwork` is true, so no networks and no `NCCL_SOCKET_IFNAME` are added."
    DEFAULT_ROUTE = "DefaultRoute", "A network takes the default route from every other interface."
    NETWORK_MISSING = (
        "NetworkMissing",
        "A network of a rail or of the pod's annotation does not exist, or the annotation lacks one of the fabric.",
    )
    NETWORK_INVALID = (
        "NetworkInvalid",
        "The CNI configuration in a network of a rail is not JSON, so pods do not start.",
    )

    # devices
    RAIL_WITHOUT_RESOURCE = (
        "RailWithoutResource",
        "Neither the policy nor a network names the resource of a rail, so no device is requested for it.",
    )
    GPUS_NOT_CLAIMED = "GpusNotClaimed", "Several containers have GPUs, so no GPU is paired with a NIC."
    GPUS_EXCEED_NODE = "GpusExceedNode", "No node has the number of accelerators in `gpusPerNode`."
    ADDRESSES_DIFFER = "AddressesDiffer", "`nccl.addressRange` has no address of the rails' networks."
    DOMAINS_NOT_LABELLED = "DomainsNotLabelled", "No node has a label of `placement.domains` or of the preset."
    SHAPE_WITHOUT_NODES = "ShapeWithoutNodes", "No node has the labels of a shape in `nodeShapes`."
    FABRIC_IN_USE = "FabricInUse", "The policy removes or renames a fabric that pods use."
    RAIL_RESOURCES_DIFFER = "RailResourcesDiffer", "The policy and the network of a rail name different resources."
    DEVICES_NOT_OFFERED = "DevicesNotOffered", "No node has a requested resource, so pods stay Pending."

    # mounts and privileges
    PATH_OCCUPIED = "PathOccupied", "The container has a mount at the path already, or uses /dev/shm of the host."
    POD_SECURITY_FORBIDS = "PodSecurityForbids", "The pod-security level of the namespace forbids a setting."
    LOCKING_WITHOUT_EFFECT = "LockingWithoutEffect", "`IPC_LOCK` has no effect, or the container drops it."

    # variables
    VARIABLES_LEFT_TO_ENV_FROM = (
        "VariablesLeftToEnvFrom",
        "Variables are not set, because they would override `envFrom`, or `LD_LIBRARY_PATH` cannot be extended.",
    )
    VALUE_UNSTATED = "ValueUnstated", "The policy does not state the value, and no init container finds it."
    LIBRARY_NOT_REACHED = "LibraryNotReached", "A library does not get the values that the preflight finds in the pod."
    INTERFACE_ABSENT = "InterfaceAbsent", "The pod does not have the fabric's primary interface."
    OPEN_MPI_LISTS = "OpenMpiLists", "The container sets lists of Open MPI itself, so the policy's lists are left out."

    # fields of the pod and its resources
    SCRIPT_WITHOUT_COMMAND = (
        "ScriptWithoutCommand",
        "A container has no `command`, which the webhook does not see in its image, so no script is sourced.",
    )
    HUGE_PAGES_WITHOUT_MEMORY = "HugePagesWithoutMemory", "Huge pages need a request of `cpu` or `memory`."
    KEY_WITHOUT_EFFECT = (
        "KeyWithoutEffect",
        "A key of railwright is misspelt or misplaced, or the networks annotation has a key that Multus ignores.",
    )

    # records
    ANNOTATIONS_FULL = (
        "AnnotationsFull",
        "The injection record is left out, because the annotations of the pod are at their limit of 256 KiB.",
    )

    # workloads
    PODS_REJECTED = "PodsRejected", "The pods of a template would be rejected now."
    LABEL_NOT_PASSED = "LabelNotPassed", "The label of the object does not reach its pods."
    LABEL_IN_TEMPLATE = (
        "LabelInTemplate",
        "A pod template has the label `railwright.io/fabric`, its workload has not: quotas do not count the devices.",
    )
    CLAIM_TEMPLATE_NOT_WRITTEN = (
        "ClaimTemplateNotWritten",
        "A claim template could not be written now, or the webhook has no right to write any.",
    )

    # policy
    TOPOLOGY_REQUESTED = "TopologyRequested", "The workload asks its scheduler to keep the gang in one domain."
    TOPOLOGY_NOT_WRITTEN = (
        "TopologyNotWritten",
        "railwright sets no topology constraint: the author set one, pods start one by one, or the scheduler has none.",
    )
    TOPOLOGY_NO_KEY = "TopologyNoKey", "The policy names no domains that the workload's scheduler can use."

    # lint and limits
    LINT_FAILED = (
        "LintFailed",
        "The pod or a command line is too large to be linted at admission, or lint failed. Nothing else is affected.",
    )
    MORE_WARNINGS = "MoreWarnings", "There are more warnings than a response of admission may have."

    # reported by the admission policy, because the webhook did not run
    NOT_INJECTED = (
        "NotInjected",
        "The pod or its namespace opted in, and the webhook did not run: the pod would use TCP.",
    )


class RejectionCode(ReasonCode):
    """Why admission rejects an object. The message contains the fix."""

    NO_POLICY = "no-policy", "No valid policy is in force."
    UNKNOWN_FABRIC = "unknown-fabric", "The label or annotation `railwright.io/fabric` names no fabric of the policy."
    NAMESPACE = "namespace", "The fabric's namespace selector in the policy does not match this namespace."
    NAMESPACE_UNKNOWN = "namespace-unknown", "The labels of the namespace, which may opt the pod in, are not known yet."
    ANNOTATION = (
        "annotation",
        "An annotation of railwright or Multus is invalid or reserved, contradicts another, or names a missing object.",
    )
    QUANTITY = "quantity", "A quantity is invalid, or there are more GPUs than claims of a pod can have (1,024)."
    MISSING_NETWORK = "missing-network", "A NetworkAttachmentDefinition of a rail does not exist."
    NAME_TAKEN = "name-taken", "The pod has a volume, container or claim with a name that railwright uses."
    NODE_NAME = "node-name", "The pod names its node, so that no scheduler allocates the claims of its rails."
    SECURITY = "security", "The container or the pod-security level of the namespace forbids what the fabric needs."
    TOO_LARGE = (
        "too-large",
        "The object has more than 10,000 entries (a workload: 30,000), or more templates or annotations than allowed.",
    )


class VariableCode(ReasonCode):
    """Why a pod gets an environment variable. Users read only the meaning, without a message."""

    SET_BY_POLICY = "SetByPolicy", "set by `nccl`, `nodeShapes` or `env` of the fabric (docs/reference/policy.md)"
    INTERFACE_OFF_RAILS = (
        "InterfaceOffRails",
        "keeps control traffic off the rails (user guides of NCCL, PyTorch and NVSHMEM)",
    )
    RAIL_DEVICES = (
        "RailDevices",
        "the rails' devices and no others, which are for storage or management (NCCL, NVSHMEM and UCX guides)",
    )
    FOUND_IN_POD = (
        "FoundInPod",
        "found by the init container in this pod, because it differs between nodes; a path names the file for it",
    )
    TCP_FORBIDDEN = (
        "TcpForbidden",
        "without the fabric's network or plugin, NCCL fails instead of running slowly over TCP (NCCL; aws-ofi-nccl)",
    )
    NVLINK_MEMORY = (
        "NvlinkMemory",
        "NVLink between nodes needs memory of CUDA's virtual memory API (NCCL user guide, env.rst)",
    )
    LIBRARY_PATH = (
        "LibraryPath",
        "has the directories of the vendor's libraries on the node (`libraryPath` of the fabric)",
    )
    REQUIRED_BY_TRANSPORT = (
        "RequiredByTransport",
        "the transport needs it (aws-ofi-nccl efa-env-var.md; Alibaba Cloud PAI on eRDMA; rdma-core vmw_pvrdma)",
    )
    TCP_ONLY = "TcpOnly", "keeps NCCL on TCP, also with network plugins and old releases (NCCL user guide, env.rst)"
