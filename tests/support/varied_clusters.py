"""Builds a varied simulated cluster: leaves of nodes with eight rails, placed and waiting gangs, dead rails.

The objects are those of a snapshot file. Equal arguments give equal objects.
"""

import json
import random

from railwright.cli.demo import scenario
from railwright.fabric import names
from railwright.fabric.workloads import volcano

RAILS = 8
RESOURCES = [f"rdma/mlx5_{rail}" for rail in range(RAILS)]
JOBS = ("llama", "mixtral", "dit-xl", "whisper", "moe-64", "vit-g", "gnn", "rlhf", "bert", "nemo")
POLICY = json.dumps(
    {
        "apiVersion": "railwright.io/v1alpha1",
        "defaultFabric": "roce",
        "fabrics": {
            "roce": {
                "transport": "roce",
                "rails": [{"name": f"rail{rail}", "resource": RESOURCES[rail]} for rail in range(RAILS)],
                "placement": {
                    "domains": [scenario.LEAF_LABEL, scenario.SPINE_LABEL],
                    "oversubscription": [2, 4],
                },
            }
        },
    }
)
CONFIGMAP = {"metadata": {"name": names.POLICY_CONFIGMAP}, "data": {names.POLICY_KEY: POLICY}}
CONFIGMAP_PATH = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.POLICY_CONFIGMAP}"


class Vista:
    """A cluster: `objects()` is its snapshot."""

    def __init__(self, spines=8, leaves=8, nodes=16, *, gangs=40, waiting=3, seed=5) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - it has to repeat
        sizes = {f"spine-{spine}": (nodes,) * leaves for spine in range(spines)}
        self.nodes = list(scenario.build_nodes(sizes, dict.fromkeys(RESOURCES, "1")))
        self.names = [node["metadata"]["name"] for node in self.nodes]
        self.pods: list[dict] = []
        self.groups: list[dict] = []
        self._free = list(self.names)
        self._made = 0
        self._break(len(self.nodes) // 60)
        for _ in range(gangs):
            self.add_gang(self.chance.choice((4, 8, 8, 12, 16, 16, 24, 32)))
        for _ in range(waiting):
            self.add_gang(self.chance.choice((8, 16, len(self.nodes))), placed=0)

    def _break(self, count: int) -> None:
        for node in self.chance.sample(self.nodes, count):
            dead = self.chance.choice(RESOURCES)
            node["status"] = {**node["status"], "allocatable": {**node["status"]["allocatable"], dead: "0"}}
        for node in self.chance.sample(self.nodes, max(1, count // 3)):
            node["spec"] = {"unschedulable": True}

    def add_gang(self, size: int, *, placed: int | None = None, name: str = "", namespace: str = "") -> str:
        """Add a Volcano gang, if possible on free neighbouring nodes. Return its key."""
        self._made += 1
        name = name or f"{self.chance.choice(JOBS)}-{self._made}"
        namespace = namespace or self.chance.choice(("prod", "research", "speech"))
        where = self._take(min(size, len(self._free)) if placed is None else placed)
        self.groups.append(
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"minMember": size},
            }
        )
        for rank in range(size):
            self.pods.append(pod(name, namespace, rank, where[rank] if rank < len(where) else "", self._made))
        return f"{namespace}/{name}"

    def _take(self, count: int) -> list[str]:
        if not count:
            return []
        start = self.chance.randrange(max(1, len(self._free) - count))
        taken = self._free[start : start + count]
        self._free = [slot for slot in self._free if slot not in set(taken)]
        return taken

    def objects(self) -> list[dict]:
        return [*self.nodes, *self.groups, *self.pods]

    def get_lists(self) -> dict[str, list[dict]]:
        """Return the objects by the path of their kind. Of every other kind there is not even a CRD."""
        return {
            "/api/v1/nodes": self.nodes,
            "/api/v1/pods": self.pods,
            "/apis/scheduling.volcano.sh/v1beta1/podgroups": self.groups,
            "/apis/batch/v1/jobs": [],
            "/apis/apps/v1/statefulsets": [],
            "/apis/apps/v1/replicasets": [],
        }

    def write(self, folder) -> None:
        """Write policy and snapshot files."""
        (folder / "policy.yaml").write_text(POLICY)
        tree = {"apiVersion": "v1", "kind": "List", "items": self.objects()}
        (folder / "snapshot.json").write_text(json.dumps(tree))


def pod(group: str, namespace: str, rank: int, node: str, minute: int) -> dict:
    amounts = {"nvidia.com/gpu": "8", **dict.fromkeys(RESOURCES, "1"), "cpu": "32"}
    made_pod = scenario.build_pod(f"{group}-worker-{rank}", namespace, node, amounts)
    made_pod["metadata"] |= {
        "uid": f"pod-{namespace}-{group}-{rank}",
        "creationTimestamp": f"2026-11-21T{9 + minute // 60:02}:{minute % 60:02}:{rank % 60:02}Z",
        "labels": {names.FABRIC: "roce"},
        "annotations": {
            volcano.GROUP_ANNOTATION: group,
            names.INJECTION: json.dumps(
                {
                    "version": "1",
                    "policy": "sha256:x",
                    "fabric": "roce",
                    "role": "worker",
                    "containers": ["main"],
                    "rails": [f"rail{index}" for index in range(RAILS)],
                    "added": [f"env NCCL_{index}" for index in range(11)],
                    "kept": {"NCCL_ALGO": ["user"]} if rank % 7 == 0 else {},
                    "skipped": {},
                    "reasons": {},
                }
            ),
        },
    }
    if not node:
        made_pod["status"] = {"phase": "Pending"}
    else:
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-11-21T15:{minute % 60:02}:00Z"}
        made_pod["status"] = {**made_pod.get("status", {}), "conditions": [bound]}
    return made_pod
