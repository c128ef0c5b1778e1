"""Builds the NodeResourceTopology of a simulated node, as an exporter would write it."""

from collections import Counter

from railwright.fabric import node_views
from railwright.simulator import cluster


def build(sim_cluster: cluster.Cluster, host: int) -> node_views.NodeResourceTopology:
    """Return the node's NUMA nodes with their free devices. Rails that pods do not request are reported free."""
    return node_views.NodeResourceTopology(
        metadata=node_views.TopologyMeta(name=sim_cluster.hosts[host].name),
        zones_or_none=[
            _build_zone(sim_cluster, host, node) for node in range(len(sim_cluster.hosts[host].hardware.gpus))
        ],
    )


def _build_zone(sim_cluster: cluster.Cluster, host: int, node: int) -> node_views.TopologyZone:
    hardware, (gpus, devices) = sim_cluster.hosts[host].hardware, sim_cluster.states[host]
    total, free = Counter[str](), Counter[str]()
    accelerator = sim_cluster.spec.policy.accelerators[0]
    total[accelerator], free[accelerator] = hardware.gpus[node], gpus[node]
    for number, rail in enumerate(sim_cluster.spec.fabric.rails):
        if rail.resource and hardware.numa_of_rail[number] == node and hardware.devices[number]:
            total[rail.resource] += hardware.devices[number] if sim_cluster.counted else 1
            free[rail.resource] += devices[number] if sim_cluster.counted else 1
    return node_views.TopologyZone(
        name=f"node-{node}",
        type="Node",
        resources_or_none=[
            node_views.ZoneResource(name=name, capacity=count, allocatable=count, available=free[name])
            for name, count in total.items()
        ],
    )
