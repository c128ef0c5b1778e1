"""Lists all reason codes: a row is the code, where it occurs, its text, its meaning and what the user can do about it.

The codes are part of the public interface (docs/interface.md 3.7, 5.1 and 7.8, generated from these tables): they are
in warnings, Events, injection records, JSON and metrics. Nothing may parse the texts; `texts` explains their templates.
A warning of lint has the code of its rule instead. Codes of rejections are in
`railwright.fabric.reasons.rejections`.
"""

from typing import Self

from railwright.fabric import names
from railwright.fabric.reasons import texts
from railwright.fabric.reasons.reason import Group, ReasonCode

_MEMLOCK = "ask the operator for LimitMEMLOCK=infinity of the container runtime"
_KEY = "{type} {key} {value!r} has no effect"

_NCCL_GUIDE = "NCCL user guide, env.rst"
_NVSHMEM_GUIDE = "NVSHMEM documentation, environment variables"
_ALIBABA = "Alibaba Cloud PAI, NCCL over eRDMA"
_PVRDMA = "rdma-core providers/vmw_pvrdma"


class Code(ReasonCode):
    """A reason code of placement."""

    def __new__(cls, name: str, group: Group, template: texts.Template, meaning: str, fix: str = "") -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.group, code.template, code.meaning, code.fix = group, template, meaning, fix
        return code

    # --- nodes that are filtered ------------------------------------------------------------------------------

    RAIL_BUSY = (
        "RailBusy",
        Group.FILTER,
        "{rail} is busy: {free} of {allocatable} {resource} free, {needed} needed",
        "Other pods use the devices of a required rail.",
        "Wait, end one of these pods, or set `placement.rails: preferred`.",
    )
    RAIL_UNAVAILABLE = (
        "RailUnavailable",
        Group.FILTER,
        "the node cannot give {rail}: {needed} {resource} needed, {allocatable} allocatable{free:omit}",
        "The node has too few allocatable devices of a required rail, used or not.",
        "Check the device plugin and the NIC of that node.",
    )
    DEVICE_ASSUMED_ELSEWHERE = (
        "DeviceAssumedElsewhere",
        Group.FILTER,
        texts.format_assumed_elsewhere,
        "Another scheduler has chosen the node for a pod that needs the device and is not bound yet.",
        "Wait: the device is free again if that pod is not bound within `--assume-seconds`.",
    )
    DEVICE_ALLOCATED_ELSEWHERE = (
        "DeviceAllocatedElsewhere",
        Group.FILTER,
        (
            "{device} of {node} was allocated by another scheduler in the meantime: {free} {resource} free, {needed} "
            "needed"
        ),
        "Another scheduler allocated the device after Volcano's session began.",
        "None needed: Volcano tries again in its next session.",
    )
    RAILS_UNCOUNTED = (
        "RailsUncounted",
        Group.FILTER,
        (
            "kube-scheduler does not count {resources}, and offers to pods of a PodGroup what it assigned to their "
            "peers; set ignoredByScheduler: false for it in managedResources"
        ),
        (
            "kube-scheduler does not count the rails (`ignoredByScheduler: true`), so pods of a PodGroup would share "
            "them."
        ),
        "Set `ignoredByScheduler: false` for each rail under `managedResources` of kube-scheduler's configuration.",
    )
    PAIR_BUSY = (
        "PairBusy",
        Group.FILTER,
        texts.format_pair,
        "GPUs and rails are free, but no free ones are a pair by the constraint of the pod's claim.",
        "Wait, or end pods that use GPUs without the NICs beside them.",
    )
    NUMA_ALIGNMENT_BUSY = (
        "NumaAlignmentBusy",
        Group.FILTER,
        "no NUMA nodes have the requested GPUs beside the requested rails free now (placement.numa: required)",
        "No NUMA nodes have the requested GPUs and rails free together (`placement.numa: required`).",
        "Wait, or set `placement.numa: preferred`.",
    )
    NUMA_ALIGNMENT_UNAVAILABLE = (
        "NumaAlignmentUnavailable",
        Group.FILTER,
        (
            "no NUMA nodes have the requested GPUs beside the requested rails on this kind of node (placement.numa: "
            "required)"
        ),
        "No NUMA nodes of this node type have the requested GPUs and rails together (`placement.numa: required`).",
        "Request fewer GPUs or rails, correct `nodeShapes`, or set `placement.numa: preferred`.",
    )
    TOPOLOGY_SIZES_DIFFER = (
        "TopologySizesDiffer",
        Group.FILTER,
        texts.format_topology_sizes,
        "kubelet's topology manager would reject the pod: its resources need different numbers of NUMA nodes.",
        "Request fewer devices, or set `topologyManagerPolicy: best-effort` on the node.",
    )
    TOPOLOGY_DEVICES_BUSY = (
        "TopologyDevicesBusy",
        Group.FILTER,
        texts.format_topology_devices,
        "kubelet's topology manager would reject the pod: the free devices are on different NUMA nodes.",
        "Request fewer devices, or set `topologyManagerPolicy: best-effort` on the node.",
    )
    SESSION_UNKNOWN = (
        "SessionUnknown",
        Group.FILTER,
        ("railwright restarted during this session and does not know where the gang's first pods are; retry the gang"),
        "The extender restarted during Volcano's session and does not know where the gang's first pods are.",
        "None needed: Volcano places the gang again in its next session.",
    )

    # --- other properties of nodes ----------------------------------------------------------------------------

    NODE_UNKNOWN = (
        "NodeUnknown",
        Group.NODE,
        "the cache does not contain this node yet: it is feasible and scores 0",
        "The cache does not contain the node yet; it is feasible and scores 0.",
        "If it persists, check the extender's access to nodes.",
    )
    NODE_NOT_SCORED = (
        "NodeNotScored",
        Group.NODE,
        "feasible; the scheduler requested no score",
        "The node is feasible, and the scheduler requested no score because it had no other choice.",
    )
    ONE_NODE_LEFT = (
        "OneNodeLeft",
        Group.NODE,
        "node {node} was the only one left, so the scheduler did not ask for scores",
        "One node passed all filters. kube-scheduler takes it and asks for no score, so nothing was compared.",
    )
    NOT_ASKED = (
        "NotAsked",
        Group.NODE,
        "{scheduler} does not ask about the pod while its own plugins reject every node; the extender has looked",
        "The scheduler's own plugins reject every node, so it asks for no score. The extender has looked at all nodes.",
        "See the other reasons: what is used, and by whom.",
    )
    ALL_NODES_REJECTED = (
        "AllNodesRejected",
        Group.NODE,
        "every candidate node was rejected, each for the reason in its row",
        "Every candidate node was filtered.",
        "See the reason of each node.",
    )
    NODE_INELIGIBLE = (
        "NodeIneligible",
        Group.NODE,
        "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity",
        "The node is cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity.",
        "Uncordon or repair the node, or change the pod's tolerations or selector.",
    )
    DEVICE_SHORTAGE = (
        "DeviceShortage",
        Group.NODE,
        "{device} has {free} of {allocatable} free, {needed} needed",
        "Too few devices of a resource are free.",
        "Wait, or end one of the pods that use them.",
    )
    OTHER_RESOURCES = (
        "OtherResources",
        Group.NODE,
        "too little CPU or memory, or too many pods",
        "The node has too little CPU or memory, or too many pods.",
        "Request less CPU or memory, or remove other pods from the node.",
    )
    RAIL_SHORTAGE = (
        "RailShortage",
        Group.NODE,
        texts.format_rail_shortage,
        "Too few devices of a rail are free; the pods that use them are named.",
        "Wait, or end one of these pods.",
    )
    NUMA_SPLIT = (
        "NumaSplit",
        Group.NODE,
        "NUMA splits",
        "GPUs and rails are on different NUMA nodes.",
        "Free devices on one NUMA node, or request fewer devices.",
    )
    RAIL_NOT_FREE = (
        "RailNotFree",
        Group.NODE,
        "{rail} not free",
        "A rail of the pod is in use.",
        "Wait, or end the pod that uses it.",
    )
    RAIL_DEAD = (
        "RailDead",
        Group.NODE,
        "{rail} dead or absent",
        "The node has no allocatable device of the rail.",
        "Check the device plugin and the NIC of that node.",
    )
    RAIL_DEGRADED = (
        "RailDegraded",
        Group.NODE,
        "{rail} degraded",
        "The device plugin reports some devices of the rail as unhealthy.",
        "Check the device plugin and the NIC of that node.",
    )
    NICS_SHARED = (
        "NicsShared",
        Group.NODE,
        "NICs shared with other pods",
        "Other pods share the NICs.",
        "Request whole NICs, or move one of the pods.",
    )
    TOO_FEW_NICS = (
        "TooFewNics",
        Group.NODE,
        "too few NICs for {pods:count pod} of the gang",
        "The node has enough devices but too few NICs for several pods of the gang.",
        "Use one pod for each node, or fewer pods per node.",
    )
    PEER_RAIL_MISSING = (
        "PeerRailMissing",
        Group.NODE,
        "{node}: a rail is missing on another pod's node",
        "The pod cannot use a rail because the node of another pod of the gang lacks it.",
        "Place the gang on nodes that have the same rails.",
    )
    UPLINKS_LIMIT = (
        "UplinksLimit",
        Group.NODE,
        texts.format_uplinks,
        "The oversubscribed uplinks of a domain carry less than the nodes could send.",
        "Place the gang below one switch, or correct `placement.oversubscription`.",
    )
    DEGRADED_NODES = (
        "DegradedNodes",
        Group.NODE,
        "{reason} on {nodes:count node}",
        "Counts the nodes with a degradation.",
        "See the code it contains.",
    )
    BLOCKED_NODES = (
        "BlockedNodes",
        Group.NODE,
        "{nodes:count node}: {reason}",
        "Counts the nodes without a slot, with the cause.",
        "See the cause.",
    )
    DEVICE_IN_USE = (
        "DeviceInUse",
        Group.NODE,
        "{device} on {node} is used by {pods}",
        "Names the pods that use a missing device.",
        "Wait, or end one of these pods.",
    )
    DEGRADED_MEMBER = (
        "DegradedMember",
        Group.NODE,
        "{node}: {causes}",
        "The node of a slowest pod of the gang, with the causes.",
        "See the causes.",
    )

    # --- gangs ------------------------------------------------------------------------------------------------

    CAPACITY_NEVER = (
        "CapacityNever",
        Group.GANG,
        texts.format_capacity_never,
        "The gang does not fit even if no other pod runs, so waiting does not help.",
        "Reduce the gang or its requests, or add nodes; uncordon nodes that are to be used.",
    )
    CAPACITY_INSUFFICIENT = (
        "CapacityInsufficient",
        Group.GANG,
        texts.format_capacity,
        "The cluster has too few slots for the pods that remain.",
        "Wait, add nodes, or reduce the gang.",
    )
    GANG_RAILS_SAME = (
        "GangRailsSame",
        Group.GANG,
        (
            "all pods of the gang take {rails} (claims.gangRails: same), also two of them on one node; other free "
            "rails of a node do not count"
        ),
        (
            "All pods of the gang take the same rails. A node where others or a pod of the gang hold these does not "
            "help."
        ),
        "Wait for these rails, end what holds them, or set `claims.gangRails: any` for new gangs.",
    )
    CAPACITY_NOT_OFFERED = (
        "CapacityNotOffered",
        Group.GANG,
        texts.format_capacity_not_offered,
        "The cluster has enough slots, but the scheduler does not offer all of these nodes.",
        "Check the job's node selector, affinity, tolerations and queue, and the topology key of its PodGroup.",
    )
    NODES_BLOCKED = (
        "NodesBlocked",
        Group.GANG,
        "{causes:semicolons}",
        "The most frequent causes for which nodes have no slot.",
        "See the causes.",
    )
    DEVICES_IN_USE = (
        "DevicesInUse",
        Group.GANG,
        "{causes:semicolons}",
        "The pods that use the missing devices of a few nodes.",
        "Wait, or end one of these pods.",
    )
    EARLIER_GANGS = (
        "EarlierGangs",
        Group.GANG,
        "nodes are left to gangs that have begun: {gangs}",
        "Nodes are left to the other pods of gangs that have begun.",
        "Recreate the gang when these are placed, if its placement matters.",
    )
    LEAVES_MINIMUM = (
        "LeavesMinimum",
        Group.GANG,
        texts.format_minimum_leaves,
        "No fewer leaves have enough slots at this bandwidth.",
        "Free nodes of one leaf, or reduce the gang.",
    )
    FEWER_LEAVES_NOT_OFFERED = (
        "FewerLeavesNotOffered",
        Group.GANG,
        texts.format_fewer_leaves_not_offered,
        "Fewer leaves have enough slots, but the scheduler does not offer their nodes.",
        "Check the job's node selector, affinity, tolerations and queue.",
    )
    FEWER_LEAVES_UPLINKS = (
        "FewerLeavesUplinks",
        Group.GANG,
        "fewer leaves ({leaves}) have enough slots, but {causes}",
        "Fewer leaves have enough slots, but their uplinks carry less.",
    )
    FEWER_LEAVES_PEERS = (
        "FewerLeavesPeers",
        Group.GANG,
        texts.format_fewer_leaves_peers,
        "Fewer leaves have enough slots, but other pods of the gang are placed elsewhere already.",
        "Recreate the gang to place all of its pods together.",
    )
    FEWER_LEAVES_NODE_TYPE = (
        "FewerLeavesNodeType",
        Group.GANG,
        texts.format_fewer_leaves_node_type,
        "Fewer leaves have enough slots, but not of the node type that the gang uses.",
    )
    FEWER_LEAVES_UNTRIED = (
        "FewerLeavesUntried",
        Group.GANG,
        "fewer leaves ({leaves}) have enough slots, but not every choice was tried",
        "Fewer leaves have enough slots, but the planner did not try every choice.",
    )
    FEWER_LEAVES_SLOWER = (
        "FewerLeavesSlower",
        Group.GANG,
        texts.format_fewer_leaves_slower,
        "Fewer leaves have enough slots, but at a lower bandwidth.",
        "See the causes.",
    )
    SINGLE_POD_PACKED = (
        "SinglePodPacked",
        Group.GANG,
        (
            "modelled at {bandwidth:.2f} of the bandwidth: a single-pod job fills partly used nodes first, and none "
            "of the fullest nodes that fit has more bandwidth"
        ),
        "A single-pod job fills partly used nodes first, and none that fits has more bandwidth.",
    )
    UNLABELLED_NODES = (
        "UnlabelledNodes",
        Group.GANG,
        (
            "only nodes without a topology label have slots for the {slots_needed:count pod} still to be placed: "
            "label these nodes"
        ),
        "Only nodes without a topology label have slots.",
        "Label these nodes (docs/reference/policy.md, `placement.domains`).",
    )
    BANDWIDTH_UPLINKS = (
        "BandwidthUplinks",
        Group.GANG,
        "at most {bandwidth:.2f} of the bandwidth: {causes}",
        "The uplinks of the planned leaves limit the bandwidth.",
        "Free nodes of one leaf, or reduce the gang.",
    )
    BANDWIDTH_NOT_OFFERED = (
        "BandwidthNotOffered",
        Group.GANG,
        texts.format_bandwidth_not_offered,
        "Faster nodes have enough slots, but the scheduler does not offer them.",
        "Check the job's node selector, affinity, tolerations and queue.",
    )
    BANDWIDTH_UNTRIED = (
        "BandwidthUntried",
        Group.GANG,
        "at most {bandwidth:.2f} of the bandwidth: not every choice was tried",
        "Faster nodes have enough slots, but the planner did not try every choice.",
    )
    FASTER_NODES_TOO_FEW = (
        "FasterNodesTooFew",
        Group.GANG,
        texts.format_faster_nodes,
        "Faster nodes have too few slots for the gang.",
        "See the causes: free or repair these nodes.",
    )
    RAILS_LOST = (
        "RailsLost",
        Group.GANG,
        texts.format_rails_lost,
        "The gang runs without some rails, because too few nodes have them free.",
        "Free or repair these rails.",
    )
    PLAN_NOT_EXACT = (
        "PlanNotExact",
        Group.GANG,
        texts.format_not_exact,
        "The planner did not try every choice; the bound of the possible gain is given.",
    )
    POLICIES_DIFFER = (
        "PoliciesDiffer",
        Group.GANG,
        texts.format_policies_differ,
        "Pods of the gang were admitted under different versions of the policy.",
        "Recreate the pods that are not under the current version.",
    )
    PLACEMENT = (
        "Placement",
        Group.GANG,
        texts.format_placement,
        "The placement of a gang, compared with the best possible when it was planned.",
        "See the causes; recreate the gang to place it again.",
    )
    PODS_MISSING = (
        "PodsMissing",
        Group.GANG,
        texts.format_pods_missing,
        "Some pods of the gang do not exist yet.",
        "Check the job's controller, quota and admission.",
    )
    FITS_NOW = (
        "FitsNow",
        Group.GANG,
        "the {pods} that remain fit now, on {leaves:count leaf} ({leaves}); the scheduler has not placed them",
        "The remaining pods fit now, and the scheduler has not placed them.",
        "Wait, or check the scheduler and its queue.",
    )
    NODES_FIT = (
        "NodesFit",
        Group.GANG,
        "{fit} of {nodes:count node} could take one of its pods now",
        "Counts the nodes that could run one of the gang's pods now.",
    )
    BETTER_PLAN = (
        "BetterPlan",
        Group.GANG,
        "recreated now, it could have {bandwidth:.2f} on {leaves:count leaf} ({leaves})",
        "A better placement is possible now.",
        "Recreate the gang to place it again.",
    )
    FEWER_LEAVES_POSSIBLE = (
        "FewerLeavesPossible",
        Group.GANG,
        "recreated now, it could have the same bandwidth on {leaves:count leaf} ({leaves})",
        "The same bandwidth is possible on fewer leaves now.",
        "Recreate the gang to leave more room for others.",
    )
    PEERS_LACK_RAILS = (
        "PeersLackRails",
        Group.GANG,
        "{pods:count more member}: a rail is missing on another pod's node",
        "Counts the pods that cannot use a rail because the node of another pod lacks it.",
        "Place the gang on nodes that have the same rails.",
    )
    FABRIC_UNDEFINED = (
        "FabricUndefined",
        Group.GANG,
        "the fabric of these pods is not defined in the current policy, or is in audit mode, so no plan is made",
        "The current policy does not define the fabric of these pods, or has it in audit mode.",
        "Define the fabric, or recreate the pods with a defined one.",
    )
    DOMAINS_UNDEFINED = (
        "DomainsUndefined",
        Group.GANG,
        "the policy names no domains: leaves and crossings are not modelled",
        "The policy names no domains, so leaves and crossings are not modelled.",
        "Set `placement.domains` or `placement.preset`.",
    )

    # --- scores -----------------------------------------------------------------------------------------------

    PARTLY_USED_FIRST = (
        "PartlyUsedFirst",
        Group.SCORE,
        "a single-pod job fills partly used nodes first, on any leaf",
        "A single-pod job fills partly used nodes first.",
    )
    OTHERS_PARTLY_USED = (
        "OthersPartlyUsed",
        Group.SCORE,
        "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes",
        "Other nodes are partly used and fit the single-pod job without a NUMA split.",
    )
    NODE_TYPE_DIFFERS = (
        "NodeTypeDiffers",
        Group.SCORE,
        texts.format_node_type_differs,
        "The gang uses another node type.",
    )
    NODE_TOO_SLOW = (
        "NodeTooSlow",
        Group.SCORE,
        "{leaf} is a planned leaf, but this node would slow the gang down",
        "The node would slow the gang down.",
    )
    NODE_RESERVED = (
        "NodeReserved",
        Group.SCORE,
        (
            "{leaf} is the target leaf, but other nodes in it should be filled first (this node is idle, or would "
            "split the pod across NUMA nodes)"
        ),
        "Other nodes of the target leaf should be filled first.",
    )
    TIGHTEST_LEAF = (
        "TightestLeaf",
        Group.SCORE,
        "{leaf} is the tightest leaf that fits the pod",
        "The leaf is the tightest one that fits the pod.",
    )
    TARGET_LEAF = ("TargetLeaf", Group.SCORE, texts.format_target_leaf, "The leaf is the target of this rank.")
    PLANNED_LEAF = (
        "PlannedLeaf",
        Group.SCORE,
        "{leaf} is leaf {position} of {leaves} in the gang's plan",
        "The gang's plan uses the leaf for other ranks.",
    )
    SIBLING_LEAF = (
        "SiblingLeaf",
        Group.SCORE,
        "{leaf} has the same parent as the target leaf {target}",
        "The leaf has the same parent as the target leaf.",
    )
    UNPLANNED_LEAF = (
        "UnplannedLeaf",
        Group.SCORE,
        "{leaf} is not in the gang's plan",
        "The gang's plan does not use the leaf.",
    )
    NUMA_UNKNOWN = (
        "NumaUnknown",
        Group.SCORE,
        "NUMA layout unknown",
        "The NUMA layout of the node is unknown.",
        "Define `nodeShapes`, or run a NodeResourceTopology exporter.",
    )
    NUMA_DEVICES_BUSY = (
        "NumaDevicesBusy",
        Group.SCORE,
        "NUMA nodes have too few free GPUs or rails",
        "The NUMA nodes have too few free GPUs or rails.",
    )
    NUMA_GPUS_TOGETHER = (
        "NumaGpusTogether",
        Group.SCORE,
        "GPUs on NUMA node {zones}",
        "The GPUs are on as few NUMA nodes as possible.",
    )
    NUMA_GPUS_SPLIT = (
        "NumaGpusSplit",
        Group.SCORE,
        "GPUs split over NUMA nodes {zones}",
        "The GPUs are split over NUMA nodes.",
    )
    NUMA_ALIGNED = (
        "NumaAligned",
        Group.SCORE,
        "GPUs and rails together on NUMA node {zones}",
        "GPUs and rails are on the same NUMA nodes.",
    )
    NUMA_PARTLY_LOCAL = (
        "NumaPartlyLocal",
        Group.SCORE,
        "{local} of {needed:count rail} local to their GPUs, NUMA nodes {zones}",
        "Some rails are on another NUMA node than their GPUs.",
    )
    NO_DEVICES_REQUESTED = (
        "NoDevicesRequested",
        Group.SCORE,
        "the pod requests no accelerator or rail",
        "The pod requests no accelerator or rail.",
    )
    DEVICES_UTILIZED = (
        "DevicesUtilized",
        Group.SCORE,
        "{share:.0%} of its {devices} in use with this pod",
        "The share of the node's devices in use with this pod.",
    )
    NO_RAILS_NEEDED = ("NoRailsNeeded", Group.SCORE, "the pod needs no rails", "The pod needs no rails.")
    TERM_DETAIL = (
        "TermDetail",
        Group.SCORE,
        "{detail}",
        "The score of a term that has no code of its own; the parameter `detail` explains it.",
    )
    RAILS_FREE = (
        "RailsFree",
        Group.SCORE,
        texts.format_rails_free,
        "How many of the pod's rails are free, and which are degraded.",
    )


class AdmissionCode(ReasonCode):
    """A code of admission: what its warnings report, and why an injection record has an entry in `skipped`."""

    def __new__(cls, name: str, template: texts.Template, meaning: str, fix: str = "") -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.group, code.template, code.meaning, code.fix = Group.ADMISSION, template, meaning, fix
        return code

    # --- audit mode -------------------------------------------------------------------------------------------

    WOULD_INJECT = (
        "WouldInject",
        ("fabric {fabric} is in audit mode, so nothing is changed; with `mode: enforce` the pod would get {parts:all}"),
        "The fabric is in audit mode: the pod is not changed, and the warning names what would be added.",
        "Set `mode: enforce` in the policy to have it added.",
    )
    WOULD_REJECT = (
        "WouldReject",
        texts.format_audited_rejection,
        "The fabric is in audit mode: the object is admitted unchanged, and would be rejected otherwise.",
        "See the code of the rejection.",
    )

    # --- left out as the author or the policy says ------------------------------------------------------------

    SKIPPED_BY_ANNOTATION = (
        "SkippedByAnnotation",
        f"by annotation {names.SKIP}",
        "The annotation `railwright.io/skip` names it.",
        "Remove the word from the annotation, unless that is intended.",
    )
    DISABLED_BY_POLICY = (
        "DisabledByPolicy",
        "disabled by policy",
        "The policy disables it for this fabric.",
        "Ask the operator to set `preflight.enabled`, if it is missed.",
    )
    NO_RAILS = ("NoRails", "no rails", "The pod has no rails to check.")
    PREFLIGHT_WITHOUT_DEVICES = (
        "PreflightWithoutDevices",
        f"annotation {names.SKIP} leaves out the devices that preflight checks",
        "The annotation `railwright.io/skip` leaves out the devices that the preflight checks.",
        "Remove `devices` from the annotation, or request them in the container.",
    )
    OWN_CLAIM = (
        "OwnClaim",
        "the pod's claim {claim:short} names a template for NICs of fabric {fabric} that railwright did not write",
        "The pod names a ResourceClaimTemplate for NICs of the fabric that railwright did not write, and keeps it.",
        "Remove the claim from the pod to get railwright's.",
    )
    EXCLUDED_BY_POLICY = (
        "ExcludedByPolicy",
        texts.format_exclusion,
        "The policy sets `roles.volcanoTasks` or `roles.launchers` to `never` for this pod.",
        "Ask the operator to change the key, if the pod is a rank.",
    )
    HELPER_POD = (
        "HelperPod",
        (
            "the pod has no accelerators, and others of its workload have them, so it is no rank; annotation "
            f"{names.CONTAINERS} of the template makes it one"
        ),
        "The pod has no accelerators, and others of its workload have them, so it is no rank and gets no rails.",
        "If it is a rank, name its container in `railwright.io/containers` of the template.",
    )
    LAUNCHER_WITHOUT_ACCELERATORS = (
        "LauncherWithoutAccelerators",
        "a launcher without accelerators sends no data",
        "A launcher without accelerators sends no data, so it gets no rails.",
    )
    HEAD_WITHOUT_ACCELERATORS = (
        "HeadWithoutAccelerators",
        "a Ray head without accelerators sends no data",
        "A Ray head without accelerators sends no data, so it gets no rails.",
    )
    INITIALIZER = (
        "Initializer",
        "an initializer sends no data over the fabric",
        "An initializer sends no data over the fabric, so it gets no rails.",
    )
    SUBMITTER = (
        "Submitter",
        "a cleanup or submitter pod sends no data",
        "A cleanup or submitter pod sends no data, so it gets no rails.",
    )
    CONTAINERS_IGNORED = (
        "ContainersIgnored",
        (
            f"annotation {names.CONTAINERS} {{value:short}} has no effect: {{cause}}; if a container is a rank, "
            "request an accelerator in it"
        ),
        "`railwright.io/containers` has no effect, because the pod gets no rails.",
        "If a container is a rank, request an accelerator in it.",
    )
    RAILS_WITHOUT_ACCELERATORS = (
        "RailsWithoutAccelerators",
        (
            "the pod requests no {accelerators:short} and gets {rails} of fabric {fabric}, which other pods of "
            f"its node then lack; remove label {names.FABRIC}, or set annotation {names.RAILS} if it needs them"
        ),
        "The pod requests no accelerator and gets rails, which other pods of its node then lack.",
        "Remove the label, or say that it is meant: `railwright.io/rails` or `railwright.io/containers`.",
    )

    # --- networks ---------------------------------------------------------------------------------------------

    HOST_NETWORK = (
        "HostNetwork",
        texts.format_host_network,
        "`hostNetwork` is true, so the pod gets no networks and no `NCCL_SOCKET_IFNAME`.",
        "Remove `hostNetwork`, or set `NCCL_SOCKET_IFNAME`.",
    )
    DEFAULT_ROUTE = (
        "DefaultRoute",
        (
            f"annotation {names.NETWORKS}: entry {{entry}} has default-route, which takes the default route from every "
            "other interface of the pod; remove it unless that is intended"
        ),
        "An entry of the networks annotation takes the default route from every other interface.",
        "Remove `default-route` from the entry, unless that is intended.",
    )
    NETWORK_MISSING = (
        "NetworkMissing",
        (
            f"annotation {names.NETWORKS}: NetworkAttachmentDefinition {{network:short}} of entry {{entry}} does not "
            "exist, and the pod's sandbox cannot start without it; create it or correct the entry"
        ),
        "A NetworkAttachmentDefinition in the networks annotation does not exist.",
        "Create it, or correct the entry.",
    )

    # --- devices ----------------------------------------------------------------------------------------------

    SKIPPED_DEVICES_NEEDED = (
        "SkippedDevicesNeeded",
        (
            f"annotation {names.SKIP} leaves out devices, and the pod requests too few of {{resources:short}} for its "
            "networks, so its sandbox cannot start; request them, or add networks to the annotation"
        ),
        "`railwright.io/skip` leaves out devices that the pod's networks need.",
        "Request the devices, or skip the networks too.",
    )
    NETWORK_DEVICES_NOT_REQUESTED = (
        "NetworkDevicesNotRequested",
        (
            f"annotation {names.NETWORKS}: its networks use {{resources:short}}, and the pod requests too few, so it "
            "cannot start; request them, or remove the networks from this {role}"
        ),
        "A pod without rails requests too few devices for its own networks.",
        "Request the devices, or remove the networks.",
    )
    RAIL_WITHOUT_RESOURCE = (
        "RailWithoutResource",
        (
            "no device is requested for {rails:short}, because neither the policy nor a network names a resource for "
            "it; ask the operator to set `resource` of the rail in the policy of fabric {fabric}"
        ),
        "Neither the policy nor a network names a resource for a rail, so no device is requested.",
        "Ask the operator to set `resource` of the rail.",
    )
    GPUS_NOT_CLAIMED = (
        "GpusNotClaimed",
        texts.format_unclaimed_gpus,
        (
            "Several containers request GPUs or get the fabric, so the claims have none, and nothing pairs GPUs with "
            "NICs."
        ),
        "Request all GPUs in one container.",
    )
    GPUS_EXCEED_NODE = (
        "GpusExceedNode",
        (
            "the pod requests {count} {resource}, and a node of fabric {fabric} has {limit}: it stays pending; "
            "request at most {limit}, or ask the operator to correct fabrics.{fabric}.gpusPerNode"
        ),
        "The pod requests more accelerators than a node of the fabric has, so it stays Pending.",
        "Request fewer, or ask the operator to correct `gpusPerNode`.",
    )
    RAIL_RESOURCES_DIFFER = (
        "RailResourcesDiffer",
        (
            "{rail:short}: the policy requests {resource:short} and the network uses {network_resource:short}, so "
            "both are requested; ask the operator to correct `resource` of the rail"
        ),
        "The policy and the rail's network name different resources, so both are requested.",
        "Ask the operator to correct `resource` of the rail.",
    )
    RAIL_DEVICES_NOT_OFFERED = (
        "RailDevicesNotOffered",
        (
            "no node offers {resources:short}, which {rails:short} needs: the pod stays pending until a node does; "
            "ask the operator to check the device plugin and `resource` of the rail"
        ),
        "No node has a resource of a rail, so the pod stays Pending.",
        "Ask the operator to check the device plugin and `resource` of the rail.",
    )
    NETWORK_DEVICES_NOT_OFFERED = (
        "NetworkDevicesNotOffered",
        (
            "no node offers {resources:short}, which network {networks:short} uses: the pod stays pending; "
            f"correct annotation {names.NETWORKS}, or ask the operator for its device plugin"
        ),
        "No node has the resource of a network of the pod, so the pod stays Pending.",
        "Correct the networks annotation, or ask the operator for the device plugin.",
    )
    REQUESTED_DEVICES_NOT_OFFERED = (
        "RequestedDevicesNotOffered",
        (
            "container {container} requests {resources:short}, which no node offers: the pod stays pending until a "
            "node does; remove the request if it is left from an older template"
        ),
        "A container requests a resource that no node has.",
        "Remove the request, if it is left from an older template.",
    )

    # --- mounts and privileges --------------------------------------------------------------------------------

    PATH_OCCUPIED = (
        "PathOccupied",
        "container {containers:short} mounts {path} itself",
        "The container mounts something else at the path.",
        "Remove that mount.",
    )
    HOST_MEMORY = (
        "HostMemory",
        texts.format_host_memory,
        "The pod has the host's `/dev/shm`, by `hostIPC` or a mount of `/dev`.",
    )
    POD_SECURITY_FORBIDS = (
        "PodSecurityForbids",
        (
            "namespace {namespace} enforces pod-security level {level}, which forbids {setting}: it is left out; if "
            "NCCL fails without it, run the pod in a privileged namespace"
        ),
        "The pod-security level of the namespace forbids a setting, so it is left out.",
        "If NCCL fails without it, run the pod in a privileged namespace.",
    )
    CAPABILITY_DROPPED = (
        "CapabilityDropped",
        (
            "container {containers:short}: remove {capability} from securityContext.capabilities.drop if NCCL is to "
            "register memory with the NIC; fabric {fabric} does not add what a container drops by name"
        ),
        "The container drops the capability by name, so it is not added.",
        "Remove it from `capabilities.drop`.",
    )
    LOCKING_IN_USER_NAMESPACE = (
        "LockingInUserNamespace",
        (
            "spec.hostUsers is false: {capability} has no effect in a user namespace, and NCCL may fail to register "
            f"memory; remove hostUsers, or {_MEMLOCK}"
        ),
        "`hostUsers` is false, so `IPC_LOCK` has no effect.",
        "Remove `hostUsers`, or set `LimitMEMLOCK=infinity` for the container runtime.",
    )
    LOCKING_WITHOUT_ROOT = (
        "LockingWithoutRoot",
        (
            "container {containers:short} does not run as root: {capability} has no effect, and NCCL may fail to "
            f"register memory; run it as root, or {_MEMLOCK}"
        ),
        "The container does not run as root, so `IPC_LOCK` has no effect.",
        "Run it as root, or set `LimitMEMLOCK=infinity` for the container runtime.",
    )

    # --- variables --------------------------------------------------------------------------------------------

    VARIABLE_FORCED = (
        "VariableForced",
        (
            "container {container}: remove {variable} from the pod; the pod's own value was replaced, because the "
            "policy of fabric {fabric} forces {variable}={value}"
        ),
        "The policy's `forceEnv` replaced a value of the pod.",
        "Remove the variable from the pod.",
    )
    VARIABLE_FORCED_AT_BINDING = (
        "VariableForcedAtBinding",
        (
            "container {container}: remove {variable} from the pod; the pod's own value was removed: the policy of "
            "fabric {fabric} forces {variable}, which is written at binding"
        ),
        "The policy's `forceEnv` removed a value of the pod; the forced one is written at binding.",
        "Remove the variable from the pod.",
    )
    ENV_FROM_OVERRIDDEN = (
        "EnvFromOverridden",
        (
            "container {container}: the policy forces {variable}={value:short}, which overrides any {variable} from "
            "envFrom; remove it there"
        ),
        "The policy's `forceEnv` overrides a value that `envFrom` may set.",
        "Remove the variable from the source of `envFrom`.",
    )
    VARIABLES_LEFT_TO_ENV_FROM = (
        "VariablesLeftToEnvFrom",
        (
            "container {container} has envFrom, so {variables:short} is not set: it would override envFrom; set it in "
            "env or in its source"
        ),
        "Variables are not set, because they would override `envFrom`.",
        "Set them in `env`, or in the source of `envFrom`.",
    )
    WRITTEN_AT_BINDING = (
        "WrittenAtBinding",
        "written at binding",
        "The value depends on the node and is written at binding.",
    )
    NODE_NAME_SET = (
        "NodeNameSet",
        (
            "spec.nodeName is set: no scheduler binds the pod, so {variable} is not written for its node; select the "
            "node by nodeSelector instead"
        ),
        "`nodeName` is set, so no scheduler binds the pod and no value is written for its node.",
        "Select the node by `nodeSelector`.",
    )
    CONFIG_REPLACED = (
        "ConfigReplaced",
        f"annotation {names.NCCL_CONF} is written by railwright; its value was replaced; remove it",
        "A user's value of `railwright.io/nccl.conf` was replaced.",
        "Remove the annotation.",
    )
    CONFIG_PATH_OCCUPIED = (
        "ConfigPathOccupied",
        (
            "container {container} mounts {path} itself; remove that mount, or set the NCCL settings of fabric "
            "{fabric} in env"
        ),
        "A container mounts `/etc/nccl.conf` or `/etc` itself, so it does not get the file.",
        "Remove that mount, or set the NCCL settings in `env`.",
    )

    # --- keys of railwright -----------------------------------------------------------------------------------

    KEY_ON_WORKLOAD = (
        "KeyOnWorkload",
        texts.format_workload_key,
        "An annotation of a workload has no effect, because it is read on pods.",
        "Move it to the pod template.",
    )
    KEY_OF_NAMESPACE = (
        "KeyOfNamespace",
        f"{_KEY}: railwright reads it as a label of the namespace; move it there",
        "The key has an effect as a label of the namespace only.",
        "Move it to the namespace.",
    )
    KEY_WRITTEN_BY_RAILWRIGHT = (
        "KeyWrittenByRailwright",
        f"{_KEY}: only railwright writes it, as an annotation; remove it",
        "Only railwright writes the key, as an annotation.",
        "Remove it.",
    )
    KEY_MISPLACED = (
        "KeyMisplaced",
        texts.format_misplaced_key,
        "A label is written as an annotation or the reverse.",
        "Move it.",
    )
    KEY_UNKNOWN = (
        "KeyUnknown",
        texts.format_unknown_key,
        "There is no such key.",
        "Use the key that the message suggests.",
    )
    MORE_KEYS = (
        "MoreKeys",
        f"more keys of {names.DOMAIN} have no effect; correct these first",
        "More keys have no effect than the warnings name.",
        "Correct the named ones first.",
    )

    # --- records and bindings ---------------------------------------------------------------------------------

    RECORD_TOO_LARGE = (
        "RecordTooLarge",
        (
            f"annotation {names.INJECTION} is left out: the pod's annotations are at their limit of 256 KiB; shorten "
            "some of them"
        ),
        "The injection record does not fit into the pod's annotations.",
        "Shorten other annotations.",
    )
    BOUND_POD_UNKNOWN = (
        "BoundPodUnknown",
        f"pod {{pod}} is not known to railwright yet: annotation {names.PLACEMENT} is not written",
        "The cache does not contain the pod that is bound, so its placement is not written.",
        "If it persists, check the webhook's access to pods.",
    )
    BOUND_NODE_UNKNOWN = (
        "BoundNodeUnknown",
        texts.format_unknown_node,
        "The node of a Binding is empty or not in the cache, so the placement is not written.",
        "If it persists, check the webhook's access to nodes.",
    )
    BOUND_DEVICES_UNKNOWN = (
        "BoundDevicesUnknown",
        texts.format_unknown_devices,
        "As `BoundNodeUnknown`, and the pod's device list is not written either.",
        "Delete the pod, so that it is bound again.",
    )
    ALLOCATION_UNKNOWN = (
        "AllocationUnknown",
        (
            "the devices of {claims:short} are not known to railwright yet, so NCCL_IB_HCA names none and NCCL does "
            "not start; delete the pod so that it is bound again"
        ),
        (
            "The devices of a claim are not known when the pod is bound, so NCCL gets no list of them and does not "
            "start."
        ),
        "Delete the pod. If it persists, check the webhook's access to ResourceClaims.",
    )
    ALLOCATED_DEVICES_UNNAMED = (
        "AllocatedDevicesUnnamed",
        (
            "no ResourceSlice names the RDMA device of {devices:short}, so NCCL_IB_HCA names none and NCCL does not "
            "start; check the driver, or set the device of the rail in the policy"
        ),
        "No RDMA device name is known of a device that a claim holds, so NCCL gets no list and does not start.",
        "Ask the operator to check the driver's ResourceSlices, or to set `device` of the rail.",
    )
    PLACED_WITHOUT_EXTENDER = (
        "PlacedWithoutExtender",
        (
            "scheduler {scheduler} placed pods without railwright's extender: {problem}; the gang may be spread over "
            "more leaves than needed: the administrator finds the cause with `railwright check`, then create the job "
            "again"
        ),
        "A scheduler placed the pod without asking the extender, so the gang may use more leaves than needed.",
        "Run `railwright check`, and delete the job's pods to place them again.",
    )
    PLACEMENT_TOO_LARGE = (
        "PlacementTooLarge",
        "the pod's annotations are at their limit of 256 KiB: its placement is not recorded",
        "The placement does not fit into the pod's annotations.",
        "Shorten other annotations.",
    )

    # --- workloads --------------------------------------------------------------------------------------------

    POLICY_MISSING = (
        "PolicyMissing",
        (
            "railwright has no policy in force yet: no devices are added to the templates, and their pods are "
            "rejected until it has one; if it is not just starting, the administrator finds the cause with "
            "`railwright check`"
        ),
        "No policy is in force, so nothing is added to the templates.",
        "If the webhook is not just starting, run `railwright check`.",
    )
    PODS_REJECTED = (
        "PodsRejected",
        "{message}; its pods are rejected until then{rejection:omit}",
        "The pods of a template would be rejected now; the parameter `rejection` has the code.",
        "See the code of the rejection.",
    )
    LABEL_OVERRIDDEN = (
        "LabelOverridden",
        (
            f"its own label {names.FABRIC} {{label}} takes precedence over the changed label of the {{kind}}; change "
            "it in the template too"
        ),
        "The label of a template takes precedence over the workload's changed label.",
        "Change the label in the template too.",
    )
    LABEL_NOT_PASSED = (
        "LabelNotPassed",
        (
            f"label {names.FABRIC} {{value!r}} of the {{kind}} has no effect: a {{kind}} passes no label to its pods; "
            "set it in {template}.metadata.labels"
        ),
        "The label is on an object of a kind that passes no label to its pods, such as a CronJob.",
        "Set the label in the pod template.",
    )
    LABEL_TOO_LATE = (
        "LabelTooLate",
        (
            f"label {names.FABRIC} {{value!r}} of the {{kind}} comes too late: its template cannot change any more, so "
            "its pods do not get the label; delete the {kind}, and create it again with the label"
        ),
        "A label is added to a workload whose template cannot change, so its pods do not get it.",
        "Delete the workload, and create it again with the label.",
    )
    TEMPLATE_IMMUTABLE = (
        "TemplateImmutable",
        (
            "the template of a {kind} cannot change, and this update does more than remove what railwright added at "
            "creation; undo the other changes, or delete the {kind} and create it again"
        ),
        "An update changes an immutable template.",
        "Undo the other changes, or delete the workload and create it again.",
    )

    # --- policy -----------------------------------------------------------------------------------------------

    POLICY_NETWORK_MISSING = (
        "PolicyNetworkMissing",
        (
            "{path}: NetworkAttachmentDefinition {networks:first} does not exist, so pods with {rails:first} are "
            "rejected; create it or correct `network`"
        ),
        "A NetworkAttachmentDefinition of a rail does not exist, so pods are rejected.",
        "Create it, or correct `network`.",
    )
    POLICY_RESOURCE_UNSET = (
        "PolicyResourceUnset",
        (
            "{path}: no device is requested for {rails:first}: neither the rail's `resource` nor annotation "
            f"{names.NAD_RESOURCE_NAME} of its network names a resource; set `resource`, unless another rail's "
            "resource includes the device"
        ),
        "No resource is known for a rail, so no device is requested.",
        "Set `resource`, unless another rail's resource includes the device.",
    )
    POLICY_RESOURCES_DIFFER = (
        "PolicyResourcesDiffer",
        (
            "{path}: {rail} has resource {resource}, but its network {network} names {network_resource}, so pods "
            "request both; set both to the same resource"
        ),
        "A rail and its network name different resources, so pods request both.",
        "Set both to the same resource.",
    )
    POLICY_RESOURCE_NOT_OFFERED = (
        "PolicyResourceNotOffered",
        (
            "{path}: no node offers {resources:first} now, so pods stay Pending; check the device plugin, or correct "
            "`resource`"
        ),
        "No node has a resource of a rail, so pods stay Pending.",
        "Check the device plugin, or correct `resource`.",
    )
    POLICY_OVERRIDDEN = (
        "PolicyOverridden",
        (
            "{resource} is in force: while it exists, this ConfigMap has no effect; change the FabricPolicy, or "
            "delete one of the two"
        ),
        "A FabricPolicy is in force, so the ConfigMap that is written has no effect.",
        "Change the FabricPolicy, or delete one of the two.",
    )

    # --- lint and limits --------------------------------------------------------------------------------------

    MORE_FINDINGS = (
        "MoreFindings",
        "{count:count more finding} about NCCL settings; `railwright lint FILE` shows them all",
        "Lint has more findings than warnings.",
        "Run `railwright lint FILE`.",
    )
    LINT_TOO_LARGE = (
        "LintTooLarge",
        "the pod is too large to be linted during admission; `railwright lint` checks all of it",
        "The pod is too large to be linted at admission.",
        "Run `railwright lint FILE`.",
    )
    LINT_FAILED = (
        "LintFailed",
        "railwright could not lint this pod ({error}); nothing else is affected",
        "Lint failed; nothing else is affected.",
        "Report the error in the message.",
    )
    MORE_WARNINGS = (
        "MoreWarnings",
        "and {count:count more warning}; fix these first to see them",
        "There are more warnings than fit.",
        "Fix the named ones first.",
    )

    # --- reported by the admission policy, because the webhook did not run ------------------------------------

    NOT_INJECTED = (
        "NotInjected",
        (
            f"the pod opted in but has no annotation {names.INJECTION}: the webhook did not run for it; check that the "
            "webhook is available and has a valid policy, then recreate the pod"
        ),
        "The pod or its namespace opted in, but railwright has not injected the pod: it would use TCP.",
        "Try again; if the error persists, ask the operator to run `railwright check`.",
    )


class VariableCode(ReasonCode):
    """A reason for which a pod gets a variable, with the source of the rule."""

    words: str  # the text without the source
    source: str

    def __new__(cls, name: str, words: str, source: str = _NCCL_GUIDE) -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.words, code.source, code.template = words, source, f"{words} ({source})"
        code.group, code.fix = Group.VARIABLE, ""
        code.meaning = f"{words[0].upper()}{words[1:]} ({source})."
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
