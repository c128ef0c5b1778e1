"""Volcano's plain gang path as a model: what it offers, what it thinks of nodes itself, what it sends.

Owns the loop's state (who sits where in this session) and the JSON its extender plugin would send. Speaks to nobody.
Sources: volcano-sh/volcano pkg/scheduler/actions/allocate, plugins/nodeorder (leastrequested 1, balanced 1; its other
terms are equal on every node here), plugins/extender. A model, and called one wherever its result is shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.workloads import volcano

Tree = dict[str, Any]
_COUNTED = ("cpu", "memory")  # what leastrequested and balanced look at (NodeResources defaults)
_PENDING, _ALLOCATED, _RUNNING = 1, 2, 32  # api.TaskStatus
_NO_RESOURCE: Mapping[str, Any] = {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 0}


class Session:
    """One scheduling session: nodes, what is on them, and what this session has placed."""

    def __init__(self, nodes: Sequence[Tree], pods: Sequence[Tree]) -> None:
        self._nodes = {node["metadata"]["name"]: node for node in nodes}
        self._allocatable = {
            name: resources.amounts(node["status"]["allocatable"]) for name, node in self._nodes.items()
        }
        self._idle = {name: dict(amounts) for name, amounts in self._allocatable.items()}
        self._tasks: dict[str, dict[str, Tree]] = {name: {} for name in self._nodes}
        for pod in pods:
            self.put(pod, pod["spec"]["nodeName"], _RUNNING)

    def put(self, pod: Tree, node: str, status: int = _ALLOCATED) -> Tree:
        """A pod takes its place on a node; returns its TaskInfo."""
        for name, amount in requested(pod).items():
            self._idle[node][name] = self._idle[node].get(name, 0) - amount
        info = task_info(pod, node=node, status=status)
        metadata = pod["metadata"]
        self._tasks[node][f"{metadata['namespace']}/{metadata['name']}"] = info
        return info

    def feasible(self, pod: Tree) -> list[str]:
        """Nodes that hold what the pod asks, as the predicates plugin would offer them."""
        wanted = requested(pod)
        return [name for name, idle in self._idle.items() if resources.fits(idle, wanted)]

    def request(self, pod: Tree, offered: Sequence[str]) -> Tree:
        """The body of the extender's prioritize call."""
        return {"task": task_info(pod, node="", status=_PENDING), "nodes": [self._node_info(name) for name in offered]}

    def own_score(self, pod: Tree, node: str) -> float:
        """Points the node gets from Volcano's default plugins: emptier and evenly used is better; 0..200."""
        wanted, idle, total = requested(pod), self._idle[node], self._allocatable[node]
        shares = [1 - (idle.get(each, 0) - wanted.get(each, 0)) / total[each] for each in _COUNTED if total.get(each)]
        if not shares:
            return 0.0
        least_requested = 100 * (1 - sum(shares) / len(shares))
        return least_requested + 100 * (1 - (max(shares) - min(shares)) / 2)

    def _node_info(self, name: str) -> Tree:
        idle, total = self._idle[name], self._allocatable[name]
        used = {each: total[each] - idle.get(each, 0) for each in total}
        return {
            "Name": name,
            "Node": self._nodes[name],
            "State": {"Phase": 1, "Reason": ""},
            "Releasing": _NO_RESOURCE,
            "Pipelined": _NO_RESOURCE,
            "Idle": _resource(idle),
            "Used": _resource(used),
            "Allocatable": _resource(total),
            "Capacity": _resource(total),
            "Tasks": self._tasks[name],
            "NumaInfo": None,
            "Others": {},
            "ImageStates": {},
        }


def requested(pod: Tree) -> resources.Amounts:
    """What a pod takes of its node, milli-units."""
    return resources.requests_of(msgspec.convert(pod["spec"], views.PodSpec))


def task_info(pod: Tree, *, node: str, status: int) -> Tree:
    """A pod as Volcano's TaskInfo."""
    metadata = pod["metadata"]
    group = metadata.get("annotations", {}).get(volcano.GROUP_ANNOTATION)
    amounts = _resource(requested(pod))
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


def _resource(amounts: resources.Amounts) -> Tree:
    """api.Resource: milli-cores, bytes, milli-units of every scalar but pods."""
    scalars = {name: amount for name, amount in amounts.items() if name not in _COUNTED}
    if resources.PODS in scalars:
        scalars[resources.PODS] //= resources.UNIT
    return {
        "MilliCPU": amounts.get("cpu", 0),
        "Memory": amounts.get("memory", 0) // resources.UNIT,
        "ScalarResources": scalars,
        "MaxTaskNum": scalars.get(resources.PODS, 0),
    }
