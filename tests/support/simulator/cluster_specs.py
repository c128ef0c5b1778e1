"""Defines the clusters that a simulation runs on: published shapes with their sources, and a policy for them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.demo.objects import LEAF_LABEL, SPINE_LABEL, UNEVEN_64, Shape, Tree, build_nodes
from railwright.fabric import node_views
from railwright.fabric.policy import model

GPU, POOL = "nvidia.com/gpu", "rdma/rail"  # one pool of equal rails
RAILS, GPUS = 8, 8
FABRIC = "simulated"


class ClusterSpec(msgspec.Struct, frozen=True):
    """Nodes and a policy for them."""

    name: str
    nodes: tuple[node_views.Node, ...]
    policy: model.PolicyDocument
    fabric_name: str

    @property
    def fabric(self) -> model.Fabric:
        """Return the fabric that all simulated jobs use."""
        return self.policy.fabrics[self.fabric_name]


def _expand_sizes(*counts: tuple[int, int]) -> tuple[int, ...]:
    """Return leaf sizes from (size, count) pairs."""
    return tuple(size for size, count in counts for _ in range(count))


def build_shape(spines: Mapping[str, tuple[int, ...]]) -> Shape:
    """Return nodes of 8 GPUs and 8 rails, in leaves of these sizes below each spine."""
    return Shape(spines, GPUS, {POOL: RAILS})


# superpod: DGX SuperPOD reference architecture: scalable units of 32 nodes, one leaf per rail and unit.
# lingjun: alibaba-lingjun-dataset-2023 topo.csv: 847 hosts, 119 ToR groups, aggregation groups of 362, 306 and 179; the
# parent of each ToR group is not published, so they are distributed in proportion.
CATALOGUE: Mapping[str, Shape] = {
    "superpod-2": build_shape({"core": (32,) * 2}),
    "superpod-4": build_shape({"core": (32,) * 4}),
    "superpod-8": build_shape({"core": (32,) * 8}),
    "coreweave": build_shape(UNEVEN_64.spines),
    "lingjun": build_shape(
        {
            "aggregation-a": _expand_sizes((8, 30), (7, 10), (6, 6), (5, 2), (4, 1), (2, 1)),
            "aggregation-b": _expand_sizes((8, 24), (7, 9), (6, 6), (5, 2), (3, 1), (2, 1)),
            "aggregation-c": _expand_sizes((8, 14), (7, 4), (6, 3), (5, 3), (4, 1), (2, 1)),
        }
    ),
}


def build_from_catalogue(name: str, oversubscription: Sequence[float] = (1.0,)) -> ClusterSpec:
    """Return a cluster of the catalogue. A single oversubscription applies to all levels."""
    return build(name, CATALOGUE[name], oversubscription)


def build(name: str, shape: Shape, oversubscription: Sequence[float] = ()) -> ClusterSpec:
    """Return a cluster of this shape."""
    nodes = tuple(msgspec.convert(list(build_nodes(shape)), list[node_views.Node]))
    policy = msgspec.convert(build_policy(), model.PolicyDocument)
    return set_oversubscription(ClusterSpec(name, nodes, policy, FABRIC), oversubscription)


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
        "nodeShapes": [{"name": "8x8", "match": {}, "numa": list(_build_numa_nodes())}],
    }


def _build_numa_nodes() -> Iterator[Tree]:
    """Yield two NUMA nodes, each with half the GPUs and half the rails."""
    for node in range(2):
        gpus = range(node * GPUS // 2, (node + 1) * GPUS // 2)
        half = range(node * RAILS // 2, (node + 1) * RAILS // 2)
        yield {"gpus": list(gpus), "rails": [f"rail{rail}" for rail in half]}
