"""Lists the reason codes of placement, each with its meaning and what the user can do about it.

The codes are part of the public interface (docs/interface.md 7.8, generated from this table): they are in JSON, Events
and metrics. `texts` has the text of each code. Nothing may parse that text.
"""

from typing import Self

from railwright.fabric.reasons.reason_code import Group, ReasonCode


class Code(ReasonCode):
    """A reason code of placement."""

    def __new__(cls, name: str, group: Group, meaning: str, fix: str = "") -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.group, code.meaning, code.fix = group, meaning, fix
        return code

    # --- nodes that are filtered ------------------------------------------------------------------------------

    RAIL_BUSY = (
        "RailBusy",
        Group.FILTER,
        "Other pods use the devices of a required rail.",
        "Wait, end one of these pods, or set `placement.rails: preferred`.",
    )
    RAIL_UNAVAILABLE = (
        "RailUnavailable",
        Group.FILTER,
        "The node has too few allocatable devices of a required rail, used or not.",
        "Check the device plugin and the NIC of that node.",
    )
    DEVICE_ASSUMED_ELSEWHERE = (
        "DeviceAssumedElsewhere",
        Group.FILTER,
        "Another scheduler has chosen the node for a pod that needs the device and is not bound yet.",
        "Wait: the device is free again if that pod is not bound within `--assume-seconds`.",
    )
    DEVICE_ALLOCATED_ELSEWHERE = (
        "DeviceAllocatedElsewhere",
        Group.FILTER,
        "Another scheduler allocated the device after Volcano's session began.",
        "None needed: Volcano tries again in its next session.",
    )
    RAILS_UNCOUNTED = (
        "RailsUncounted",
        Group.FILTER,
        "kube-scheduler does not count the rails (`ignoredByScheduler: true`), so pods of a PodGroup would share them.",
        "Set `ignoredByScheduler: false` for each rail under `managedResources` of kube-scheduler's configuration.",
    )
    PAIR_BUSY = (
        "PairBusy",
        Group.FILTER,
        "GPUs and rails are free, but no free ones are a pair by the constraint of the pod's claim.",
        "Wait, or end pods that use GPUs without the NICs beside them.",
    )
    NUMA_ALIGNMENT_BUSY = (
        "NumaAlignmentBusy",
        Group.FILTER,
        "No NUMA nodes have the requested GPUs and rails free together (`placement.numa: required`).",
        "Wait, or set `placement.numa: preferred`.",
    )
    NUMA_ALIGNMENT_UNAVAILABLE = (
        "NumaAlignmentUnavailable",
        Group.FILTER,
        "No NUMA nodes of this node type have the requested GPUs and rails together (`placement.numa: required`).",
        "Request fewer GPUs or rails, correct `nodeShapes`, or set `placement.numa: preferred`.",
    )
    TOPOLOGY_SIZES_DIFFER = (
        "TopologySizesDiffer",
        Group.FILTER,
        "kubelet's topology manager would reject the pod: its resources need different numbers of NUMA nodes.",
        "Request fewer devices, or set `topologyManagerPolicy: best-effort` on the node.",
    )
    TOPOLOGY_DEVICES_BUSY = (
        "TopologyDevicesBusy",
        Group.FILTER,
        "kubelet's topology manager would reject the pod: the free devices are on different NUMA nodes.",
        "Request fewer devices, or set `topologyManagerPolicy: best-effort` on the node.",
    )
    SESSION_UNKNOWN = (
        "SessionUnknown",
        Group.FILTER,
        "The extender restarted during Volcano's session and does not know where the gang's first pods are.",
        "None needed: Volcano places the gang again in its next session.",
    )

    # --- other properties of nodes ----------------------------------------------------------------------------

    NODE_UNKNOWN = (
        "NodeUnknown",
        Group.NODE,
        "The cache does not contain the node yet; it is feasible and scores 0.",
        "If it persists, check the extender's access to nodes.",
    )
    NODE_NOT_SCORED = (
        "NodeNotScored",
        Group.NODE,
        "The node is feasible, and the scheduler requested no score because it had no other choice.",
    )
    ONE_NODE_LEFT = (
        "OneNodeLeft",
        Group.NODE,
        "One node passed all filters. kube-scheduler takes it and asks for no score, so nothing was compared.",
    )
    ALL_NODES_REJECTED = (
        "AllNodesRejected",
        Group.NODE,
        "Every candidate node was filtered.",
        "See the reason of each node.",
    )
    NODE_INELIGIBLE = (
        "NodeIneligible",
        Group.NODE,
        "The node is cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity.",
        "Uncordon or repair the node, or change the pod's tolerations or selector.",
    )
    DEVICE_SHORTAGE = (
        "DeviceShortage",
        Group.NODE,
        "Too few devices of a resource are free.",
        "Wait, or end one of the pods that use them.",
    )
    OTHER_RESOURCES = (
        "OtherResources",
        Group.NODE,
        "The node has too little CPU or memory, or too many pods.",
        "Request less CPU or memory, or remove other pods from the node.",
    )
    RAIL_SHORTAGE = (
        "RailShortage",
        Group.NODE,
        "Too few devices of a rail are free; the pods that use them are named.",
        "Wait, or end one of these pods.",
    )
    NUMA_SPLIT = (
        "NumaSplit",
        Group.NODE,
        "GPUs and rails are on different NUMA nodes.",
        "Free devices on one NUMA node, or request fewer devices.",
    )
    RAIL_NOT_FREE = ("RailNotFree", Group.NODE, "A rail of the pod is in use.", "Wait, or end the pod that uses it.")
    RAIL_DEAD = (
        "RailDead",
        Group.NODE,
        "The node has no allocatable device of the rail.",
        "Check the device plugin and the NIC of that node.",
    )
    RAIL_DEGRADED = (
        "RailDegraded",
        Group.NODE,
        "The device plugin reports some devices of the rail as unhealthy.",
        "Check the device plugin and the NIC of that node.",
    )
    NICS_SHARED = (
        "NicsShared",
        Group.NODE,
        "Other pods share the NICs.",
        "Request whole NICs, or move one of the pods.",
    )
    TOO_FEW_NICS = (
        "TooFewNics",
        Group.NODE,
        "The node has enough devices but too few NICs for several pods of the gang.",
        "Use one pod for each node, or fewer pods per node.",
    )
    PEER_RAIL_MISSING = (
        "PeerRailMissing",
        Group.NODE,
        "The pod cannot use a rail because the node of another pod of the gang lacks it.",
        "Place the gang on nodes that have the same rails.",
    )
    UPLINKS_LIMIT = (
        "UplinksLimit",
        Group.NODE,
        "The oversubscribed uplinks of a domain carry less than the nodes could send.",
        "Place the gang below one switch, or correct `placement.oversubscription`.",
    )
    DEGRADED_NODES = ("DegradedNodes", Group.NODE, "Counts the nodes with a degradation.", "See the code it contains.")
    BLOCKED_NODES = ("BlockedNodes", Group.NODE, "Counts the nodes without a slot, with the cause.", "See the cause.")
    DEVICE_IN_USE = (
        "DeviceInUse",
        Group.NODE,
        "Names the pods that use a missing device.",
        "Wait, or end one of these pods.",
    )
    DEGRADED_MEMBER = (
        "DegradedMember",
        Group.NODE,
        "The node of a slowest pod of the gang, with the causes.",
        "See the causes.",
    )

    # --- gangs ------------------------------------------------------------------------------------------------

    CAPACITY_NEVER = (
        "CapacityNever",
        Group.GANG,
        "The gang does not fit even if no other pod runs, so waiting does not help.",
        "Reduce the gang or its requests, or add nodes; uncordon nodes that are to be used.",
    )
    CAPACITY_INSUFFICIENT = (
        "CapacityInsufficient",
        Group.GANG,
        "The cluster has too few slots for the pods that remain.",
        "Wait, add nodes, or reduce the gang.",
    )
    GANG_RAILS_SAME = (
        "GangRailsSame",
        Group.GANG,
        "All pods of the gang take the same rails. A node where others or a pod of the gang hold these does not help.",
        "Wait for these rails, end what holds them, or set `claims.gangRails: any` for new gangs.",
    )
    CAPACITY_NOT_OFFERED = (
        "CapacityNotOffered",
        Group.GANG,
        "The cluster has enough slots, but the scheduler does not offer all of these nodes.",
        "Check the job's node selector, affinity, tolerations and queue, and the topology key of its PodGroup.",
    )
    NODES_BLOCKED = (
        "NodesBlocked",
        Group.GANG,
        "The most frequent causes for which nodes have no slot.",
        "See the causes.",
    )
    DEVICES_IN_USE = (
        "DevicesInUse",
        Group.GANG,
        "The pods that use the missing devices of a few nodes.",
        "Wait, or end one of these pods.",
    )
    EARLIER_GANGS = (
        "EarlierGangs",
        Group.GANG,
        "Nodes are left to the other pods of gangs that have begun.",
        "Recreate the gang when these are placed, if its placement matters.",
    )
    LEAVES_MINIMUM = (
        "LeavesMinimum",
        Group.GANG,
        "No fewer leaves have enough slots at this bandwidth.",
        "Free nodes of one leaf, or reduce the gang.",
    )
    FEWER_LEAVES_NOT_OFFERED = (
        "FewerLeavesNotOffered",
        Group.GANG,
        "Fewer leaves have enough slots, but the scheduler does not offer their nodes.",
        "Check the job's node selector, affinity, tolerations and queue.",
    )
    FEWER_LEAVES_UPLINKS = (
        "FewerLeavesUplinks",
        Group.GANG,
        "Fewer leaves have enough slots, but their uplinks carry less.",
    )
    FEWER_LEAVES_PEERS = (
        "FewerLeavesPeers",
        Group.GANG,
        "Fewer leaves have enough slots, but other pods of the gang are placed elsewhere already.",
        "Recreate the gang to place all of its pods together.",
    )
    FEWER_LEAVES_NODE_TYPE = (
        "FewerLeavesNodeType",
        Group.GANG,
        "Fewer leaves have enough slots, but not of the node type that the gang uses.",
    )
    FEWER_LEAVES_UNTRIED = (
        "FewerLeavesUntried",
        Group.GANG,
        "Fewer leaves have enough slots, but the planner did not try every choice.",
    )
    FEWER_LEAVES_SLOWER = (
        "FewerLeavesSlower",
        Group.GANG,
        "Fewer leaves have enough slots, but at a lower bandwidth.",
        "See the causes.",
    )
    SINGLE_POD_PACKED = (
        "SinglePodPacked",
        Group.GANG,
        "A single-pod job fills partly used nodes first, and none that fits has more bandwidth.",
    )
    UNLABELLED_NODES = (
        "UnlabelledNodes",
        Group.GANG,
        "Only nodes without a topology label have slots.",
        "Label these nodes (docs/policy.md, `placement.domains`).",
    )
    BANDWIDTH_UPLINKS = (
        "BandwidthUplinks",
        Group.GANG,
        "The uplinks of the planned leaves limit the bandwidth.",
        "Free nodes of one leaf, or reduce the gang.",
    )
    BANDWIDTH_NOT_OFFERED = (
        "BandwidthNotOffered",
        Group.GANG,
        "Faster nodes have enough slots, but the scheduler does not offer them.",
        "Check the job's node selector, affinity, tolerations and queue.",
    )
    BANDWIDTH_UNTRIED = (
        "BandwidthUntried",
        Group.GANG,
        "Faster nodes have enough slots, but the planner did not try every choice.",
    )
    FASTER_NODES_TOO_FEW = (
        "FasterNodesTooFew",
        Group.GANG,
        "Faster nodes have too few slots for the gang.",
        "See the causes: free or repair these nodes.",
    )
    RAILS_LOST = (
        "RailsLost",
        Group.GANG,
        "The gang runs without some rails, because too few nodes have them free.",
        "Free or repair these rails.",
    )
    PLAN_NOT_EXACT = (
        "PlanNotExact",
        Group.GANG,
        "The planner did not try every choice; the bound of the possible gain is given.",
    )
    POLICIES_DIFFER = (
        "PoliciesDiffer",
        Group.GANG,
        "Pods of the gang were admitted under different versions of the policy.",
        "Recreate the pods that are not under the current version.",
    )
    PLACEMENT = (
        "Placement",
        Group.GANG,
        "The placement of a gang, compared with the best possible when it was planned.",
        "See the causes; recreate the gang to place it again.",
    )
    PODS_MISSING = (
        "PodsMissing",
        Group.GANG,
        "Some pods of the gang do not exist yet.",
        "Check the job's controller, quota and admission.",
    )
    FITS_NOW = (
        "FitsNow",
        Group.GANG,
        "The remaining pods fit now, and the scheduler has not placed them.",
        "Wait, or check the scheduler and its queue.",
    )
    NODES_FIT = ("NodesFit", Group.GANG, "Counts the nodes that could run one of the gang's pods now.")
    BETTER_PLAN = (
        "BetterPlan",
        Group.GANG,
        "A better placement is possible now.",
        "Recreate the gang to place it again.",
    )
    FEWER_LEAVES_POSSIBLE = (
        "FewerLeavesPossible",
        Group.GANG,
        "The same bandwidth is possible on fewer leaves now.",
        "Recreate the gang to leave more room for others.",
    )
    PEERS_LACK_RAILS = (
        "PeersLackRails",
        Group.GANG,
        "Counts the pods that cannot use a rail because the node of another pod lacks it.",
        "Place the gang on nodes that have the same rails.",
    )
    FABRIC_UNDEFINED = (
        "FabricUndefined",
        Group.GANG,
        "The current policy does not define the fabric of these pods, or has it in audit mode.",
        "Define the fabric, or recreate the pods with a defined one.",
    )
    DOMAINS_UNDEFINED = (
        "DomainsUndefined",
        Group.GANG,
        "The policy names no domains, so leaves and crossings are not modelled.",
        "Set `placement.domains` or `placement.preset`.",
    )

    # --- scores -----------------------------------------------------------------------------------------------

    PARTLY_USED_FIRST = ("PartlyUsedFirst", Group.SCORE, "A single-pod job fills partly used nodes first.")
    OTHERS_PARTLY_USED = (
        "OthersPartlyUsed",
        Group.SCORE,
        "Other nodes are partly used and fit the single-pod job without a NUMA split.",
    )
    NODE_TYPE_DIFFERS = ("NodeTypeDiffers", Group.SCORE, "The gang uses another node type.")
    NODE_TOO_SLOW = ("NodeTooSlow", Group.SCORE, "The node would slow the gang down.")
    NODE_RESERVED = ("NodeReserved", Group.SCORE, "Other nodes of the target leaf should be filled first.")
    TIGHTEST_LEAF = ("TightestLeaf", Group.SCORE, "The leaf is the tightest one that fits the pod.")
    TARGET_LEAF = ("TargetLeaf", Group.SCORE, "The leaf is the target of this rank.")
    PLANNED_LEAF = ("PlannedLeaf", Group.SCORE, "The gang's plan uses the leaf for other ranks.")
    SIBLING_LEAF = ("SiblingLeaf", Group.SCORE, "The leaf has the same parent as the target leaf.")
    UNPLANNED_LEAF = ("UnplannedLeaf", Group.SCORE, "The gang's plan does not use the leaf.")
    NUMA_UNKNOWN = (
        "NumaUnknown",
        Group.SCORE,
        "The NUMA layout of the node is unknown.",
        "Define `nodeShapes`, or run a NodeResourceTopology exporter.",
    )
    NUMA_DEVICES_BUSY = ("NumaDevicesBusy", Group.SCORE, "The NUMA nodes have too few free GPUs or rails.")
    NUMA_GPUS_TOGETHER = ("NumaGpusTogether", Group.SCORE, "The GPUs are on as few NUMA nodes as possible.")
    NUMA_GPUS_SPLIT = ("NumaGpusSplit", Group.SCORE, "The GPUs are split over NUMA nodes.")
    NUMA_ALIGNED = ("NumaAligned", Group.SCORE, "GPUs and rails are on the same NUMA nodes.")
    NUMA_PARTLY_LOCAL = ("NumaPartlyLocal", Group.SCORE, "Some rails are on another NUMA node than their GPUs.")
    NO_DEVICES_REQUESTED = ("NoDevicesRequested", Group.SCORE, "The pod requests no accelerator or rail.")
    DEVICES_UTILIZED = ("DevicesUtilized", Group.SCORE, "The share of the node's devices in use with this pod.")
    NO_RAILS_NEEDED = ("NoRailsNeeded", Group.SCORE, "The pod needs no rails.")
    TERM_DETAIL = (
        "TermDetail",
        Group.SCORE,
        "The score of a term that has no code of its own; the parameter `detail` explains it.",
    )
    RAILS_FREE = ("RailsFree", Group.SCORE, "How many of the pod's rails are free, and which are degraded.")
