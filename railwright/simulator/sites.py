"""The clusters a simulation runs on: their nodes and the policy written for them, each with its source.

Owns the published shapes as data, and how nodes of a real cluster join a policy. Knows no scheduler and no job.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import views
from railwright.fabric.policy import model
from railwright.simulator import shapes

Tree = dict[str, Any]

GPU, POOL, RAIL = "nvidia.com/gpu", "rdma/rail", "rdma/rail{}"  # one pool of equal rails, or a resource a rail
RAILS, GPUS = 8, 8
FABRIC = "simulated"


class SiteError(ValueError):
    """No simulation can be run on these nodes; the message says what is missing."""


class Catalogued(msgspec.Struct, frozen=True):
    """A published shape: its parts differ in hardware. A mixed site counts each rail by a resource of its own."""

    parts: tuple[shapes.Shape, ...]
    source: str
    mixed: bool = False


class Site(msgspec.Struct, frozen=True):
    """Nodes and the policy they are placed by."""

    name: str
    nodes: tuple[views.Node, ...]
    policy: model.FabricPolicy
    fabric_name: str
    source: str

    @property
    def fabric(self) -> model.Fabric:
        """The fabric all simulated jobs use."""
        return self.policy.fabrics[self.fabric_name]


def _sizes(*counts: tuple[int, int]) -> tuple[int, ...]:
    """(size, how many) pairs as one tuple of leaf sizes."""
    return tuple(size for size, count in counts for _ in range(count))


def _rails(count: int, *, mixed: bool = False) -> Mapping[str, int]:
    return {RAIL.format(rail): 1 for rail in range(count)} if mixed else {POOL: count}


def _superpod(units: int) -> Catalogued:
    source = f"DGX SuperPOD reference architecture: {units} scalable units of 32 nodes, one leaf per rail and unit"
    spines = {"core": (32,) * units}
    return Catalogued((shapes.Shape(spines, GPUS, _rails(RAILS), source, product="8x8"),), source)


_UNEVEN = shapes.UNEVEN_64
_LINGJUN = (
    "alibaba-lingjun-dataset-2023 topo.csv: 847 hosts, 119 ToR groups, aggregation groups of 362, 306 and 179; "
    "which ToR group is below which is not published: dealt out in proportion"
)
_MIXED = "ours: 64 nodes of 8 rails in units of 16 and 32 nodes of 4 rails in units of 8, as sites grow by purchase"

CATALOGUE: Mapping[str, Catalogued] = {
    "superpod-2": _superpod(2),
    "superpod-4": _superpod(4),
    "superpod-8": _superpod(8),
    "coreweave": Catalogued(
        (shapes.Shape(_UNEVEN.spines, GPUS, _rails(RAILS), _UNEVEN.source, product="8x8"),), _UNEVEN.source
    ),
    "lingjun": Catalogued(
        (
            shapes.Shape(
                {
                    "aggregation-a": _sizes((8, 30), (7, 10), (6, 6), (5, 2), (4, 1), (2, 1)),
                    "aggregation-b": _sizes((8, 24), (7, 9), (6, 6), (5, 2), (3, 1), (2, 1)),
                    "aggregation-c": _sizes((8, 14), (7, 4), (6, 3), (5, 3), (4, 1), (2, 1)),
                },
                GPUS,
                _rails(RAILS),
                _LINGJUN,
                product="8x8",
            ),
        ),
        _LINGJUN,
    ),
    "mixed": Catalogued(
        (
            shapes.Shape({"hall-a": (16,) * 4}, GPUS, _rails(8, mixed=True), _MIXED, product="8x8"),
            shapes.Shape({"hall-b": (8,) * 4}, GPUS, _rails(4, mixed=True), _MIXED, product="8x4"),
        ),
        _MIXED,
        mixed=True,
    ),
}


def published(name: str, oversubscription: Sequence[float] = (1.0,)) -> Site:
    """A shape of the catalogue; one oversubscription counts for the domains of every level."""
    entry = CATALOGUE[name]
    first = 0
    nodes: list[Tree] = []
    for part in entry.parts:
        nodes.extend(shapes.nodes(part, first))
        first += sum(map(len, part.spines.values()))
    policy = msgspec.convert(_document(mixed=entry.mixed), model.FabricPolicy)
    site = Site(name, tuple(msgspec.convert(nodes, list[views.Node])), policy, FABRIC, entry.source)
    return oversubscribed(site, oversubscription)


def given(nodes: Sequence[views.Node], policy: model.FabricPolicy, source: str) -> Site:
    """A real cluster's nodes under its own policy. Raises SiteError where they do not make a simulation."""
    name = policy.default_fabric or next(iter(policy.fabrics), "")
    if name not in policy.fabrics or not policy.fabrics[name].rails:
        raise SiteError("the policy has no fabric with rails: name one as defaultFabric")
    usable = tuple(node for node in nodes if _accelerated(node, policy))
    if not usable:
        raise SiteError(f"no node has allocatable {' or '.join(policy.accelerators)}")
    return Site("nodes", usable, policy, name, source)


def oversubscribed(site: Site, ratios: Sequence[float]) -> Site:
    """The site with these ratios at its levels, the last one for all above; none leaves the policy's own."""
    if not ratios:
        return site
    placement = site.fabric.placement
    levels = max(1, len(placement.domains))
    filled = (*ratios, *(ratios[-1],) * levels)[:levels]
    changed = msgspec.structs.replace(placement, oversubscription=filled)
    fabric = msgspec.structs.replace(site.fabric, placement=changed)
    fabrics = {**site.policy.fabrics, site.fabric_name: fabric}
    return msgspec.structs.replace(site, policy=msgspec.structs.replace(site.policy, fabrics=fabrics))


def _accelerated(node: views.Node, policy: model.FabricPolicy) -> bool:
    return any(node.status.allocatable.get(name) for name in policy.accelerators) and not node.spec.unschedulable


def _document(*, mixed: bool) -> Tree:
    rails = [{"name": f"rail{k}", "resource": RAIL.format(k) if mixed else POOL} for k in range(RAILS)]
    return {
        "apiVersion": "railwright.io/v1alpha1",
        "kind": "FabricPolicy",
        "defaultFabric": FABRIC,
        "accelerators": [GPU],
        "fabrics": {
            FABRIC: {
                "transport": "roce",
                "rails": rails,
                "railsPerPod": "proportional",
                "gpusPerNode": GPUS,
                "placement": {
                    "rails": "preferred" if mixed else "required",
                    "numa": "preferred",
                    "domains": [shapes.LEAF_LABEL, shapes.SPINE_LABEL],
                },
            }
        },
        "nodeShapes": [
            {"name": f"8x{count}", "match": {shapes.PRODUCT_LABEL: f"8x{count}"}, "numa": list(_numa(count))}
            for count in (8, 4)
        ],
    }


def _numa(rails: int) -> Iterator[Tree]:
    """Two NUMA nodes with half the GPUs and half the rails each."""
    for node in range(2):
        gpus = range(node * GPUS // 2, (node + 1) * GPUS // 2)
        half = range(node * rails // 2, (node + 1) * rails // 2)
        yield {"node": node, "gpus": list(gpus), "rails": [f"rail{rail}" for rail in half]}
