"""Trace attributes of a scheduler's call: the pod, the number of nodes and the decision, but no object or value.

Does not depend on OpenTelemetry.
"""

from collections.abc import Sequence

from extender import volcano_wire
from railwright.fabric import scheduling_views
from railwright.fabric.placement import engine, scheduling_request
from railwright.serving import tracing as traces

_NODES = "railwright.nodes"  # candidate nodes; `.feasible` is the number of feasible ones
_MAX_NAME = 253  # characters of a Kubernetes name


def list_kube(pod: scheduling_views.Pod, nodes: Sequence[str]) -> traces.Attributes:
    """Return the attributes of a request of kube-scheduler."""
    return {**_list_pod(pod.metadata.namespace, pod.metadata.name), _NODES: len(nodes)}


def list_task(task: volcano_wire.Task, nodes: int | None = None) -> traces.Attributes:
    """Return the attributes of a request of Volcano; `nodes` is the number of candidate nodes."""
    attributes = _list_pod(task.namespace, task.name)
    return attributes if nodes is None else {**attributes, _NODES: nodes}


def list_request(request: scheduling_request.SchedulingRequest | None) -> traces.Attributes:
    """Return the pod's fabric."""
    return {traces.FABRIC: request.fabric_name} if request is not None else {traces.DECISION: "neutral"}


def _list_pod(namespace: str, name: str) -> traces.Attributes:
    return {traces.NAMESPACE: namespace[:_MAX_NAME], traces.POD: name[:_MAX_NAME]}


def list_filter_result(result: engine.FilterResult) -> traces.Attributes:
    """Return the number of feasible nodes."""
    return {f"{_NODES}.feasible": len(result.feasible), traces.DECISION: "feasible" if result.feasible else "rejected"}


def list_decision(decision: engine.Decision) -> traces.Attributes:
    """Return whether the gang fits, and its plan."""
    return {
        traces.DECISION: "placeable" if decision.plan.is_complete else "unplaceable",
        "railwright.gang.size": decision.gang_size,
        "railwright.gang.leaves": len(decision.plan.leaves),
    }
