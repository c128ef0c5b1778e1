"""Builds the objects of a small cluster: nodes with GPUs and rails in a tree of leaves, and pods of jobs on them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Tree = dict[str, Any]
LEAF_LABEL, SPINE_LABEL = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"


class Shape(msgspec.Struct, frozen=True):
    """The leaf sizes under each spine, and the hardware of every node."""

    spines: Mapping[str, Sequence[int]]
    gpus: int
    rails: Mapping[str, int]  # resource -> devices per node


# 64 H100 nodes in 15 leaf groups under two superpods (marin-community/marin issue 6950)
UNEVEN_64 = Shape(
    spines={"superpod-a": (1, 2, 2, 3, 3, 5, 5, 6, 6, 8), "superpod-b": (1, 2, 3, 6, 11)},
    gpus=8,
    rails={f"nvidia.com/mlx5_{rail}": 100 for rail in range(4)},  # network-operator's shared plugin: 100 per rail
)


def build_nodes(shape: Shape) -> Iterator[Tree]:
    """Yield the nodes, named by their leaf."""
    leaf = 0
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
            "labels": {LEAF_LABEL: leaf, SPINE_LABEL: spine, "kubernetes.io/hostname": name},
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


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
