"""Defines the clusters that a simulation runs on: published shapes with their sources, and a policy for them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.demo.objects import LEAF_LABEL, PRODUCT_LABEL, SPINE_LABEL, UNEVEN_64, Shape, Tree, build_nodes
from railwright.fabric import node_views
from railwright.fabric.policy import model

GPU, POOL = "nvidia.com/gpu", "rdma/rail"  # one pool of equal rails
RAILS, GPUS, PRODUCT = 8, 8, "8x8"
FABRIC = "simulated"


class ClusterSpec(msgspec.Struct, frozen=True):
    """Nodes and a policy for them."""

    name: str
    nodes: tuple[node_views.Node, ...]
    policy: model.PolicyDocument
    fabric_name: str
    source: str

    @property
    def fabric(self) -> model.Fabric:
        """Return the fabric that all simulated jobs use."""
        return self.policy.fabrics[self.fabric_name]


def _expand_sizes(*counts: tuple[int, int]) -> tuple[int, ...]:
    """Return leaf sizes from (size, count) pairs."""
    return tuple(size for size, count in counts for _ in range(count))


def build_shape(spines: Mapping[str, tuple[int, ...]], source: str) -> Shape:
    """Return nodes of 8 GPUs and 8 rails, in leaves of these sizes below each spine."""
    return Shape(spines, GPUS, {POOL: RAILS}, source, product=PRODUCT)


def _build_superpod(units: int) -> Shape:
    source = f"DGX SuperPOD reference architecture: {units} scalable units of 32 nodes, one leaf per rail and unit"
    return build_shape({"core": (32,) * units}, source)


_LINGJUN = (
    "alibaba-lingjun-dataset-2023 topo.csv: 847 hosts, 119 ToR groups, aggregation groups of 362, 306 and 179; "
    "the parent of each ToR group is not published: they are distributed in proportion"
)
CATALOGUE: Mapping[str, Shape] = {
    "superpod-2": _build_superpod(2),
    "superpod-4": _build_superpod(4),
    "superpod-8": _build_superpod(8),
    "coreweave": build_shape(UNEVEN_64.spines, UNEVEN_64.source),
    "lingjun": build_shape(
        {
            "aggregation-a": _expand_sizes((8, 30), (7, 10), (6, 6), (5, 2), (4, 1), (2, 1)),
            "aggregation-b": _expand_sizes((8, 24), (7, 9), (6, 6), (5, 2), (3, 1), (2, 1)),
            "aggregation-c": _expand_sizes((8, 14), (7, 4), (6, 3), (5, 3), (4, 1), (2, 1)),
        },
        _LINGJUN,
    ),
}


def build_from_catalogue(name: str, oversubscription: Sequence[float] = (1.0,)) -> ClusterSpec:
    """Return a cluster of the catalogue. A single oversubscription applies to all levels."""
    return build(name, CATALOGUE[name], oversubscription)


def build(name: str, shape: Shape, oversubscription: Sequence[float] = ()) -> ClusterSpec:
    """Return a cluster of this shape."""
    nodes = tuple(msgspec.convert(list(build_nodes(shape)), list[node_views.Node]))
    policy = msgspec.convert(build_policy(), model.PolicyDocument)
    return set_oversubscription(ClusterSpec(name, nodes, policy, FABRIC, shape.source), oversubscription)


def set_oversubscription(spec: ClusterSpec, ratios: Sequence[float]) -> ClusterSpec:
    """Return the spec with these ratios at its levels; the last one applies to all levels above. () changes nothing."""
    if not ratios:
        return spec
    placement = spec.fabric.placement
    levels = max(1, len(placement.domains))
    return set_placement(spec, oversubscription=(*ratios, *(ratios[-1],) * levels)[:levels])


def set_placement(spec: ClusterSpec, **keys: Any) -> ClusterSpec:
    """Return the spec with these keys of its fabric's `placement`."""
    changed = msgspec.structs.replace(spec.fabric.placement, **keys)
    fabric = msgspec.structs.replace(spec.fabric, placement=changed)
    fabrics = {**spec.policy.fabrics, spec.fabric_name: fabric}
    return msgspec.structs.replace(spec, policy=msgspec.structs.replace(spec.policy, fabrics=fabrics))


def build_policy() -> Tree:
    """Return the policy of a cluster of the catalogue."""
    rails = [{"name": f"rail{k}", "resource": POOL} for k in range(RAILS)]
    return {
        "apiVersion": "railwright.io/v1alpha1",
        "defaultFabric": FABRIC,
        "accelerators": [GPU],
        "fabrics": {
            FABRIC: {
                "transport": "roce",
                "rails": rails,
                "railsPerPod": "proportional",
                "gpusPerNode": GPUS,
                "placement": {"domains": [LEAF_LABEL, SPINE_LABEL]},
            }
        },
        "nodeShapes": [{"name": PRODUCT, "match": {PRODUCT_LABEL: PRODUCT}, "numa": list(_build_numa_nodes())}],
    }


def _build_numa_nodes() -> Iterator[Tree]:
    """Yield two NUMA nodes, each with half the GPUs and half the rails."""
    for node in range(2):
        gpus = range(node * GPUS // 2, (node + 1) * GPUS // 2)
        half = range(node * RAILS // 2, (node + 1) * RAILS // 2)
        yield {"gpus": list(gpus), "rails": [f"rail{rail}" for rail in half]}
