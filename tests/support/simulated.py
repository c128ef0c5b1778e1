"""Small simulated clusters for the simulator's tests."""

import msgspec

from railwright.fabric import node_views
from railwright.fabric.policy import model
from railwright.simulator import cluster, cluster_specs


def site(spines, over=(1.0,), *, rails=8, mixed=False, nodes=None) -> cluster_specs.ClusterSpec:
    """Return nodes of 8 GPUs in leaves of these sizes below each spine."""
    shape = cluster_specs.Shape(
        spines,
        cluster_specs.GPUS,
        cluster_specs.list_rail_resources(rails, mixed=mixed),
        "a test",
        product=f"8x{rails}",
    )
    trees = list(cluster_specs.build_nodes(shape)) if nodes is None else nodes
    document = msgspec.convert(cluster_specs.build_policy(mixed=mixed), model.FabricPolicy)
    made = cluster_specs.ClusterSpec(
        "town", tuple(msgspec.convert(trees, list[node_views.Node])), document, cluster_specs.FABRIC, "a test"
    )
    return cluster_specs.set_oversubscription(made, over)


def town(spines, over=(1.0,), *, goal="bandwidth", **options) -> cluster.Cluster:
    return cluster.Cluster(cluster_specs.set_placement(site(spines, over, **options), goal=goal))


def fill(on: cluster.Cluster, host: int, *sizes: int) -> None:
    """Let pods of other jobs use this number of GPUs of a host."""
    for gpus in sizes:
        on.start_pod(host, on.build_demand(gpus))


def mixed_nodes():
    """Return one node of 8 rails and one of 4, in leaves of their own."""
    wide = cluster_specs.Shape({"s": (1,)}, 8, cluster_specs.list_rail_resources(8, mixed=True), "", product="8x8")
    narrow = cluster_specs.Shape({"s": (1,)}, 8, cluster_specs.list_rail_resources(4, mixed=True), "", product="8x4")
    return [*cluster_specs.build_nodes(wide), *cluster_specs.build_nodes(narrow, 1)]
