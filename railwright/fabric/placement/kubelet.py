"""What a node's kubelet has reported of its NUMA nodes (NodeResourceTopology), and what it would refuse by them.

Owns when a report is believed, the topology manager's policy and scope as reported, and its rules for devices, as
kubernetes 1.34 has them (pkg/kubelet/cm/topologymanager, devicemanager/topology_hints.go). Knows no processors and no
memory: a pod whose exclusive CPUs lie elsewhere may be rejected all the same.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

from railwright.fabric import resources, views
from railwright.fabric.placement import numa

RESTRICTED, SINGLE_NUMA_NODE = "restricted", "single-numa-node"
_STRICT = frozenset({RESTRICTED, SINGLE_NUMA_NODE})
CONTAINER, POD = "container", "pod"

# the words of the deprecated topologyPolicies (noderesourcetopology-api v1alpha2/types.go); others refuse nothing
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
    """True when the report is newer than the last binding on the node; `bound`: (when, requests) of the pods on it.

    Both times are the API server's, in seconds, and the exporter looks only after kubelet has admitted the pod: the
    same second is not newer. Nor is a report that has less taken than the pods hold, whatever its time: it was read
    before, or by an exporter that does not count them. Where a time is missing (a snapshot without managed fields)
    what it has taken decides alone. Pods that hold nothing of it change no report and are not to be given.
    """
    left, whole = _sums(numa.of_topology(found, names)), _sums(numa.whole(found, names))
    if any(whole[name] - left[name] < sum(held.get(name, 0) for _, held in bound) for name in whole):
        return False
    last, written = max((when for when, _ in bound), default=""), found.written_at
    return not last or not written or written > last


def tells_all(
    found: views.NodeResourceTopology, bound: Collection[tuple[str, resources.Amounts]], names: Collection[str]
) -> bool:
    """True when the report is newer than the last binding and has taken exactly what the bound pods hold.

    More taken is a pod that has left since, or devices that are not healthy: what is free by such a report may come
    back any moment.
    """
    left, whole = _sums(numa.of_topology(found, names)), _sums(numa.whole(found, names))
    exact = all(whole[name] - left[name] == sum(held.get(name, 0) for _, held in bound) for name in whole)
    return exact and knows(found, bound, names)


def topology_manager(found: views.NodeResourceTopology) -> tuple[str, str]:
    """(policy, scope) of the node's topology manager in kubelet's own words; ("", ...) where none is reported."""
    policy, scope = _DEPRECATED.get(next(iter(found.topology_policies or ()), ""), ("", CONTAINER))
    attributes = found.attributes
    return attributes.get("topologyManagerPolicy", policy), attributes.get("topologyManagerScope", scope)


def is_strict(found: views.NodeResourceTopology) -> bool:
    """Whether the node's topology manager rejects pods at all; those of `none` and `best-effort` admit every one."""
    return topology_manager(found)[0] in _STRICT


def containers_of(spec: views.PodSpec, want: numa.Want) -> tuple[numa.Want, ...]:
    """What each container asks of a pod's want, in kubelet's order: sidecars, then app containers.

    A plain init container is left out: what it had, the app containers get.
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
    """Why kubelet would reject the pod (TopologyAffinityError), with the fix; "" where it would admit it.

    `zones`: what is free now. `containers`: what each asks, for the scope "container"; without them the pod is taken
    for one container. A resource that the node does not report by NUMA node has no preference and is not looked at,
    nor is one of which the zones know nothing.
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
                f"{policy}, scope {scope}, and {reason}; ask for less, or set topologyManagerPolicy: best-effort"
            )
        _take(asked, nodes, free)
    return ""


_Nodes = dict[int, dict[str, int]]


def _affinity(
    policy: str, asked: Sequence[tuple[str, int]], devices: _Nodes, free: _Nodes
) -> tuple[tuple[int, ...], str]:
    """The NUMA nodes that all resources would be taken from, or why there are none."""
    least = {name: 1 if policy == SINGLE_NUMA_NODE else _least(name, amount, devices) for name, amount in asked}
    if len(set(least.values())) > 1:
        needs = ", ".join(f"{_count(name, amount)} on {least[name]}" for name, amount in asked)
        return (), f"the least NUMA nodes differ ({needs}), which {policy} does not take"
    size = next(iter(least.values()))
    having = [node for node in free if any(free[node].get(name, 0) > 0 for name, _ in asked)]
    others = sorted(free.keys() - having)[:size]  # one like the other: a node of dozens must not cost all their sets
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
    """How many NUMA nodes the request needs on an empty node: kubelet prefers no hint of more, or of fewer."""
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
