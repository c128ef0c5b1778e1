"""Reads NodeResourceTopology reports: whether one is current, and which pods kubelet's topology manager rejects by it.

The rules are those of the reported policy and scope for devices, as in Kubernetes 1.34
(pkg/kubelet/cm/topologymanager, pkg/kubelet/cm/devicemanager/topology_hints.go). CPUs and memory are not modelled:
kubelet may still reject a pod because of exclusive CPUs on another NUMA node.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement.nodes import numa
from railwright.fabric.placement.state import object_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

RESTRICTED, SINGLE_NUMA_NODE = "restricted", "single-numa-node"  # with other policies every pod is admitted
CONTAINER = "container"  # scope


def is_current(
    report: node_views.NodeResourceTopology, bound: Collection[object_info.PodInfo], names: Collection[str]
) -> bool:
    """True if the report is newer than the last binding on the node. `bound` are its pods that request devices.

    Both times are from the API server, in seconds. The exporter reads the devices after kubelet has admitted the pod,
    so a report of the same second is not newer. A report with fewer used devices than the pods request is not current
    either: it is older, or its exporter does not count them. If a time is missing (a snapshot without managed fields),
    only the used devices count.
    """
    used: Counter[str] = Counter()
    for zone in numa.read_allocatable_zones(report, names):
        used.update(dict(zone.free))
    for zone in numa.read_available_zones(report, names):
        used.subtract(dict(zone.free))
    if any(amount < sum(pod.requests.get(name, 0) for pod in bound) for name, amount in used.items()):
        return False
    last, written = max((pod.bound_at for pod in bound), default=""), report.written_at
    return not last or not written or written > last


def list_container_devices(spec: views.PodSpec, names: Collection[str]) -> tuple[numa.ResourceCounts, ...]:
    """Return what each container requests of these devices, in kubelet's order: sidecars, then app containers.

    Other init containers are left out, because kubelet reuses their devices for the app containers.
    """
    sidecars = [container for container in spec.init_containers or () if container.restart_policy == "Always"]
    by_container = []
    for container in (*sidecars, *spec.containers):
        requests = resources.parse_amounts(container.requests)
        if devices := tuple([(name, requests[name]) for name in names if requests.get(name, 0) > 0]):
            by_container.append(devices)
    return tuple(by_container)


def find_admission_error(
    report: node_views.NodeResourceTopology,
    zones: numa.Zones,
    requested: numa.ResourceCounts,
    by_container: Sequence[numa.ResourceCounts],
) -> reason.Reason | None:
    """Return kubelet's admission error for the pod (TopologyAffinityError), or None if there is none.

    `zones` are the free devices. What each container requests counts with scope "container", otherwise what the pod
    requests. Resources that the report or the zones do not list by NUMA node are ignored.
    """
    policy = report.attributes.get("topologyManagerPolicy", "")
    scope = report.attributes.get("topologyManagerScope", CONTAINER)
    if policy not in {RESTRICTED, SINGLE_NUMA_NODE}:
        return None
    free = {zone.node: Counter(dict(zone.free)) for zone in zones}
    listed = {name for here in free.values() for name in here}
    capacity: dict[str, list[int]] = {}  # of each NUMA node, the largest first
    for zone in numa.read_capacity_zones(report, listed):
        for name, amount in zone.free:
            capacity[name] = sorted([*capacity.get(name, ()), amount], reverse=True)
    for devices in by_container if scope == CONTAINER else (requested,):
        amounts = {name: amount for name, amount in devices if name in capacity}
        # kubelet prefers the fewest NUMA nodes on which an empty node has a resource, the same ones for all resources
        sizes = {
            1 if policy == SINGLE_NUMA_NODE else _count_min_zones(amount, capacity[name])
            for name, amount in amounts.items()
        }
        # a Grace-Blackwell node has dozens of NUMA nodes without devices
        with_devices = sorted(node for node, here in free.items() if any(here[name] > 0 for name in amounts))
        fitting = (
            nodes
            for nodes in (itertools.combinations(with_devices, *sizes) if len(sizes) == 1 else ())
            if all(sum(free[node][name] for node in nodes) >= amount for name, amount in amounts.items())
        )
        nodes = next(fitting, None)
        if nodes is None and amounts:
            return _describe(policy, scope, amounts, sizes)
        for name, amount in amounts.items():
            left = amount
            for node in nodes or ():
                used = min(left, free[node][name])
                free[node][name] -= used
                left -= used
    return None


def _count_min_zones(amount: int, capacity: Sequence[int]) -> int:
    totals = enumerate(itertools.accumulate(capacity), start=1)
    return next((size for size, total in totals if total >= amount), len(capacity))


def _describe(policy: str, scope: str, amounts: resources.Amounts, sizes: Collection[int]) -> reason.Reason:
    needed = ", ".join([f"{amount // resources.UNIT} {name}" for name, amount in amounts.items()])
    if len(sizes) > 1:
        cause = f"{needed} need different numbers of NUMA nodes"
    else:
        cause = f"{needed} are not free together on {max(sizes)} of its NUMA nodes"
    return reason.Reason(
        PlacementCode.TOPOLOGY_AFFINITY,
        "kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
        f"{policy}, scope {scope}, and {cause}",
        fix="request fewer devices or set topologyManagerPolicy: best-effort",
    )
