"""Small simulated clusters for the simulator's tests."""

import msgspec

from railwright.fabric import views
from railwright.fabric.policy import model
from railwright.simulator import shapes, sites, world


def site(spines, over=(1.0,), *, rails=8, mixed=False, nodes=None) -> sites.Site:
    """Nodes of 8 GPUs in leaves of these sizes below each spine."""
    shape = shapes.Shape(spines, sites.GPUS, sites._rails(rails, mixed=mixed), "a test", product=f"8x{rails}")
    trees = list(shapes.nodes(shape)) if nodes is None else nodes
    document = msgspec.convert(sites._document(mixed=mixed), model.FabricPolicy)
    made = sites.Site("town", tuple(msgspec.convert(trees, list[views.Node])), document, sites.FABRIC, "a test")
    return sites.oversubscribed(made, over)


def town(spines, over=(1.0,), **options) -> world.World:
    return world.World(site(spines, over, **options))


def fill(on: world.World, host: int, *sizes: int) -> None:
    """Pods of other jobs, with so many GPUs, on a host."""
    for gpus in sizes:
        on.take(host, on.demand(gpus))


def mixed_nodes():
    """One node of 8 rails and one of 4, in leaves of their own."""
    wide = shapes.Shape({"s": (1,)}, 8, sites._rails(8, mixed=True), "", product="8x8")
    narrow = shapes.Shape({"s": (1,)}, 8, sites._rails(4, mixed=True), "", product="8x4")
    return [*shapes.nodes(wide), *shapes.nodes(narrow, 1)]
