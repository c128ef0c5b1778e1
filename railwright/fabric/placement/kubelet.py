"""Reads NodeResourceTopology reports and predicts which pods kubelet's topology manager rejects.

Decides whether a report is current, and applies the rules of the reported policy and scope to devices, as in Kubernetes
1.34 (pkg/kubelet/cm/topologymanager, pkg/kubelet/cm/devicemanager/topology_hints.go). CPUs and memory are not modelled:
kubelet may still reject a pod because of exclusive CPUs on another NUMA node.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from railwright.fabric import resources, views
from railwright.fabric.placement import numa

RESTRICTED, SINGLE_NUMA_NODE = "restricted", "single-numa-node"
_STRICT = frozenset({RESTRICTED, SINGLE_NUMA_NODE})
CONTAINER, POD = "container", "pod"

# values of the deprecated topologyPolicies (noderesourcetopology-api v1alpha2/types.go); other values reject no pod
_DEPRECATED: Mapping[str, tuple[str, str]] = {
    "SingleNUMANode": (SINGLE_NUMA_NODE, CONTAINER),
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, CONTAINER),
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, POD),
    "Restricted": (RESTRICTED, CONTAINER),
    "RestrictedContainerLevel": (RESTRICTED, CONTAINER),
    "RestrictedPodLevel": (RESTRICTED, POD),
}


def knows(
    found: views.NodeResourceTopology, bound: Collection[tuple[str, resources.Amounts]], names: Collection[str]
) -> bool:
    """True if the report is newer than the last binding on the node. `bound` has (time, requests) of the bound pods.

    Both times are from the API server, in seconds. The exporter reads the devices after kubelet has admitted the pod,
    so a report of the same second is not newer. A report with fewer used devices than the pods request is not current
    either: it is older, or its exporter does not count them. If a time is missing (a snapshot without managed fields),
    only the used devices count. Pass only pods that request devices of these names.
    """
    left, whole = _sums(numa.of_topology(found, names)), _sums(numa.whole(found, names))
    if any(whole[name] - left[name] < sum(held.get(name, 0) for _, held in bound) for name in whole):
        return False
    last, written = max((when for when, _ in bound), default=""), found.written_at
    return not last or not written or written > last


def tells_all(
    found: views.NodeResourceTopology, bound: Collection[tuple[str, resources.Amounts]], names: Collection[str]
) -> bool:
    """True if the report is current and its used devices are exactly those of the bound pods.

    If more devices are used, a pod has terminated since, or devices are unhealthy: they may become free at any moment.
    """
    left, whole = _sums(numa.of_topology(found, names)), _sums(numa.whole(found, names))
    exact = all(whole[name] - left[name] == sum(held.get(name, 0) for _, held in bound) for name in whole)
    return exact and knows(found, bound, names)


def topology_manager(found: views.NodeResourceTopology) -> tuple[str, str]:
    """Return (policy, scope) of the node's topology manager as in kubelet's configuration; policy "" if unknown."""
    policy, scope = _DEPRECATED.get(next(iter(found.topology_policies or ()), ""), ("", CONTAINER))
    attributes = found.attributes
    return attributes.get("topologyManagerPolicy", policy), attributes.get("topologyManagerScope", scope)


def is_strict(found: views.NodeResourceTopology) -> bool:
    """True if the node's topology manager can reject pods. With `none` and `best-effort` it admits every pod."""
    return topology_manager(found)[0] in _STRICT


def containers_of(spec: views.PodSpec, want: numa.Want) -> tuple[numa.Want, ...]:
    """Return the device requests of each container in kubelet's order: sidecars, then app containers.

    Other init containers are left out, because kubelet reuses their devices for the app containers.
    """
    sidecars = [each for each in spec.init_containers or () if each.restart_policy == "Always"]
    wants = []
    for container in (*sidecars, *spec.containers):
        asked = resources.amounts(container.requests)
        accelerators, pools = (
            tuple((name, asked[name]) for name, _ in side if asked.get(name, 0) > 0)
            for side in (want.accelerators, want.pools)
        )
        if accelerators or pools:
            wants.append(numa.Want(accelerators, pools))
    return tuple(wants)


def rejected(
    found: views.NodeResourceTopology, zones: numa.Zones, want: numa.Want, containers: Sequence[numa.Want] = ()
) -> str:
    """Return kubelet's admission error for the pod (TopologyAffinityError) with the fix, or "" if there is none.

    `zones` are the free devices. `containers` are the requests of each container, for scope "container"; without them
    the pod counts as one container. Resources that the report or the zones do not list by NUMA node are ignored.
    """
    policy, scope = topology_manager(found)
    if policy not in _STRICT:
        return ""
    names = {name for name, _ in (*want.accelerators, *want.pools)}
    devices, known = _by_node(numa.capacity(found, names)), _by_node(zones)
    free = {node: dict(known.get(node, {})) for node in devices}
    judged = _names(devices) & _names(known)
    for each in containers if containers and scope == CONTAINER else (want,):
        asked = [(name, amount) for name, amount in (*each.accelerators, *each.pools) if name in judged and amount]
        nodes, reason = _affinity(policy, asked, devices, free) if asked else ((), "")
        if reason:
            return (
                f"railwright: kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
                f"{policy}, scope {scope}, and {reason}; "
                "request fewer devices or set topologyManagerPolicy: best-effort"
            )
        _take(asked, nodes, free)
    return ""


_Nodes = dict[int, dict[str, int]]


def _affinity(
    policy: str, asked: Sequence[tuple[str, int]], devices: _Nodes, free: _Nodes
) -> tuple[tuple[int, ...], str]:
    """Return (NUMA nodes that all resources would be allocated from, ""), or ((), the reason why there are none)."""
    least = {name: 1 if policy == SINGLE_NUMA_NODE else _least(name, amount, devices) for name, amount in asked}
    if len(set(least.values())) > 1:
        needs = ", ".join(f"{_count(name, amount)} on {least[name]}" for name, amount in asked)
        return (), f"the resources need different numbers of NUMA nodes ({needs}), which {policy} rejects"
    size = next(iter(least.values()))
    having = [node for node in free if any(free[node].get(name, 0) > 0 for name, _ in asked)]
    others = sorted(free.keys() - having)[:size]  # equivalent NUMA nodes: limits the number of combinations
    for nodes in itertools.combinations(sorted([*having, *others]), size):
        if all(sum(free[node].get(name, 0) for node in nodes) >= amount for name, amount in asked):
            return nodes, ""
    together = ", ".join(_count(name, amount) for name, amount in asked)
    has = "; ".join(
        f"node {node}: {', '.join(_count(name, here.get(name, 0)) for name, _ in asked)}"
        for node, here in sorted(free.items())
    )
    where = "no NUMA node has" if size == 1 else f"no {size} NUMA nodes have"
    return (), f"{where} {together} free together (free: {has})"


def _least(name: str, amount: int, devices: _Nodes) -> int:
    """Return the number of NUMA nodes that the request needs on an empty node: kubelet prefers hints of this size."""
    held = itertools.accumulate(sorted((here.get(name, 0) for here in devices.values()), reverse=True))
    return next((size for size, total in enumerate(held, start=1) if total >= amount), len(devices))


def _take(asked: Iterable[tuple[str, int]], nodes: Iterable[int], free: _Nodes) -> None:
    for name, amount in asked:
        left = amount
        for node in nodes:
            gone = min(left, free[node].get(name, 0))
            free[node][name] = free[node].get(name, 0) - gone
            left -= gone


def _names(nodes: _Nodes) -> set[str]:
    return {name for here in nodes.values() for name in here}


def _by_node(zones: numa.Zones) -> _Nodes:
    return {zone.node: dict(zone.free) for zone in zones}


def _sums(zones: numa.Zones) -> Mapping[str, int]:
    sums: dict[str, int] = {}
    for zone in zones:
        for name, amount in zone.free:
            sums[name] = sums.get(name, 0) + amount
    return sums


def _count(name: str, amount: int) -> str:
    return f"{amount // resources.UNIT} {name}"
