"""Formats the texts of reasons: of templates, and by functions what a template cannot express.

A template names parameters as `str.format` does. A list with a count of the others (`reason.Some`) is joined by commas.
Formats beyond Python's: `{pods:count pod}` is `1 pod` or `3 pods`, `{networks:short}` about 60 characters of a name or
list, `{rails:first}` a name or the first four of a list, `{parts:all}` a whole list, and `{causes:semicolons}` a list
without the others.
`{free:omit}` is nothing: a parameter for programs.

A function has one keyword-only argument for each parameter. Reasons among the parameters are texts already.
"""

import functools
import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from railwright.fabric import names, text
from railwright.fabric.reasons import reason

Template: TypeAlias = str | Callable[..., str]

FULL_BANDWIDTH = 0.995  # 0..1; higher values are formatted as full, because two decimals round them to 1.00


def render(template: Template, parameters: Mapping[str, Any]) -> str:
    """Return the text. Raises KeyError if a parameter is missing; others have no effect."""
    if not isinstance(template, str):
        return template(**{name: parameters[name] for name in list_parameters(template)})
    return "".join(
        [
            literal if name is None else f"{literal}{_format(parameters[name], conversion, spec)}"
            for literal, name, spec, conversion in _parse(template)
        ]
    )


@functools.cache  # one entry for each row of the table of codes
def list_parameters(template: Template) -> frozenset[str]:
    """Return the names of the parameters of a text."""
    if isinstance(template, str):
        return frozenset([name for _, name, _, _ in _parse(template) if name is not None])
    return frozenset(inspect.signature(template).parameters)


@functools.cache  # one entry for each row of the table of codes
def _parse(template: str) -> Sequence[tuple[str, str | None, str | None, str | None]]:
    """Return the literals, each with the name, format and conversion of the parameter after it."""
    return tuple(string.Formatter().parse(template))


def _format(value: Any, conversion: str | None, spec: str | None) -> str:
    name, _, argument = (spec or "").partition(" ")
    match name:
        case "count":
            return text.format_count(_count(value), argument)
        case "short":
            return text.join_fitting([value] if isinstance(value, str) else value)
        case "all":
            return ", ".join(value)
        case "first":
            return value if isinstance(value, str) else text.join_first(value, 4)
        case "omit":
            return ""
        case "semicolons":
            return "; ".join(value.items)
        case _ if isinstance(value, reason.Some):
            return _join(value)
        case _:
            return format(repr(value) if conversion == "r" else value, name)


def _count(value: int | reason.Some) -> int:
    return len(value.items) + value.more if isinstance(value, reason.Some) else value


def _join(some: reason.Some) -> str:
    return text.join_some(map(_format_item, some.items), some.more)


def _format_item(item: Any) -> str:
    """Format an item of a list: a name, or a name with a number."""
    match item:
        case (name, number):
            return f"{name} {number}"
        case _:
            return str(item)


def format_bandwidth(value: float) -> str:
    """Format a modelled bandwidth, 0..1."""
    return "full bandwidth" if value >= FULL_BANDWIDTH else f"{value:.2f} of the bandwidth"


def _format_causes(causes: reason.Some) -> str:
    """Return the causes after a colon, or "" if there are none."""
    return f": {_join(causes)}" if causes.items else ""


# --- devices --------------------------------------------------------------------------------------------------


def format_assumed_elsewhere(*, device: str, node: str, resource: str, free: int, needed: int) -> str:
    """Format DeviceAssumedElsewhere."""
    of_node = f" of {node}" if node else ""
    return (
        f"{device}{of_node} is assumed for a pod of another scheduler that is not bound yet: "
        f"{free} {resource} left, {needed} needed"
    )


def format_pair(*, devices: reason.Some, attribute: str) -> str:
    """Format PairBusy."""
    counts = [f"{count} {name}" for name, count in _list_pairs(devices)]
    more = [f"{devices.more} more"] if devices.more else []
    return f"no free pair: {' and '.join([*counts, *more])} needed with the same {attribute}"


def format_rail_shortage(*, rail: str, free: int, allocatable: int, holders: reason.Some) -> str:
    """Format RailShortage."""
    users = f", held by {', '.join(map(str, holders.items))}{' and others' if holders.more else ''}"
    return f"{rail} has {free} of {allocatable} free{users if holders.items else ''}"


def format_topology_sizes(*, policy: str, scope: str, needs: Sequence[tuple[str, int, int]]) -> str:
    """Format TopologySizesDiffer."""
    sizes = ", ".join(f"{count} {name} on {nodes}" for name, count, nodes in needs)
    cause = f"the resources need different numbers of NUMA nodes ({sizes}), which {policy} rejects"
    return _format_topology_manager(policy, scope, cause)


def format_topology_devices(
    *,
    policy: str,
    scope: str,
    numa_nodes: int,
    requested: Sequence[tuple[str, int]],
    free: Sequence[tuple[int, Sequence[tuple[str, int]]]],
) -> str:
    """Format TopologyDevicesBusy."""
    subject = "no NUMA node has" if numa_nodes == 1 else f"no {numa_nodes} NUMA nodes have"
    needed = ", ".join(f"{count} {name}" for name, count in requested)
    free_devices = "; ".join(
        f"node {node}: {', '.join(f'{count} {name}' for name, count in devices)}" for node, devices in free
    )
    return _format_topology_manager(policy, scope, f"{subject} {needed} free together (free: {free_devices})")


def _format_topology_manager(policy: str, scope: str, cause: str) -> str:
    return (
        f"kubelet would reject the pod (TopologyAffinityError): its topology manager has policy {policy}, "
        f"scope {scope}, and {cause}; request fewer devices or set topologyManagerPolicy: best-effort"
    )


def format_uplinks(
    *, domain: str, nodes: int, oversubscription: float, carried: float, crossings: int, has_unused_links: bool
) -> str:
    """Format UplinksLimit."""
    size = f"{text.format_count(nodes, 'node')}, {oversubscription:g}:1"
    if has_unused_links:
        size += ", including the uplinks of rails that the gang does not use"
    share = f" for each of {crossings} crossings" if crossings > 1 else ""
    return f"the uplinks of {domain} ({size}) carry {carried:.2f}{share}"


# --- gangs ----------------------------------------------------------------------------------------------------


def _format_remaining(pods: int, slots_needed: int) -> str:
    """Return the start of a message: the number of unplaced pods."""
    if pods <= slots_needed:
        return text.format_count(slots_needed, "pod", "remains")
    return f"{pods} pods remain, which need as much as {slots_needed} of the largest"


def format_capacity(*, pods: int, slots_needed: int, slots: int, rails: Sequence[str]) -> str:
    """Format CapacityInsufficient."""
    needs = ""
    if rails:
        shown = ", ".join(rails) if len(rails) <= reason.MAX_NAMED else f"{rails[0]}..{rails[-1]}"
        needs = f", each with {shown}"
    return f"{_format_remaining(pods, slots_needed)}{needs}; the cluster has slots for {slots}"


def format_capacity_never(*, slots_needed: int, slots: int) -> str:
    """Format CapacityNever."""
    owner, needed = "pod" if slots_needed == 1 else "gang", text.format_count(slots_needed, "slot")
    return f"the {owner} never fits: it needs {needed}, and without any other pod the eligible nodes have {slots}"


def format_capacity_not_offered(*, pods: int, slots_needed: int, slots: int, not_offered: reason.Some) -> str:
    """Format CapacityNotOffered."""
    cause = _format_not_offered(not_offered) or "the scheduler does not offer the others"
    return f"{_format_remaining(pods, slots_needed)}; the offered nodes have slots for {slots}; {cause}"


def _format_not_offered(leaves: reason.Some) -> str:
    return f"the scheduler offers no node of {_join(leaves)}" if leaves.items else ""


def format_minimum_leaves(
    *, pods: int, slots_needed: int, leaves: reason.Some, min_leaves: int, slots: int, bandwidth: float
) -> str:
    """Format LeavesMinimum."""
    speed, enough = format_bandwidth(bandwidth), text.format_count(slots, "slot")
    if min_leaves == 2:
        [(leaf, _), *_] = _list_pairs(leaves)
        largest = f"the largest leaf at {speed}, {leaf}, has {enough}"
    else:
        largest = f"the {min_leaves - 1} largest leaves at {speed} have {enough} ({_join(leaves)})"
    minimum = text.format_count(min_leaves, "leaf")
    return f"{_format_remaining(pods, slots_needed)}; {largest}; {minimum} is the minimum"


def _list_pairs(some: reason.Some) -> Sequence[tuple[Any, Any]]:
    """Return items that are pairs, such as a name and its count."""
    return cast("Sequence[tuple[Any, Any]]", some.items)


def format_fewer_leaves_not_offered(*, leaves: reason.Some, not_offered: reason.Some) -> str:
    """Format FewerLeavesNotOffered."""
    return f"fewer leaves ({_join(leaves)}) have enough slots, but {_format_not_offered(not_offered)}"


def format_fewer_leaves_peers(*, leaves: reason.Some, peer_leaves: reason.Some) -> str:
    """Format FewerLeavesPeers."""
    placed = text.join_some([f"{name} ({count})" for name, count in _list_pairs(peer_leaves)], peer_leaves.more)
    return (
        f"fewer leaves ({_join(leaves)}) have enough slots, but other pods of the gang are placed on {placed}: these "
        "are filled first"
    )


def format_fewer_leaves_node_type(*, leaves: reason.Some, node_type: str) -> str:
    """Format FewerLeavesNodeType."""
    return (
        f"fewer leaves ({_join(leaves)}) have enough slots, but not on {_format_node_type(node_type)} alone; a gang "
        "uses one node type"
    )


def format_node_type_differs(*, leaf: str, node_type: str) -> str:
    """Format NodeTypeDiffers."""
    return f"{leaf} is a planned leaf, but the gang uses only {_format_node_type(node_type)}"


def _format_node_type(node_type: str) -> str:
    return f"nodes of type {node_type}" if node_type else "nodes of unknown type"


def format_fewer_leaves_slower(*, leaves: reason.Some, min_leaves: int, bandwidth: float, causes: reason.Some) -> str:
    """Format FewerLeavesSlower."""
    slots = f"{text.format_count(min_leaves, 'leaf', 'has')} enough slots ({_join(leaves)})"
    return f"{slots}, but at {bandwidth:.2f} of the bandwidth{_format_causes(causes)}"


def format_bandwidth_not_offered(*, bandwidth: float, not_offered: reason.Some) -> str:
    """Format BandwidthNotOffered."""
    return f"at most {bandwidth:.2f} of the bandwidth: {_format_not_offered(not_offered)}"


def format_faster_nodes(*, bandwidth: float, slots: int, slots_needed: int, causes: reason.Some) -> str:
    """Format FasterNodesTooFew."""
    pods = text.format_count(slots_needed, "pod")
    because = f"; {_join(causes)}" if causes.items else ""
    return f"at most {bandwidth:.2f} of the bandwidth: faster nodes have slots for {slots} of the {pods}{because}"


def format_rails_lost(*, rails: reason.Some) -> str:
    """Format RailsLost."""
    them = "it" if _count(rails) == 1 else "them"
    return f"the gang runs without {_join(rails)}: too few nodes have {them} free"


def format_not_exact(*, gap: float) -> str:
    """Format PlanNotExact."""
    if gap >= 1 - FULL_BANDWIDTH:
        return f"not every choice was tried: another could be better by at most {gap:.2f} of the bandwidth"
    return "not every choice was tried: another could be tighter at the same bandwidth"


def format_policies_differ(*, versions: Sequence[tuple[str, int, reason.Some]], current: str) -> str:
    """Format PoliciesDiffer."""
    counts = "; ".join(
        f"{count} under {digest} ({', '.join(map(str, pods.items))}{', ...' if pods.more else ''})"
        for digest, count, pods in versions
    )
    return (
        f"{text.format_count(sum(count for _, count, _ in versions), 'pod', 'was')} admitted under "
        f"{len(versions)} versions of the policy: "
        f"{counts}; their injected settings may differ: recreate the pods that are not under the current version, "
        f"{current}"
    )


def format_placement(
    *,
    pods: int,
    leaves: reason.Some,
    min_leaves: int,
    bandwidth: float,
    best: float,
    bound: float,
    outside: reason.Some,
    causes: reason.Some,
) -> str:
    """Format Placement."""
    quality = f"modelled bandwidth {bandwidth:.2f}, best possible {best:.2f}"
    if bound > best:
        quality += f" (upper bound {bound:.2f})"
    used = f"{text.format_count(_count(leaves), 'leaf')} ({_join(leaves)})"
    parts = [
        f"{text.format_count(pods, 'pod', 'runs')} on {used}; {min_leaves} was the minimum",
        quality + _format_causes(causes),
    ]
    if outside.items:
        parts.append(f"not on the planned leaves: {_join(outside)}")
    return "; ".join(parts)


def format_pods_missing(*, missing: int, size: int) -> str:
    """Format PodsMissing."""
    pods = text.format_count(size, "pod", "does", part=missing).replace(" of ", " of its ")
    return f"{pods} not exist yet"


# --- scores ---------------------------------------------------------------------------------------------------


def format_target_leaf(*, leaf: str, placed: int, pods: int, slots: int, slots_needed: int) -> str:
    """Format TargetLeaf."""
    if slots < slots_needed < pods:
        share = f"as much as {slots} of the largest of the {pods} pods"
    elif slots < slots_needed:
        share = f"{slots} of the {text.format_count(pods, 'pod')}"
    else:
        share = f"all {pods} pods" if pods > 1 else "the last pod"
    return f"{leaf} has {placed} placed peers and slots for {share} to place"


def format_rails_free(*, free: int, needed: int, degraded: Sequence[str]) -> str:
    """Format RailsFree."""
    suffix = f", {', '.join(degraded)} degraded" if degraded else ""
    return f"{text.format_count(needed, 'rail', part=free)} free{suffix}"


# --- admission ------------------------------------------------------------------------------------------------


def format_audited_rejection(*, fabric: str, rejection: str, message: str) -> str:
    """Format WouldReject."""
    where = f"fabric {fabric}" if fabric else "the policy"
    return f"{where} is in audit mode, otherwise rejected ({rejection}): {message}"


def format_exclusion(*, key: str, task: str) -> str:
    """Format ExcludedByPolicy."""
    return f"the policy sets {key} to never{f' for task {task}' if task else ''}"


def format_host_network(*, fabric: str) -> str:
    """Format HostNetwork."""
    if fabric:
        return (
            f"spec.hostNetwork is true: fabric {fabric} adds no networks and no NCCL_SOCKET_IFNAME; remove "
            "hostNetwork to give the pod network interfaces of its own"
        )
    return (
        "spec.hostNetwork is true: NCCL_SOCKET_IFNAME is not set, because the interfaces of the host are not known; "
        "remove hostNetwork, or set NCCL_SOCKET_IFNAME in the container"
    )


def format_host_memory(*, containers: Sequence[str]) -> str:
    """Format HostMemory."""
    if containers:
        return f"container {text.join_fitting(containers)} mounts /dev of the host"
    return f"spec.hostIPC is true: {names.DEV_SHM} is the host's"


def format_unclaimed_gpus(*, fabric: str, init_container: str) -> str:
    """Format GpusNotClaimed."""
    problem = f"the claims have no GPUs, so nothing pairs them with the NICs of fabric {fabric}"
    if init_container:
        return (
            f"{problem}: init container {init_container} has GPUs of its own, as a sidecar or because it requests more "
            "than the container of the ranks; request no more there, and none in a sidecar"
        )
    return (
        f"{problem}: containers with one claim share its devices; request all GPUs in one container, and name no other "
        f"in annotation {names.CONTAINERS}"
    )


def format_unknown_node(*, node: str) -> str:
    """Format BoundNodeUnknown."""
    return f"{_format_missing_node(node)}: annotation {names.PLACEMENT} is not written"


def format_unknown_devices(*, node: str) -> str:
    """Format BoundDevicesUnknown."""
    return (
        f"{_format_missing_node(node)}: annotation {names.PLACEMENT} and the node's NCCL_IB_HCA are not written, so "
        "NCCL does not start; delete the pod so that it is bound again"
    )


def _format_missing_node(node: str) -> str:
    return f"node {node} is not known to railwright yet" if node else "target.name of the Binding is empty"


def format_workload_key(*, type: str, key: str, value: str, kind: str, template: str) -> str:
    """Format KeyOnWorkload."""
    owner = f" of the {kind}" if kind else ""
    destination = f"the pod template ({template}.metadata)" if template else "the pod templates it is meant for"
    return (
        f"{type} {key} {value!r}{owner} has no effect: railwright reads it on pods; move it to the annotations of "
        f"{destination}"
    )


def format_misplaced_key(*, type: str, key: str, value: str, expected: str) -> str:
    """Format KeyMisplaced."""
    article = "an" if expected == "annotation" else "a"
    return f"{type} {key} {value!r} has no effect: railwright reads it as {article} {expected}; move it there"


def format_unknown_key(*, type: str, key: str, value: str, suggestion: str) -> str:
    """Format KeyUnknown."""
    first, *others = names.POD_KEYS
    others_short = ", ".join(name.removeprefix(f"{names.DOMAIN}/") for name in others)
    advice = (
        f"did you mean {suggestion}?"
        if suggestion
        else f"it reads label {names.FABRIC} and annotations {first}, {others_short} of a pod"
    )
    return f"{type} {key} {value!r} has no effect: railwright has no such key; {advice}"
