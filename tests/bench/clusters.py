"""Generates a cluster of any size as the API server lists it: nodes in leaves and spines, bound pods, waiting gangs.

The same numbers make the same cluster in every process. Objects have realistic sizes, and so realistic costs: a node
with its images and managedFields, a pod as Volcano's controller made it (tests/data/wire).
"""

import dataclasses
import functools
import json
import pathlib
import random
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIRE = ROOT / "tests" / "data" / "wire"
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = tuple(f"nvidia.com/mlx5_{rail}" for rail in range(4))
GPU = "nvidia.com/gpu"
LEAF_NODES, SPINE_LEAVES = 32, 8  # a SuperPOD's unit; some leaves are shorter, as in every real cluster
GANG = 64
PLUGINS_GROUP, VOLCANO_GROUP = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The size of a cluster, and its use."""

    nodes: int = 5000
    pods: int = 20_000  # bound ones
    taken: float = 0.5  # share of nodes whose GPUs and rails a pod of another gang holds
    kube_gangs: int = 4  # waiting gangs of GANG pods each, with a PodGroup of scheduler-plugins
    volcano_gangs: tuple[int, ...] = (512,) * 4  # sizes of waiting gangs, with a PodGroup of Volcano
    leaf_nodes: int = LEAF_NODES


class Cluster:
    """The objects of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        chance = random.Random(shape.nodes)  # noqa: S311 - the same cluster every time
        self.names = [f"gpu-{number:05}" for number in range(shape.nodes)]
        self.leaves: list[int] = []
        leaf = 0
        while len(self.leaves) < shape.nodes:
            self.leaves += [leaf] * (shape.leaf_nodes - chance.choice((0, 0, 0, 2, 5)))
            leaf += 1
        del self.leaves[shape.nodes :]
        # whole runs of nodes are taken: gangs of 4 to 64 lie together, as a scheduler left them
        self.taken: list[int] = []
        while len(self.taken) < shape.taken * shape.nodes:
            size, start = chance.choice((4, 8, 16, 64)), chance.randrange(shape.nodes)
            run = [node for node in range(start, min(start + size, shape.nodes)) if node not in self._taken_set]
            self.taken += run
            self._taken_set.update(run)
        del self.taken[round(shape.taken * shape.nodes) :]

    @functools.cached_property
    def _taken_set(self) -> set[int]:
        return set()

    @property
    def free(self) -> list[str]:
        """Names of the nodes with every GPU and rail free."""
        held = set(self.taken)
        return [name for number, name in enumerate(self.names) if number not in held]

    def list_nodes(self) -> Iterator[bytes]:
        """Yield each node as JSON."""
        for number, name in enumerate(self.names):
            yield build_node(name, self.leaves[number])

    def list_pods(self) -> Iterator[bytes]:
        """Yield each pod as JSON: those that hold a node, daemons on all nodes, and the waiting gangs."""
        for count, number in enumerate(self.taken):
            yield build_pod(f"held-{count // 16}-{count % 16}", group=f"held-{count // 16}", on=self.names[number])
        for count in range(self.shape.pods - len(self.taken)):
            yield build_pod(f"daemon-{count}", on=self.names[count % self.shape.nodes], devices=False)
        for gang in range(self.shape.kube_gangs):
            yield from (build_kube_pod(gang, rank) for rank in range(GANG))
        for gang, size in enumerate(self.shape.volcano_gangs):
            yield from (build_pod(f"volcano-{gang}-{rank}", group=f"volcano-{gang}") for rank in range(size))

    def list_volcano_groups(self) -> Iterator[bytes]:
        """Volcano's PodGroups."""
        return (_group(f"volcano-{gang}", size) for gang, size in enumerate(self.shape.volcano_gangs))

    def list_kube_groups(self) -> Iterator[bytes]:
        """Yield the PodGroups of scheduler-plugins and of Kubernetes: each gang has both."""
        return (_group(f"kube-{gang}", GANG) for gang in range(self.shape.kube_gangs))


def build_kube_pod(gang: int, rank: int, *, on: str = "") -> bytes:
    """Return a pod of one of kube-scheduler's gangs."""
    name, group = f"kube-{gang}-{rank}", f"kube-{gang}"
    return build_pod(name, group=group, label=PLUGINS_GROUP, on=on)


def build_pod(
    name: str,
    *,
    group: str = "",
    on: str = "",
    devices: bool = True,
    label: str = VOLCANO_GROUP,
) -> bytes:
    """Return a pod of 8 GPUs and every rail; without `devices` a daemon."""
    text = _pod_text(devices, label if group else "", bool(on))
    rank = name.rpartition("-")[2]
    for mark, value in (("@name@", name), ("@group@", group), ("@node@", on), ("@rank@", rank)):
        text = text.replace(mark, value)
    return text.encode()


def build_node(name: str, leaf: int, *, bulky: bool = True) -> bytes:
    """Return a node with 8 GPUs and one device a rail."""
    text = _node_text(bulky).replace("@name@", name).replace("@leaf@", f"leaf-{leaf:03}")
    return text.replace("@spine@", f"spine-{leaf // SPINE_LEAVES:02}").encode()


@functools.cache
def read_captured(name: str) -> Any:
    """Return a captured body of tests/data/wire."""
    return json.loads((WIRE / name).read_text())


def encode_compact(tree: Any) -> str:
    """Return compact JSON, as Go writes it."""
    return json.dumps(tree, separators=(",", ":"))


@functools.cache
def _pod_text(devices: bool, label: str, bound: bool) -> str:  # noqa: FBT001 - named there
    tree = json.loads(json.dumps(read_captured("volcano.json")["task"]["Pod"]))
    metadata, spec = tree["metadata"], tree["spec"]
    metadata |= {"name": "@name@", "namespace": "train", "uid": "uid-@name@"}
    metadata["labels"] = {"railwright.io/fabric": "roce", "volcano.sh/task-index": "@rank@"} if devices else {}
    metadata["annotations"] = {}
    if label == PLUGINS_GROUP:
        metadata["labels"][label] = "@group@"
    elif label:
        metadata["annotations"] |= {label: "@group@", "volcano.sh/task-index": "@rank@"}
    amounts = {GPU: "8", **dict.fromkeys(RAILS, "1")} if devices else {"cpu": "100m", "memory": "64Mi"}
    (container,) = spec["containers"]
    container["resources"] = {"requests": amounts, "limits": amounts}
    if not devices:
        metadata["ownerReferences"] = []
    spec.pop("nodeName", None)
    if bound:
        spec["nodeName"] = "@node@"
    tree["status"] = {"phase": "Running" if bound else "Pending"}
    # as many variables as a training pod has, ours included
    container.setdefault("env", []).extend(
        {"name": f"NCCL_SETTING_{number:02}", "value": f"a value of the usual length {number}"} for number in range(24)
    )
    return encode_compact(tree)


@functools.cache
def _node_text(bulky: bool) -> str:  # noqa: FBT001 - told by its name there
    have = {"cpu": "128", "memory": "2Ti", "pods": "110", "ephemeral-storage": "3Ti"}
    have |= {GPU: "8", **dict.fromkeys(RAILS, "1")}
    tree: dict[str, Any] = {
        "metadata": {
            "name": "@name@",
            "uid": "uid-@name@",
            "resourceVersion": "541",
            "labels": {LEAF: "@leaf@", SPINE: "@spine@", "kubernetes.io/hostname": "@name@"},
        },
        "spec": {},
        "status": {
            "capacity": have,
            "allocatable": have,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    }
    if bulky:
        tree["metadata"]["labels"] |= {f"nvidia.com/gpu.feature-{number}": f"value-{number}" for number in range(60)}
        fields = {f"f:nvidia.com/gpu.feature-{number}": {} for number in range(60)}
        managers = ("kubelet", "nfd-master", "nvidia-device-plugin", "kube-controller-manager")
        tree["metadata"]["managedFields"] = [
            {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields}}
            for manager in managers
        ]
        digest = "0123456789abcdef" * 4
        tree["status"]["images"] = [
            {
                "names": [f"registry.example/team/image-{number}@sha256:{digest}", f"registry.example/image:{number}"],
                "sizeBytes": 1 << 30,
            }
            for number in range(50)  # kubelet's nodeStatusMaxImages
        ]
    return encode_compact(tree)


def _group(name: str, least: int) -> bytes:
    tree = {"metadata": {"name": name, "namespace": "train", "uid": name}, "spec": {"minMember": least}}
    return encode_compact(tree).encode()
