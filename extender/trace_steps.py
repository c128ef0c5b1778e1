"""Trace attributes of a scheduler's call: the pod, the number of nodes and the decision, but no object or value.

Defines the names of the steps and the attributes of each. Does not depend on OpenTelemetry.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from extender import kube_wire, scheduling_requests, volcano_wire
from railwright.fabric import placed_pods
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.state import assumed_pods
from railwright.serving import tracing as traces

_NODES = "railwright.nodes"  # candidate nodes; `.kept` is the number of feasible ones
_MAX_NAME = 253  # characters of a Kubernetes name


class Steps(NamedTuple):
    """The parts of the answers that take time, each of which can be traced."""

    read: Callable[[bytes], tuple[placed_pods.Pod, list[str]]]
    read_prioritize: Callable[[bytes], tuple[volcano_wire.Task, list[volcano_wire.Node]]]
    read_predicate: Callable[[bytes], tuple[volcano_wire.Task, volcano_wire.Node]]
    read_event: Callable[[bytes], volcano_wire.Task]
    from_kube: Callable[..., scheduling_request.SchedulingRequest | None]
    from_volcano: Callable[..., scheduling_request.SchedulingRequest | None]
    filter: Callable[[scheduling_request.SchedulingRequest], engine.FilterResult]
    prioritize: Callable[..., engine.Decision]
    allocate: Callable[[assumed_pods.AssumedPod, str], None]
    deallocate: Callable[[str], bool]


def build_steps(
    tracing: traces.Tracing, placement_engine: engine.PlacementEngine, assumed: assumed_pods.AssumedPods
) -> Steps:
    """Return the steps of an extender, each recorded in the trace."""
    return Steps(
        read=tracing.wrap_step("decode", kube_wire.read, _list_kube_attributes),
        read_prioritize=tracing.wrap_step("decode", volcano_wire.read_prioritize, _list_prioritize_attributes),
        read_predicate=tracing.wrap_step(
            "decode", volcano_wire.read_predicate, lambda request: _list_task_attributes(request[0])
        ),
        read_event=tracing.wrap_step("decode", volcano_wire.read_event, _list_task_attributes),
        from_kube=tracing.annotate(scheduling_requests.from_kube, _list_request_attributes),
        from_volcano=tracing.annotate(scheduling_requests.from_volcano, _list_request_attributes),
        filter=tracing.wrap_step("filter", placement_engine.filter, _list_filter_attributes),
        prioritize=tracing.wrap_step("prioritize", placement_engine.score, _list_decision_attributes),
        allocate=tracing.wrap_step("events", assumed.assume),
        deallocate=tracing.wrap_step("events", assumed.forget),
    )


def _list_kube_attributes(request: tuple[placed_pods.Pod, Sequence[str]]) -> traces.Attributes:
    pod, nodes = request
    return {**_list_pod_attributes(pod.metadata.namespace, pod.metadata.name), _NODES: len(nodes)}


def _list_prioritize_attributes(request: tuple[volcano_wire.Task, Sequence[volcano_wire.Node]]) -> traces.Attributes:
    return {**_list_task_attributes(request[0]), _NODES: len(request[1])}


def _list_task_attributes(task: volcano_wire.Task) -> traces.Attributes:
    return _list_pod_attributes(task.namespace, task.name)


def _list_request_attributes(request: scheduling_request.SchedulingRequest | None) -> traces.Attributes:
    return {traces.FABRIC: request.fabric_name} if request is not None else {traces.DECISION: "neutral"}


def _list_pod_attributes(namespace: str, name: str) -> traces.Attributes:
    return {traces.NAMESPACE: namespace[:_MAX_NAME], traces.POD: name[:_MAX_NAME]}


def _list_filter_attributes(result: engine.FilterResult) -> traces.Attributes:
    return {f"{_NODES}.kept": len(result.feasible), traces.DECISION: "kept" if result.feasible else "refused"}


def _list_decision_attributes(decision: engine.Decision) -> traces.Attributes:
    return {
        traces.DECISION: "placeable" if decision.plan.is_complete else "unplaceable",
        "railwright.gang.size": decision.gang_size,
        "railwright.gang.leaves": len(decision.plan.leaves),
    }
