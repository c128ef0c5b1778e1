"""Reads NodeResourceTopology reports and predicts which pods kubelet's topology manager rejects.

Decides whether a report is current, and applies the rules of the reported policy and scope to devices, as in Kubernetes
1.34 (pkg/kubelet/cm/topologymanager, pkg/kubelet/cm/devicemanager/topology_hints.go). CPUs and memory are not modelled:
kubelet may still reject a pod because of exclusive CPUs on another NUMA node.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement.nodes import numa
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

RESTRICTED, SINGLE_NUMA_NODE = "restricted", "single-numa-node"
_STRICT = frozenset({RESTRICTED, SINGLE_NUMA_NODE})
CONTAINER, POD = "container", "pod"


class TopologyManager(NamedTuple):
    """The configuration of kubelet's topology manager, in kubelet's own values."""

    policy: str  # "" if unknown
    scope: str


# values of the deprecated topologyPolicies (noderesourcetopology-api v1alpha2/types.go); other values reject no pod
_DEPRECATED: Mapping[str, TopologyManager] = {
    "SingleNUMANode": TopologyManager(SINGLE_NUMA_NODE, CONTAINER),
    "SingleNUMANodeContainerLevel": TopologyManager(SINGLE_NUMA_NODE, CONTAINER),
    "SingleNUMANodePodLevel": TopologyManager(SINGLE_NUMA_NODE, POD),
    "Restricted": TopologyManager(RESTRICTED, CONTAINER),
    "RestrictedContainerLevel": TopologyManager(RESTRICTED, CONTAINER),
    "RestrictedPodLevel": TopologyManager(RESTRICTED, POD),
}


BoundPods = Collection[tuple[str, resources.Amounts]]
"""(time of the binding, requests) of the pods bound to a node that request devices."""


def is_current(report: node_views.NodeResourceTopology, bound: BoundPods, names: Collection[str]) -> bool:
    """True if the report is newer than the last binding on the node.

    Both times are from the API server, in seconds. The exporter reads the devices after kubelet has admitted the pod,
    so a report of the same second is not newer. A report with fewer used devices than the pods request is not current
    either: it is older, or its exporter does not count them. If a time is missing (a snapshot without managed fields),
    only the used devices count.
    """
    if any(used < requested for used, requested in _compare_usage(report, bound, names)):
        return False
    last, written = max((bound_at for bound_at, _ in bound), default=""), report.written_at
    return not last or not written or written > last


def _compare_usage(
    report: node_views.NodeResourceTopology, bound: BoundPods, names: Collection[str]
) -> Iterator[tuple[int, int]]:
    """Yield for each resource what the report says is used, and what the bound pods request."""
    left = _sum_by_resource(numa.read_available_zones(report, names))
    for name, allocatable in _sum_by_resource(numa.read_allocatable_zones(report, names)).items():
        yield allocatable - left[name], sum(requests.get(name, 0) for _, requests in bound)


def read_topology_manager(report: node_views.NodeResourceTopology) -> TopologyManager:
    """Return the configuration of the node's topology manager."""
    deprecated = next(iter(report.topology_policies or ()), "")
    policy, scope = _DEPRECATED.get(deprecated, TopologyManager("", CONTAINER))
    attributes = report.attributes
    return TopologyManager(
        attributes.get("topologyManagerPolicy", policy), attributes.get("topologyManagerScope", scope)
    )


def is_strict(report: node_views.NodeResourceTopology) -> bool:
    """True if the node's topology manager can reject pods. With `none` and `best-effort` it admits every pod."""
    return read_topology_manager(report).policy in _STRICT


def list_container_demands(spec: views.PodSpec, demand: numa.NumaDemand) -> tuple[numa.NumaDemand, ...]:
    """Return the device requests of each container in kubelet's order: sidecars, then app containers.

    Other init containers are left out, because kubelet reuses their devices for the app containers.
    """
    init_containers = spec.init_containers or ()
    sidecars = [container for container in init_containers if container.restart_policy == "Always"]
    demands = []
    for container in (*sidecars, *spec.containers):
        requests = resources.parse_amounts(container.requests)
        accelerators, pools = (
            tuple((name, requests[name]) for name, _ in side if requests.get(name, 0) > 0)
            for side in (demand.accelerators, demand.pools)
        )
        if accelerators or pools:
            demands.append(numa.NumaDemand(accelerators, pools))
    return tuple(demands)


def find_admission_error(
    report: node_views.NodeResourceTopology,
    zones: numa.Zones,
    demand: numa.NumaDemand,
    container_demands: Sequence[numa.NumaDemand] = (),
) -> reason.Reason | None:
    """Return kubelet's admission error for the pod (TopologyAffinityError), or None if there is none.

    `zones` are the free devices. `container_demands` are the requests of each container, for scope "container"; without
    them the pod counts as one container. Resources that the report or the zones do not list by NUMA node are ignored.
    """
    manager = read_topology_manager(report)
    if manager.policy not in _STRICT:
        return None
    names = {name for name, _ in (*demand.accelerators, *demand.pools)}
    devices, known = _map_by_number(numa.read_capacity_zones(report, names)), _map_by_number(zones)
    free = {node: dict(known.get(node, {})) for node in devices}
    known_names = _list_names(devices) & _list_names(known)
    for container_demand in container_demands if container_demands and manager.scope == CONTAINER else (demand,):
        demanded = [
            (name, amount)
            for name, amount in (*container_demand.accelerators, *container_demand.pools)
            if name in known_names and amount
        ]
        affinity = _find_affinity(manager, demanded, devices, free) if demanded else ()
        if isinstance(affinity, reason.Reason):
            return affinity
        _take(demanded, affinity, free)
    return None


_Nodes = dict[int, dict[str, int]]


def _find_affinity(
    manager: TopologyManager, demanded: Sequence[tuple[str, int]], devices: _Nodes, free: _Nodes
) -> tuple[int, ...] | reason.Reason:
    """Return the NUMA nodes that all resources would be allocated from, or the reason why there are none."""
    policy = manager.policy
    zones_by_resource = {
        name: 1 if policy == SINGLE_NUMA_NODE else _count_min_zones(name, amount, devices) for name, amount in demanded
    }
    if len(set(zones_by_resource.values())) > 1:
        sizes = [f"{amount // resources.UNIT} {name} on {zones_by_resource[name]}" for name, amount in demanded]
        cause = f"the resources need different numbers of NUMA nodes ({', '.join(sizes)}), which {policy} rejects"
        return _describe(manager, cause)
    size = next(iter(zones_by_resource.values()))
    zones_with_devices = [node for node in free if any(free[node].get(name, 0) > 0 for name, _ in demanded)]
    others = sorted(free.keys() - zones_with_devices)[:size]  # equivalent NUMA nodes: limits the number of combinations
    for nodes in itertools.combinations(sorted([*zones_with_devices, *others]), size):
        if all(sum(free[node].get(name, 0) for node in nodes) >= amount for name, amount in demanded):
            return nodes
    subject = "no NUMA node has" if size == 1 else f"no {size} NUMA nodes have"
    needed = _format_amounts(dict(demanded), demanded)
    shown = "; ".join([f"node {node}: {_format_amounts(here, demanded)}" for node, here in sorted(free.items())])
    return _describe(manager, f"{subject} {needed} free together (free: {shown})")


def _format_amounts(amounts: Mapping[str, int], demanded: Sequence[tuple[str, int]]) -> str:
    return ", ".join([f"{amounts.get(name, 0) // resources.UNIT} {name}" for name, _ in demanded])


def _describe(manager: TopologyManager, cause: str) -> reason.Reason:
    return reason.Reason(
        PlacementCode.TOPOLOGY_AFFINITY,
        "kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
        f"{manager.policy}, scope {manager.scope}, and {cause}",
        fix="request fewer devices or set topologyManagerPolicy: best-effort",
    )


def _count_min_zones(name: str, amount: int, devices: _Nodes) -> int:
    """Return the number of NUMA nodes that the request needs on an empty node: kubelet prefers hints of this size."""
    totals = itertools.accumulate(sorted((here.get(name, 0) for here in devices.values()), reverse=True))
    return next((size for size, total in enumerate(totals, start=1) if total >= amount), len(devices))


def _take(demanded: Iterable[tuple[str, int]], nodes: Iterable[int], free: _Nodes) -> None:
    for name, amount in demanded:
        left = amount
        for node in nodes:
            used = min(left, free[node].get(name, 0))
            free[node][name] = free[node].get(name, 0) - used
            left -= used


def _list_names(nodes: _Nodes) -> set[str]:
    return {name for here in nodes.values() for name in here}


def _map_by_number(zones: numa.Zones) -> _Nodes:
    return {zone.node: dict(zone.free) for zone in zones}


def _sum_by_resource(zones: numa.Zones) -> Mapping[str, int]:
    sums: dict[str, int] = {}
    for zone in zones:
        for name, amount in zone.free:
            sums[name] = sums.get(name, 0) + amount
    return sums
