"""Defines the clusters that a simulation runs on: their nodes and a policy for them, each with its source.

Owns the published shapes as data, builds the Kubernetes objects of a cluster (nodes with GPUs and rails in a tree of
domains, pods of other jobs, objects for `--snapshot`), and combines nodes of a real cluster with a policy. Knows no
scheduler and no job.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent, node_views
from railwright.fabric.policy import model, presets
from railwright.fabric.workloads import volcano

# --- objects --------------------------------------------------------------------------------------------------

Tree = dict[str, Any]
LEAF_LABEL, SPINE_LABEL = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
PRODUCT_LABEL = "nvidia.com/gpu.product"


class Shape(msgspec.Struct, frozen=True):
    """The leaf sizes under each spine, and the hardware of every node."""

    spines: Mapping[str, Sequence[int]]
    gpus: int
    rails: Mapping[str, int]  # resource -> devices per node
    source: str
    product: str = ""  # value of the label that a policy's node shapes match

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return sum(sum(leaves) for leaves in self.spines.values())


UNEVEN_64 = Shape(
    spines={"superpod-a": (1, 2, 2, 3, 3, 5, 5, 6, 6, 8), "superpod-b": (1, 2, 3, 6, 11)},
    gpus=8,
    rails={f"nvidia.com/mlx5_{rail}": 100 for rail in range(4)},  # network-operator's shared plugin: 100 per rail
    source="64 H100 nodes in 15 leaf groups under two superpods (marin-community/marin issue 6950)",
)


def build_nodes(shape: Shape, first_leaf: int = 0) -> Iterator[Tree]:
    """Yield the nodes, named by their leaf; leaves are numbered from `first_leaf`."""
    leaf = first_leaf
    for spine, sizes in shape.spines.items():
        for size in sizes:
            for index in range(size):
                yield _build_node(f"gpu-{leaf:02}-{index:02}", f"leaf-{leaf:02}", spine, shape)
            leaf += 1


def _build_node(name: str, leaf: str, spine: str, shape: Shape) -> Tree:
    amounts = {
        "cpu": "128",
        "memory": "2Ti",
        "pods": "110",
        "nvidia.com/gpu": str(shape.gpus),
        **{resource: str(count) for resource, count in shape.rails.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "labels": {
                LEAF_LABEL: leaf,
                SPINE_LABEL: spine,
                "kubernetes.io/hostname": name,
                **({PRODUCT_LABEL: shape.product} if shape.product else {}),
            },
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def build_busy_pods(trees: Sequence[Tree], share: float, shape: Shape, *, seed: int) -> Iterator[Tree]:
    """Yield pods of other jobs that fill `share` of the nodes, chosen at random from the seed."""
    rng = random.Random(seed)  # noqa: S311 - a simulation has to be repeatable, not secret
    for index, node in enumerate(rng.sample(list(trees), round(share * len(trees)))):
        requests = {"nvidia.com/gpu": str(shape.gpus), **dict.fromkeys(shape.rails, "1"), "cpu": "32"}
        yield build_pod(f"other-{index}", "research", node["metadata"]["name"], requests)


def build_background_pods(trees: Sequence[Tree], *, seed: int) -> Iterator[Tree]:
    """Yield a CPU-only pod of uneven size for every node: such pods influence schedulers that count CPU."""
    rng = random.Random(seed)  # noqa: S311 - as above
    for node in trees:
        name = node["metadata"]["name"]
        yield build_pod(f"agent-{name}", "monitoring", name, {"cpu": f"{rng.randrange(1, 24)}", "memory": "4Gi"})


def build_pod(name: str, namespace: str, node: str, requests: Mapping[str, str]) -> Tree:
    """Return a pod bound to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"pod-{name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": dict(requests), "limits": dict(requests)}}],
        },
        "status": {"phase": "Running"},
    }


def build_volcano_pods(job: Tree, *, uid: str) -> Iterator[Tree]:
    """Yield the pods that Volcano's job controller creates for a Job (pkg/controllers/job), reduced for placement."""
    name, namespace = job["metadata"]["name"], job["metadata"].get("namespace", "default")
    for task in job["spec"]["tasks"]:
        template = task["template"]
        for index in range(task.get("replicas", 1)):
            own = {volcano.JOB: name, volcano.TASK: task["name"], volcano.TASK_INDEX: str(index)}
            metadata = template.get("metadata", {})
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{task['name']}-{index}",
                    "namespace": namespace,
                    "labels": {**metadata.get("labels", {}), **own},
                    "annotations": {**metadata.get("annotations", {}), volcano.GROUP_ANNOTATION: f"{name}-{uid}"},
                    "ownerReferences": [
                        {
                            "apiVersion": "batch.volcano.sh/v1alpha1",
                            "kind": "Job",
                            "name": name,
                            "uid": uid,
                            "controller": True,
                        }
                    ],
                },
                "spec": template["spec"],
            }


# --- clusters -------------------------------------------------------------------------------------------------


GPU, POOL, RAIL = "nvidia.com/gpu", "rdma/rail", "rdma/rail{}"  # one pool of equal rails, or a resource a rail
RAILS, GPUS = 8, 8
FABRIC = "simulated"


class ClusterSpecError(ValueError):
    """Nodes and policy do not suffice for a simulation; the message says what is missing."""


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


def build_from_nodes(nodes: Sequence[node_views.Node], policy: model.PolicyDocument, source: str) -> ClusterSpec:
    """Return a spec of a real cluster's nodes and its policy. Raises ClusterSpecError if they do not suffice."""
    name = policy.default_fabric or next(iter(policy.fabrics), "")
    if name not in policy.fabrics or not policy.fabrics[name].rails:
        raise ClusterSpecError(
            "the policy has no default fabric with rails: set defaultFabric to a fabric that has rails"
        )
    if policy.fabrics[name].claims is not None:
        nodes, policy, source = _add_claimed_resources(nodes, policy, name, source)
    usable = tuple(node for node in nodes if _is_usable(node, policy))
    if not usable:
        raise ClusterSpecError(f"no node has allocatable {' or '.join(policy.accelerators)}")
    return ClusterSpec("nodes", usable, policy, name, source)


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


def _is_usable(node: node_views.Node, policy: model.PolicyDocument) -> bool:
    return any(node.status.allocatable.get(name) for name in policy.accelerators) and not node.spec.unschedulable


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
                    "rails": "preferred" if mixed else "required",
                    "numa": "preferred",
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
        yield {"node": node, "gpus": list(gpus), "rails": [f"rail{rail}" for rail in half]}


def _add_claimed_resources(
    nodes: Sequence[node_views.Node], policy: model.PolicyDocument, name: str, source: str
) -> tuple[Sequence[node_views.Node], model.PolicyDocument, str]:
    """Return nodes and policy with resources in place of the claims of a fabric, and the source with a note.

    A list of nodes does not say what ResourceSlices offer. Nodes that match a node shape of the policy, or without
    shapes those with a label of the fabric's domains, get all rails of the fabric and its number of GPUs.
    """
    claimed = policy.fabrics[name]
    assert claimed.claims is not None  # noqa: S101 - the caller has tested it
    fabric = msgspec.structs.replace(intent.fill_resources(name, claimed, {}), claims=None)
    amounts: dict[str, int | str] = {rail.resource: fabric.devices_per_rail for rail in fabric.rails if rail.resource}
    if claimed.claims.accelerators is not None:
        amounts[policy.accelerators[0]] = fabric.gpus_per_node or len(fabric.rails)
    labels = () if policy.node_shapes else presets.list_domain_keys(fabric.placement)
    counted = [_add_amounts(node, amounts) if _is_part(node, policy, labels) else node for node in nodes]
    note = f"{source}; rails by claims of DeviceClass {claimed.claims.device_class} are simulated as resources"
    return counted, msgspec.structs.replace(policy, fabrics={**policy.fabrics, name: fabric}), note


def _is_part(node: node_views.Node, policy: model.PolicyDocument, labels: Sequence[str]) -> bool:
    own = node.metadata.labels
    return model.find_shape(policy.node_shapes, own) is not None or any(own.get(key) for key in labels)


def _add_amounts(node: node_views.Node, amounts: dict[str, int | str]) -> node_views.Node:
    """Return a node with these resources, unless it reports them itself."""
    status = msgspec.structs.replace(
        node.status,
        allocatable_or_none={**amounts, **node.status.allocatable},
        capacity_or_none={**amounts, **node.status.capacity},
    )
    return msgspec.structs.replace(node, status=status)
