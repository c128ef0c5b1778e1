"""Builds request bodies of schedulers in the form of captured ones: the same fields, order and sizes of objects.

Every function returns one body as bytes.
"""

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import clusters

EVENT_BYTES = 7900  # of the captured event
NODE_INFO_BYTES = 150_000  # a node with its images and 20 pods
TASKS_A_NODE = 20
_ROOM = dict.fromkeys(clusters.RAILS, 1000) | {clusters.GPU: 8000}


def build_kube_request(pod: bytes, names: Iterable[str]) -> bytes:
    """Return ExtenderArgs of a nodeCacheCapable extender."""
    return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, clusters.encode_compact(list(names)).encode())


def build_event(gang: int, rank: int, node: str, *, status: int = 2) -> bytes:
    """Return an allocate (2) or deallocate (1) event of a task."""
    return b'{"task":%b}' % build_task(gang, rank, node=node, status=status)


def build_prioritize(of: bytes, nodes: Sequence[bytes]) -> bytes:
    """Return a prioritize request: the task and a NodeInfo for each node."""
    return b'{"task":%b,"nodes":[%b]}' % (of, b",".join(nodes))


def build_task(gang: int, rank: int, *, node: str = "", status: int = 1, opted: bool = True) -> bytes:
    """Return a TaskInfo of one of Volcano's gangs, as large as the captured one."""
    text = _task_text(opted).replace("@gang@", f"volcano-{gang}").replace("@rank@", str(rank))
    return text.replace('"@status@"', str(status)).replace("@node@", node).encode()


def build_node_info(name: str, *, padded: bool) -> bytes:
    """Return a NodeInfo with all devices idle: padded to 150 KB, or with the fields of an empty node only."""
    return _node_info_text(padded).replace("@name@", name).encode()


@functools.cache
def _task_text(opted: bool) -> str:  # noqa: FBT001 - told by its name there
    tree = json.loads(json.dumps(clusters.read_captured("volcano.json")["task"]))
    pod = tree["Pod"]
    names = {"name": "@gang@-@rank@", "namespace": "train", "uid": "uid-@gang@-@rank@"}
    tree |= {"UID": names["uid"], "Name": names["name"], "Namespace": "train", "Job": "train/@gang@"}
    tree |= {"TaskRole": "worker", "NodeName": "@node@", "Status": "@status@"}
    pod["metadata"] |= names
    pod["metadata"]["labels"] |= {"volcano.sh/task-index": "@rank@", "volcano.sh/task-spec": "worker"}
    pod["metadata"]["annotations"] |= {"volcano.sh/task-index": "@rank@", clusters.VOLCANO_GROUP: "@gang@"}
    pod["spec"]["nodeName"] = "@node@"
    if not opted:
        del pod["metadata"]["labels"]["railwright.io/fabric"]
    environment = pod["spec"]["containers"][0]["env"]
    while len(clusters.encode_compact({"task": tree})) < EVENT_BYTES:
        environment.append({"name": f"SETTING_{len(environment)}", "value": "a value of the usual length"})
    return clusters.encode_compact(tree)


@functools.cache
def _node_info_text(padded: bool) -> str:  # noqa: FBT001 - told by its name there
    tree: dict[str, Any] = json.loads(json.dumps(clusters.read_captured("volcano.json")["node"]))
    tree["Name"] = "@name@"
    for amounts in ("Idle", "Allocatable", "Capacity"):
        tree[amounts]["ScalarResources"] |= _ROOM
    tree["Node"] = json.loads(clusters.build_node("@name@", 0, bulky=padded))
    if padded:
        daemon = json.loads(clusters.build_pod("@pod@", on="@name@", devices=False))
        resident = json.loads(_task_text(opted=False).replace('"@status@"', "32"))
        resident |= {"Pod": daemon, "Job": "", "NodeName": "@name@"}
        for number in range(TASKS_A_NODE):
            name = f"daemon-{number}"
            text = clusters.encode_compact(resident).replace("@pod@", name).replace("@gang@-@rank@", name)
            tree["Tasks"][f"train/{name}"] = json.loads(text)
        short = NODE_INFO_BYTES - len(clusters.encode_compact(tree))
        tree["Node"]["metadata"]["annotations"] = {"example.com/inventory": "x" * max(0, short)}
    return clusters.encode_compact(tree)
