"""Holds the text of each reason code: a format string over the parameters, or a function of them.

Reasons among the parameters are texts already. `rendering` is the only caller.
"""

from collections.abc import Callable, Mapping
from typing import Any

from railwright.fabric import text
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.fabric.reasons.reason_code import ReasonCode

Parameters = Mapping[str, Any]
Renderer = str | Callable[[Parameters], str]

FULL_BANDWIDTH = 0.995  # 0..1; higher values are formatted as full, because two decimals round them to 1.00


def format_bandwidth(value: float) -> str:
    """Format a modelled bandwidth, 0..1."""
    return "full bandwidth" if value >= FULL_BANDWIDTH else f"{value:.2f} of the bandwidth"


def _join(some: reason.Some) -> str:
    return text.join_some(map(_format_item, some.items), some.more)


def _format_item(item: Any) -> str:
    """Format an item of a list: a name, or a name with a number."""
    match item:
        case (name, number):
            return f"{name} {number}"
        case _:
            return str(item)


def _format_nodes_with(parameters: Parameters) -> str:
    return f"{parameters['reason']} on {text.format_count(parameters['nodes'], 'node')}"


def _format_nodes_blocked_by(parameters: Parameters) -> str:
    return f"{text.format_count(parameters['nodes'], 'node')}: {parameters['reason']}"


def _format_each(parameters: Parameters) -> str:
    return "; ".join(parameters["causes"].items)


def _format_because(parameters: Parameters) -> str:
    """Return the causes after a colon, or "" if there are none."""
    return f": {_join(parameters['causes'])}" if parameters["causes"].items else ""


# --- devices --------------------------------------------------------------------------------------------------


def _format_assumed_elsewhere(parameters: Parameters) -> str:
    of_node = f" of {parameters['node']}" if parameters.get("node") else ""
    return (
        f"{parameters['device']}{of_node} is assumed for a pod of another scheduler that is not bound yet: "
        f"{parameters['free']} {parameters['resource']} left, {parameters['needed']} needed"
    )


def _format_uncounted_rails(parameters: Parameters) -> str:
    return (
        f"kube-scheduler does not count {_join(parameters['resources'])}, and offers to pods of a PodGroup what it "
        "assigned to their peers; set ignoredByScheduler: false for it in managedResources"
    )


def _format_pair(parameters: Parameters) -> str:
    devices = [f"{count} {name}" for name, count in parameters["devices"].items]
    more = [f"{parameters['devices'].more} more"] if parameters["devices"].more else []
    return f"no free pair: {' and '.join([*devices, *more])} needed with the same {parameters['attribute']}"


def _format_rail_shortage(parameters: Parameters) -> str:
    holders = parameters["holders"]
    users = f", held by {', '.join(holders.items)}{' and others' if holders.more else ''}" if holders.items else ""
    return f"{parameters['rail']} has {parameters['free']} of {parameters['allocatable']} free{users}"


def _format_topology_manager(parameters: Parameters, cause: str) -> str:
    return (
        "kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
        f"{parameters['policy']}, scope {parameters['scope']}, and {cause}; "
        "request fewer devices or set topologyManagerPolicy: best-effort"
    )


def _format_topology_sizes(parameters: Parameters) -> str:
    needs = ", ".join(f"{count} {name} on {nodes}" for name, count, nodes in parameters["needs"])
    return _format_topology_manager(
        parameters,
        f"the resources need different numbers of NUMA nodes ({needs}), which {parameters['policy']} rejects",
    )


def _format_topology_devices(parameters: Parameters) -> str:
    nodes = parameters["numa_nodes"]
    subject = "no NUMA node has" if nodes == 1 else f"no {nodes} NUMA nodes have"
    requested = ", ".join(f"{count} {name}" for name, count in parameters["requested"])
    free = "; ".join(
        f"node {node}: {', '.join(f'{count} {name}' for name, count in devices)}"
        for node, devices in parameters["free"]
    )
    return _format_topology_manager(parameters, f"{subject} {requested} free together (free: {free})")


def _format_uplinks(parameters: Parameters) -> str:
    size = f"{text.format_count(parameters['nodes'], 'node')}, {parameters['oversubscription']:g}:1"
    if parameters["has_unused_links"]:
        size += ", including the uplinks of rails that the gang does not use"
    crossings = parameters["crossings"]
    share = f" for each of {crossings} crossings" if crossings > 1 else ""
    return f"the uplinks of {parameters['domain']} ({size}) carry {parameters['carried']:.2f}{share}"


# --- gangs ----------------------------------------------------------------------------------------------------


def _format_part(parameters: Parameters, part: str, whole: str, noun: str) -> str:
    """Return such as `2 of 4 rails`; `part` and `whole` are names of parameters."""
    return text.format_count(parameters[whole], noun, part=parameters[part])


def _format_remaining(parameters: Parameters) -> str:
    """Return the start of a message: the number of unplaced pods."""
    pods, slots = parameters["pods"], parameters["slots_needed"]
    if pods <= slots:
        return text.format_count(slots, "pod", "remains")
    return f"{pods} pods remain, which need as much as {slots} of the largest"


def _format_capacity(parameters: Parameters) -> str:
    names = parameters["rails"]
    rails = f", each with {names[0]}..{names[-1]}" if len(names) > reason.MAX_NAMED else ""
    if 0 < len(names) <= reason.MAX_NAMED:
        rails = f", each with {', '.join(names)}"
    return f"{_format_remaining(parameters)}{rails}; the cluster has slots for {parameters['slots']}"


def _format_same_rails(parameters: Parameters) -> str:
    rails = _join(parameters["rails"])
    return (
        f"all pods of the gang take {rails} (claims.gangRails: same), also two of them on one node; other free rails "
        "of a node do not count"
    )


def _format_not_offered(parameters: Parameters) -> str:
    leaves = parameters["not_offered"]
    return f"the scheduler offers no node of {_join(leaves)}" if leaves.items else ""


def _format_capacity_not_offered(parameters: Parameters) -> str:
    cause = _format_not_offered(parameters) or "the scheduler does not offer the others"
    return f"{_format_remaining(parameters)}; the offered nodes have slots for {parameters['slots']}; {cause}"


def _format_device_in_use(parameters: Parameters) -> str:
    return f"{parameters['device']} on {parameters['node']} is used by {_join(parameters['pods'])}"


def _format_minimum_leaves(parameters: Parameters) -> str:
    leaves, minimum, slots = parameters["leaves"], parameters["min_leaves"], parameters["slots"]
    bandwidth = format_bandwidth(parameters["bandwidth"])
    if minimum == 2:
        largest = f"the largest leaf at {bandwidth}, {leaves.items[0][0]}, has {text.format_count(slots, 'slot')}"
    else:
        largest = (
            f"the {minimum - 1} largest leaves at {bandwidth} have {text.format_count(slots, 'slot')} ({_join(leaves)})"
        )
    return f"{_format_remaining(parameters)}; {largest}; {text.format_count(minimum, 'leaf')} is the minimum"


def _format_fewer_leaves(cause: Callable[[Parameters], str]) -> Callable[[Parameters], str]:
    def render_cause(parameters: Parameters) -> str:
        return f"fewer leaves ({_join(parameters['leaves'])}) have enough slots, but {cause(parameters)}"

    return render_cause


def _format_peers_elsewhere(parameters: Parameters) -> str:
    names = [f"{name} ({count})" for name, count in parameters["peer_leaves"].items]
    placed = text.join_some(names, parameters["peer_leaves"].more)
    return f"other pods of the gang are placed on {placed}: these are filled first"


def _format_node_type(parameters: Parameters) -> str:
    return f"nodes of type {parameters['node_type']}" if parameters["node_type"] else "nodes of unknown type"


def _format_fewer_leaves_slower(parameters: Parameters) -> str:
    count = parameters["min_leaves"]
    slots = f"{text.format_count(count, 'leaf', 'has')} enough slots ({_join(parameters['leaves'])})"
    return f"{slots}, but at {parameters['bandwidth']:.2f} of the bandwidth{_format_because(parameters)}"


def _format_limited(cause: Callable[[Parameters], str]) -> Callable[[Parameters], str]:
    def render_cause(parameters: Parameters) -> str:
        return f"at most {parameters['bandwidth']:.2f} of the bandwidth: {cause(parameters)}"

    return render_cause


def _format_faster_nodes(parameters: Parameters) -> str:
    pods = text.format_count(parameters["slots_needed"], "pod")
    slots = f"faster nodes have slots for {parameters['slots']} of the {pods}"
    return slots + (f"; {_join(parameters['causes'])}" if parameters["causes"].items else "")


def _format_rails_lost(parameters: Parameters) -> str:
    rails = parameters["rails"]
    them = "it" if len(rails.items) + rails.more == 1 else "them"
    return f"the gang runs without {_join(rails)}: too few nodes have {them} free"


def _format_not_exact(parameters: Parameters) -> str:
    gap = parameters["gap"]
    if gap >= 1 - FULL_BANDWIDTH:
        return f"not every choice was tried: another could be better by at most {gap:.2f} of the bandwidth"
    return "not every choice was tried: another could be tighter at the same bandwidth"


def _format_policies_differ(parameters: Parameters) -> str:
    versions = parameters["versions"]
    counts = "; ".join(
        f"{count} under {digest} ({', '.join(pods.items)}{', ...' if pods.more else ''})"
        for digest, count, pods in versions
    )
    return (
        f"{text.format_count(sum(count for _, count, _ in versions), 'pod', 'was')} admitted under "
        f"{len(versions)} versions of the policy: "
        f"{counts}; their injected settings may differ: recreate the pods that are not under the current version, "
        f"{parameters['current']}"
    )


def _format_placement(parameters: Parameters) -> str:
    leaves = parameters["leaves"]
    count = text.format_count(len(leaves.items) + leaves.more, "leaf")
    bandwidth = f"modelled bandwidth {parameters['bandwidth']:.2f}, best possible {parameters['best']:.2f}"
    if parameters["bound"] > parameters["best"]:
        bandwidth += f" (upper bound {parameters['bound']:.2f})"
    pods = text.format_count(parameters["pods"], "pod", "runs")
    parts = [
        f"{pods} on {count} ({_join(leaves)}); {parameters['min_leaves']} was the minimum",
        bandwidth + _format_because(parameters),
    ]
    if parameters["outside"].items:
        parts.append(f"not on the planned leaves: {_join(parameters['outside'])}")
    return "; ".join(parts)


def _format_on_leaves(parameters: Parameters) -> str:
    leaves = parameters["leaves"]
    return f"{text.format_count(len(leaves.items) + leaves.more, 'leaf')} ({_join(leaves)})"


def _format_fits_now(parameters: Parameters) -> str:
    where = _format_on_leaves(parameters)
    return f"the {parameters['pods']} that remain fit now, on {where}; the scheduler has not placed them"


# --- scores ---------------------------------------------------------------------------------------------------


def _format_target_leaf(parameters: Parameters) -> str:
    pods, slots, needed = parameters["pods"], parameters["slots"], parameters["slots_needed"]
    if slots < needed < pods:
        share = f"as much as {slots} of the largest of the {pods} pods"
    elif slots < needed:
        share = f"{slots} of the {text.format_count(pods, 'pod')}"
    else:
        share = f"all {pods} pods" if pods > 1 else "the last pod"
    return f"{parameters['leaf']} has {parameters['placed']} placed peers and slots for {share} to place"


def _format_rails_free(parameters: Parameters) -> str:
    degraded = f", {', '.join(parameters['degraded'])} degraded" if parameters["degraded"] else ""
    return f"{_format_part(parameters, 'free', 'needed', 'rail')} free{degraded}"


RENDERERS: Mapping[ReasonCode, Renderer] = {
    Code.RAIL_BUSY: "{rail} is busy: {free} of {allocatable} {resource} free, {needed} needed",
    Code.RAIL_UNAVAILABLE: "the node cannot give {rail}: {needed} {resource} needed, {allocatable} allocatable",
    Code.DEVICE_ASSUMED_ELSEWHERE: _format_assumed_elsewhere,
    Code.DEVICE_ALLOCATED_ELSEWHERE: (
        "{device} of {node} was allocated by another scheduler in the meantime: {free} {resource} free, {needed} needed"
    ),
    Code.RAILS_UNCOUNTED: _format_uncounted_rails,
    Code.PAIR_BUSY: _format_pair,
    Code.NUMA_ALIGNMENT_BUSY: (
        "no NUMA nodes have the requested GPUs beside the requested rails free now (placement.numa: required)"
    ),
    Code.NUMA_ALIGNMENT_UNAVAILABLE: (
        "no NUMA nodes have the requested GPUs beside the requested rails on this kind of node "
        "(placement.numa: required)"
    ),
    Code.TOPOLOGY_SIZES_DIFFER: _format_topology_sizes,
    Code.TOPOLOGY_DEVICES_BUSY: _format_topology_devices,
    Code.SESSION_UNKNOWN: (
        "railwright restarted during this session and does not know where the gang's first pods are; retry the gang"
    ),
    Code.NODE_UNKNOWN: "the cache does not contain this node yet: it is feasible and scores 0",
    Code.NODE_NOT_SCORED: "feasible; the scheduler requested no score",
    Code.ONE_NODE_LEFT: "node {node} was the only one left, so the scheduler did not ask for scores",
    Code.ALL_NODES_REJECTED: "every candidate node was rejected, each for the reason in its row",
    Code.NODE_INELIGIBLE: "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity",
    Code.DEVICE_SHORTAGE: "{device} has {free} of {allocatable} free, {needed} needed",
    Code.OTHER_RESOURCES: "too little CPU or memory, or too many pods",
    Code.RAIL_SHORTAGE: _format_rail_shortage,
    Code.NUMA_SPLIT: "NUMA splits",
    Code.RAIL_NOT_FREE: "{rail} not free",
    Code.RAIL_DEAD: "{rail} dead or absent",
    Code.RAIL_DEGRADED: "{rail} degraded",
    Code.NICS_SHARED: "NICs shared with other pods",
    Code.TOO_FEW_NICS: lambda parameters: (
        f"too few NICs for {text.format_count(parameters['pods'], 'pod')} of the gang"
    ),
    Code.PEER_RAIL_MISSING: "{node}: a rail is missing on another pod's node",
    Code.UPLINKS_LIMIT: _format_uplinks,
    Code.DEGRADED_NODES: _format_nodes_with,
    Code.BLOCKED_NODES: _format_nodes_blocked_by,
    Code.DEVICE_IN_USE: _format_device_in_use,
    Code.DEGRADED_MEMBER: lambda parameters: f"{parameters['node']}: {_join(parameters['causes'])}",
    Code.CAPACITY_NEVER: (
        "the gang never fits: it needs {slots_needed} slots, and without any other pod the eligible nodes have {slots}"
    ),
    Code.CAPACITY_INSUFFICIENT: _format_capacity,
    Code.GANG_RAILS_SAME: _format_same_rails,
    Code.CAPACITY_NOT_OFFERED: _format_capacity_not_offered,
    Code.NODES_BLOCKED: _format_each,
    Code.DEVICES_IN_USE: _format_each,
    Code.EARLIER_GANGS: lambda parameters: f"nodes are left to gangs that have begun: {_join(parameters['gangs'])}",
    Code.LEAVES_MINIMUM: _format_minimum_leaves,
    Code.FEWER_LEAVES_NOT_OFFERED: _format_fewer_leaves(_format_not_offered),
    Code.FEWER_LEAVES_UPLINKS: _format_fewer_leaves(lambda parameters: _join(parameters["causes"])),
    Code.FEWER_LEAVES_PEERS: _format_fewer_leaves(_format_peers_elsewhere),
    Code.FEWER_LEAVES_NODE_TYPE: _format_fewer_leaves(
        lambda parameters: f"not on {_format_node_type(parameters)} alone; a gang uses one node type"
    ),
    Code.FEWER_LEAVES_UNTRIED: _format_fewer_leaves(lambda _: "not every choice was tried"),
    Code.FEWER_LEAVES_SLOWER: _format_fewer_leaves_slower,
    Code.SINGLE_POD_PACKED: (
        "modelled at {bandwidth:.2f} of the bandwidth: a single-pod job fills partly used nodes first, and none of the "
        "fullest nodes that fit has more bandwidth"
    ),
    Code.UNLABELLED_NODES: lambda parameters: (
        "only nodes without a topology label have slots for the "
        f"{text.format_count(parameters['slots_needed'], 'pod')} still to be placed: label these nodes"
    ),
    Code.BANDWIDTH_UPLINKS: _format_limited(lambda parameters: _join(parameters["causes"])),
    Code.BANDWIDTH_NOT_OFFERED: _format_limited(_format_not_offered),
    Code.BANDWIDTH_UNTRIED: _format_limited(lambda _: "not every choice was tried"),
    Code.FASTER_NODES_TOO_FEW: _format_limited(_format_faster_nodes),
    Code.RAILS_LOST: _format_rails_lost,
    Code.PLAN_NOT_EXACT: _format_not_exact,
    Code.POLICIES_DIFFER: _format_policies_differ,
    Code.PLACEMENT: _format_placement,
    Code.PODS_MISSING: lambda parameters: (
        text.format_count(parameters["size"], "pod", "does", part=parameters["missing"]).replace(" of ", " of its ")
        + " not exist yet"
    ),
    Code.FITS_NOW: _format_fits_now,
    Code.NODES_FIT: lambda parameters: (
        f"{_format_part(parameters, 'fit', 'nodes', 'node')} could take one of its pods now"
    ),
    Code.BETTER_PLAN: lambda parameters: (
        f"recreated now, it could have {parameters['bandwidth']:.2f} on {_format_on_leaves(parameters)}"
    ),
    Code.FEWER_LEAVES_POSSIBLE: lambda parameters: (
        f"recreated now, it could have the same bandwidth on {_format_on_leaves(parameters)}"
    ),
    Code.PEERS_LACK_RAILS: lambda parameters: (
        f"{text.format_count(parameters['pods'], 'more member')}: a rail is missing on another pod's node"
    ),
    Code.FABRIC_UNDEFINED: (
        "the fabric of these pods is not defined in the current policy, or is in audit mode, so no plan is made"
    ),
    Code.DOMAINS_UNDEFINED: "the policy names no domains: leaves and crossings are not modelled",
    Code.PARTLY_USED_FIRST: "a single-pod job fills partly used nodes first, on any leaf",
    Code.OTHERS_PARTLY_USED: (
        "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes"
    ),
    Code.NODE_TYPE_DIFFERS: lambda parameters: (
        f"{parameters['leaf']} is a planned leaf, but the gang uses only {_format_node_type(parameters)}"
    ),
    Code.NODE_TOO_SLOW: "{leaf} is a planned leaf, but this node would slow the gang down",
    Code.NODE_RESERVED: (
        "{leaf} is the target leaf, but other nodes in it should be filled first "
        "(this node is idle, or would split the pod across NUMA nodes)"
    ),
    Code.TIGHTEST_LEAF: "{leaf} is the tightest leaf that fits the pod",
    Code.TARGET_LEAF: _format_target_leaf,
    Code.PLANNED_LEAF: "{leaf} is leaf {position} of {leaves} in the gang's plan",
    Code.SIBLING_LEAF: "{leaf} has the same parent as the target leaf {target}",
    Code.UNPLANNED_LEAF: "{leaf} is not in the gang's plan",
    Code.NUMA_UNKNOWN: "NUMA layout unknown",
    Code.NUMA_DEVICES_BUSY: "NUMA nodes have too few free GPUs or rails",
    Code.NUMA_GPUS_TOGETHER: "GPUs on NUMA node {zones}",
    Code.NUMA_GPUS_SPLIT: "GPUs split over NUMA nodes {zones}",
    Code.NUMA_ALIGNED: "GPUs and rails together on NUMA node {zones}",
    Code.NUMA_PARTLY_LOCAL: lambda parameters: (
        f"{_format_part(parameters, 'local', 'needed', 'rail')} local to their GPUs, NUMA nodes {parameters['zones']}"
    ),
    Code.NO_DEVICES_REQUESTED: "the pod requests no accelerator or rail",
    Code.DEVICES_UTILIZED: "{share:.0%} of its {devices} in use with this pod",
    Code.NO_RAILS_NEEDED: "the pod needs no rails",
    Code.TERM_DETAIL: "{detail}",
    Code.RAILS_FREE: _format_rails_free,
}
