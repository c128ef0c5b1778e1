"""Models a Volcano session: the nodes it offers, its own scores, and the requests of its extender plugin.

Owns the state of a session (which pod is on which node) and the JSON of the extender plugin. Opens no connection.
Sources: volcano-sh/volcano pkg/scheduler/actions/allocate, plugins/nodeorder (leastrequested 1, balanced 1; its other
terms are equal on every node here), plugins/extender. Results are labelled as modelled wherever they are shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.workloads import volcano

Tree = dict[str, Any]
_COUNTED = ("cpu", "memory")  # resources that leastrequested and balanced count (NodeResources defaults)
_PENDING, _ALLOCATED, _RUNNING = 1, 2, 32  # api.TaskStatus
_NO_RESOURCE: Mapping[str, Any] = {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 0}


class Session:
    """One scheduling session: nodes, their pods, and the pods that this session has placed."""

    def __init__(self, nodes: Sequence[Tree], pods: Sequence[Tree]) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._allocatable = {
            name: resources.parse_amounts(node["status"]["allocatable"]) for name, node in self._nodes.items()
        }
        self._idle = {name: dict(amounts) for name, amounts in self._allocatable.items()}
        self._tasks: dict[str, dict[str, Tree]] = {name: {} for name in self._nodes}
        for pod in pods:
            self.add_pod(pod, pod["spec"]["nodeName"], _RUNNING)

    def add_pod(self, pod: Tree, node: str, status: int = _ALLOCATED) -> Tree:
        """Place a pod on a node; return its TaskInfo."""
        for name, amount in compute_requests(pod).items():
            self._idle[node][name] = self._idle[node].get(name, 0) - amount
        info = build_task_info(pod, node=node, status=status)
        metadata = pod["metadata"]
        self._tasks[node][f"{metadata['namespace']}/{metadata['name']}"] = info
        return info

    def list_feasible(self, pod: Tree) -> list[str]:
        """Return the nodes with enough idle resources, as the predicates plugin would."""
        requests = compute_requests(pod)
        return [name for name, idle in self._idle.items() if resources.count_fits(idle, requests)]

    def build_request(self, pod: Tree, offered: Sequence[str]) -> Tree:
        """Return the body of a prioritize request."""
        return {
            "task": build_task_info(pod, node="", status=_PENDING),
            "nodes": [self._build_node_info(name) for name in offered],
        }

    def score(self, pod: Tree, node: str) -> float:
        """Return the score of Volcano's default plugins, 0..200: higher for emptier and evenly used nodes."""
        requests, idle, total = compute_requests(pod), self._idle[node], self._allocatable[node]
        shares = [1 - (idle.get(name, 0) - requests.get(name, 0)) / total[name] for name in _COUNTED if total.get(name)]
        if not shares:
            return 0.0
        least_requested = 100 * (1 - sum(shares) / len(shares))
        return least_requested + 100 * (1 - (max(shares) - min(shares)) / 2)

    def _build_node_info(self, name: str) -> Tree:
        idle, total = self._idle[name], self._allocatable[name]
        used = {name: total[name] - idle.get(name, 0) for name in total}
        return {
            "Name": name,
            "Node": self._nodes[name],
            "State": {"Phase": 1, "Reason": ""},
            "Releasing": _NO_RESOURCE,
            "Pipelined": _NO_RESOURCE,
            "Idle": _build_resource(idle),
            "Used": _build_resource(used),
            "Allocatable": _build_resource(total),
            "Capacity": _build_resource(total),
            "Tasks": self._tasks[name],
            "NumaInfo": None,
            "Others": {},
            "ImageStates": {},
        }


def compute_requests(pod: Tree) -> resources.Amounts:
    """Return a pod's requests in milli-units."""
    return resources.compute_requests(msgspec.convert(pod["spec"], views.PodSpec))


def build_task_info(pod: Tree, *, node: str, status: int) -> Tree:
    """Return a pod as Volcano's TaskInfo."""
    metadata = pod["metadata"]
    group = metadata.get("annotations", {}).get(volcano.GROUP_ANNOTATION)
    amounts = _build_resource(compute_requests(pod))
    return {
        "UID": metadata["uid"],
        "Job": f"{metadata['namespace']}/{group}" if group else "",
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "TaskRole": metadata.get("labels", {}).get(volcano.TASK, ""),
        "Resreq": amounts,
        "InitResreq": amounts,
        "NodeName": node,
        "Status": status,
        "LastTransaction": None,
        "Priority": 0,
        "Pod": {"metadata": metadata, "spec": pod["spec"], "status": {"phase": "Pending"}},
        "PodAnnotations": metadata.get("annotations", {}),
    }


def _build_resource(amounts: resources.Amounts) -> Tree:
    """Return an api.Resource: milli-cores, bytes, milli-units of every scalar but pods."""
    scalars = {name: amount for name, amount in amounts.items() if name not in _COUNTED}
    if resources.PODS in scalars:
        scalars[resources.PODS] //= resources.UNIT
    return {
        "MilliCPU": amounts.get("cpu", 0),
        "Memory": amounts.get("memory", 0) // resources.UNIT,
        "ScalarResources": scalars,
        "MaxTaskNum": scalars.get(resources.PODS, 0),
    }
