"""What kubelet would report of a simulated node: its NodeResourceTopology, as an exporter writes it."""

from collections import Counter

from railwright.fabric import views
from railwright.simulator import world


def of(on: world.World, host: int) -> views.NodeResourceTopology:
    """The node's NUMA nodes with what is free on each; rails that pods do not ask for are reported free."""
    return views.NodeResourceTopology(
        metadata=views.TopologyMeta(name=on.hosts[host].name),
        zones_or_none=[_zone(on, host, node) for node in range(len(on.hosts[host].hardware.gpus))],
    )


def _zone(on: world.World, host: int, node: int) -> views.TopologyZone:
    it, (gpus, devices) = on.hosts[host].hardware, on.states[host]
    total, free = Counter[str](), Counter[str]()
    accelerator = on.site.policy.accelerators[0]
    total[accelerator], free[accelerator] = it.gpus[node], gpus[node]
    for number, rail in enumerate(on.site.fabric.rails):
        if rail.resource and it.numa_of_rail[number] == node and it.devices[number]:
            total[rail.resource] += it.devices[number] if on.counted else 1
            free[rail.resource] += devices[number] if on.counted else 1
    return views.TopologyZone(
        name=f"node-{node}",
        type="Node",
        resources_or_none=[
            views.ZoneResource(name=name, capacity=count, allocatable=count, available=free[name])
            for name, count in total.items()
        ],
    )
