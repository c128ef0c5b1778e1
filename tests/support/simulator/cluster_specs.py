"""Defines the clusters that a simulation runs on: published shapes with their sources, and a policy for them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.demo.objects import LEAF_LABEL, PRODUCT_LABEL, SPINE_LABEL, UNEVEN_64, Shape, Tree, build_nodes
from railwright.fabric import node_views
from railwright.fabric.policy import model

GPU, POOL, RAIL = "nvidia.com/gpu", "rdma/rail", "rdma/rail{}"  # one pool of equal rails, or a resource a rail
RAILS, GPUS = 8, 8
FABRIC = "simulated"


class CatalogueEntry(msgspec.Struct, frozen=True):
    """A published cluster. Its parts differ in hardware. In a mixed one, each rail has its own resource."""

    parts: tuple[Shape, ...]
    source: str
    mixed: bool = False


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


def list_rail_resources(count: int, *, mixed: bool = False) -> Mapping[str, int]:
    """Return resource -> devices per node: one pool, or in a mixed cluster a resource for each rail."""
    return {RAIL.format(rail): 1 for rail in range(count)} if mixed else {POOL: count}


def _build_superpod(units: int) -> CatalogueEntry:
    source = f"DGX SuperPOD reference architecture: {units} scalable units of 32 nodes, one leaf per rail and unit"
    spines = {"core": (32,) * units}
    return CatalogueEntry((Shape(spines, GPUS, list_rail_resources(RAILS), source, product="8x8"),), source)


_LINGJUN = (
    "alibaba-lingjun-dataset-2023 topo.csv: 847 hosts, 119 ToR groups, aggregation groups of 362, 306 and 179; "
    "the parent of each ToR group is not published: they are distributed in proportion"
)
_MIXED = (
    "assumed: 64 nodes of 8 rails in units of 16 and 32 nodes of 4 rails in units of 8, as clusters grow by purchases"
)

CATALOGUE: Mapping[str, CatalogueEntry] = {
    "superpod-2": _build_superpod(2),
    "superpod-4": _build_superpod(4),
    "superpod-8": _build_superpod(8),
    "coreweave": CatalogueEntry(
        (Shape(UNEVEN_64.spines, GPUS, list_rail_resources(RAILS), UNEVEN_64.source, product="8x8"),), UNEVEN_64.source
    ),
    "lingjun": CatalogueEntry(
        (
            Shape(
                {
                    "aggregation-a": _expand_sizes((8, 30), (7, 10), (6, 6), (5, 2), (4, 1), (2, 1)),
                    "aggregation-b": _expand_sizes((8, 24), (7, 9), (6, 6), (5, 2), (3, 1), (2, 1)),
                    "aggregation-c": _expand_sizes((8, 14), (7, 4), (6, 3), (5, 3), (4, 1), (2, 1)),
                },
                GPUS,
                list_rail_resources(RAILS),
                _LINGJUN,
                product="8x8",
            ),
        ),
        _LINGJUN,
    ),
    "mixed": CatalogueEntry(
        (
            Shape({"hall-a": (16,) * 4}, GPUS, list_rail_resources(8, mixed=True), _MIXED, product="8x8"),
            Shape({"hall-b": (8,) * 4}, GPUS, list_rail_resources(4, mixed=True), _MIXED, product="8x4"),
        ),
        _MIXED,
        mixed=True,
    ),
}


def build_from_catalogue(name: str, oversubscription: Sequence[float] = (1.0,)) -> ClusterSpec:
    """Return a cluster of the catalogue. A single oversubscription applies to all levels."""
    entry = CATALOGUE[name]
    first_leaf = 0
    nodes: list[Tree] = []
    for part in entry.parts:
        nodes.extend(build_nodes(part, first_leaf))
        first_leaf += sum(map(len, part.spines.values()))
    policy = msgspec.convert(build_policy(mixed=entry.mixed), model.PolicyDocument)
    spec = ClusterSpec(name, tuple(msgspec.convert(nodes, list[node_views.Node])), policy, FABRIC, entry.source)
    return set_oversubscription(spec, oversubscription)


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


def build_policy(*, mixed: bool) -> Tree:
    """Return the policy of a cluster of the catalogue."""
    rails = [{"name": f"rail{k}", "resource": RAIL.format(k) if mixed else POOL} for k in range(RAILS)]
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
                "placement": {
                    "domains": [LEAF_LABEL, SPINE_LABEL],
                },
            }
        },
        "nodeShapes": [
            {
                "name": f"8x{count}",
                "match": {PRODUCT_LABEL: f"8x{count}"},
                "numa": list(_build_numa_nodes(count)),
            }
            for count in (8, 4)
        ],
    }


def _build_numa_nodes(rails: int) -> Iterator[Tree]:
    """Yield two NUMA nodes, each with half the GPUs and half the rails."""
    for node in range(2):
        gpus = range(node * GPUS // 2, (node + 1) * GPUS // 2)
        half = range(node * rails // 2, (node + 1) * rails // 2)
        yield {"gpus": list(gpus), "rails": [f"rail{rail}" for rail in half]}
