"""Computes the largest gang that fits now: of pods with all accelerators and one share of every rail of a node.

The node is of the most frequent type. Only these devices count; CPU and memory do not.
"""

from collections import Counter
from collections.abc import Collection

from railwright.fabric import intent, names, resources, topology, views
from railwright.fabric.overview import overview_types
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_capacity
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import model as policies

_GANG = "railwright/largest-gang"  # key of an imaginary gang, which has no pods
_TOLERATE_ALL = views.PodSpec(tolerations=[views.Toleration(operator="Exists")])  # taints of GPU nodes


def compute_largest_gang(  # noqa: PLR0913, PLR0917 - one argument for each source
    name: str,
    nodes: Collection[str],
    pod_size: resources.FrozenAmounts,
    placement_engine: engine.PlacementEngine,
    policy: policies.Policy,
    networks: intent.Networks,
) -> overview_types.LargestGang | None:
    """Return the largest gang of pods of this size on `nodes`, those of the fabric."""
    pod = views.Pod(metadata=views.ObjectMeta(labels_or_none={names.FABRIC: name}), spec=_TOLERATE_ALL)
    request = scheduling_request.build_request(
        pod, policy, networks, tuple(nodes), requests=pod_size, volcano_job=_GANG, uid=_GANG
    )
    if request is None:
        return None
    index = placement_engine.get_index(request)
    capacity = gang_capacity.build_on(index, index.nodes_by_class)
    slots_by_leaf = capacity.count_all_slots()
    labelled = {leaf: slots for leaf, slots in slots_by_leaf.items() if leaf != topology.NO_DOMAIN}
    leaf, pods_on_leaf = max(labelled.items(), key=lambda item: (item[1], item[0]), default=(topology.NO_DOMAIN, 0))
    accelerators = sum(pod_size.get(resource, 0) for resource in policy.document.accelerators)
    return overview_types.LargestGang(
        pods=sum(slots_by_leaf.values()),
        pods_on_leaf=pods_on_leaf,
        gpus=accelerators // resources.UNIT,
        rails=sum(len(need.rails) for need in request.needs),
        leaf=topology.format_domain(leaf) if pods_on_leaf else "",
    )


def find_pod_size(
    fabric: policies.Fabric, nodes: Collection[str], cluster: cluster_state.ClusterState, policy: policies.Policy
) -> resources.FrozenAmounts | None:
    """Return the devices of the most frequent node type; None if the nodes have none. It changes with nodes only."""
    pools = intent.group_by_resource(fabric.rails)
    device_names = (*policy.document.accelerators, *pools)
    counts = Counter(
        tuple(capacity.get(name, 0) for name in device_names)
        for node in nodes
        if node in cluster.nodes and (capacity := cluster.nodes[node].capacity or cluster.nodes[node].allocatable)
    )
    sizes = [size for size, _ in counts.most_common() if any(size)]
    if not sizes:
        return None
    amounts = {
        name: min(amount, fabric.count_devices(len(pools[name])) * resources.UNIT) if name in pools else amount
        for name, amount in zip(device_names, sizes[0], strict=True)
        if amount
    }
    return resources.freeze(amounts)
