"""Cluster shapes as Kubernetes objects: nodes with GPUs and rails in a tree of domains, partly taken.

Owns published shapes and how they become v1 objects for `--snapshot`. Knows no scheduler and no policy.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric.workloads import volcano

Tree = dict[str, Any]
LEAF_LABEL, SPINE_LABEL = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
PRODUCT_LABEL = "nvidia.com/gpu.product"


class Shape(msgspec.Struct, frozen=True):
    """Leaf sizes under each spine, and the hardware of every node."""

    spines: Mapping[str, Sequence[int]]
    gpus: int
    rails: Mapping[str, int]  # resource -> devices a node
    source: str
    product: str = ""  # value of the label that a policy's node shapes match

    @property
    def size(self) -> int:
        """Nodes in all."""
        return sum(sum(leaves) for leaves in self.spines.values())


UNEVEN_64 = Shape(
    spines={"superpod-a": (1, 2, 2, 3, 3, 5, 5, 6, 6, 8), "superpod-b": (1, 2, 3, 6, 11)},
    gpus=8,
    rails={f"nvidia.com/mlx5_{rail}": 100 for rail in range(4)},  # network-operator's shared plugin: 100 a rail
    source="64 H100 nodes in 15 leaf groups under two superpods (marin-community/marin issue 6950)",
)


def nodes(shape: Shape, first_leaf: int = 0) -> Iterator[Tree]:
    """The nodes, named by their leaf; leaves are numbered from `first_leaf`."""
    leaf = first_leaf
    for spine, sizes in shape.spines.items():
        for size in sizes:
            for index in range(size):
                yield _node(f"gpu-{leaf:02}-{index:02}", f"leaf-{leaf:02}", spine, shape)
            leaf += 1


def _node(name: str, leaf: str, spine: str, shape: Shape) -> Tree:
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


def busy(trees: Sequence[Tree], share: float, shape: Shape, *, seed: int) -> Iterator[Tree]:
    """Pods of other jobs that take `share` of the nodes whole, chosen by chance from the seed."""
    chance = random.Random(seed)  # noqa: S311 - a simulation has to repeat, not to be secret
    for index, node in enumerate(chance.sample(list(trees), round(share * len(trees)))):
        wanted = {"nvidia.com/gpu": str(shape.gpus), **dict.fromkeys(shape.rails, "1"), "cpu": "32"}
        yield pod(f"other-{index}", "research", node["metadata"]["name"], wanted)


def idle_services(trees: Sequence[Tree], *, seed: int) -> Iterator[Tree]:
    """CPU-only pods of uneven size on every node, as any cluster has: they steer schedulers that count CPU."""
    chance = random.Random(seed)  # noqa: S311 - as above
    for node in trees:
        name = node["metadata"]["name"]
        yield pod(f"agent-{name}", "monitoring", name, {"cpu": f"{chance.randrange(1, 24)}", "memory": "4Gi"})


def pod(name: str, namespace: str, node: str, requests: Mapping[str, str]) -> Tree:
    """A pod bound to a node."""
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


def volcano_pods(job: Tree, *, uid: str) -> Iterator[Tree]:
    """The pods Volcano's job controller creates for a Job (pkg/controllers/job), as far as placement reads them."""
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
