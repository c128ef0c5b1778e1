"""What a trace says of a scheduler's call: whose pod, how many nodes, what was decided. No object and no value.

Owns the names of the steps and which facts of a call are shown. Knows no OpenTelemetry.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from extender import asks, kube_wire, volcano_wire
from railwright.fabric import placed_pods
from railwright.fabric.placement import ask, decide, ledger
from railwright.serving import tracing as traces

_NODES = "railwright.nodes"  # asked about; and how many of them are left
_LONGEST = 253  # characters of a Kubernetes name


class Steps(NamedTuple):
    """The parts of the answers that take time; each of them its plain self where nobody traces."""

    read: Callable[[bytes], tuple[placed_pods.Pod, list[str]]]
    read_prioritize: Callable[[bytes], tuple[volcano_wire.Task, list[volcano_wire.Node]]]
    read_predicate: Callable[[bytes], tuple[volcano_wire.Task, volcano_wire.Node]]
    read_event: Callable[[bytes], volcano_wire.Task]
    from_kube: Callable[..., ask.Ask | None]
    from_volcano: Callable[..., ask.Ask | None]
    filter: Callable[[ask.Ask], decide.Screening]
    prioritize: Callable[[ask.Ask], decide.Decision]
    allocate: Callable[[ledger.Entry, str], None]
    deallocate: Callable[[str], bool]


def steps(tracing: traces.Tracing, desk: decide.Desk, book: ledger.Ledger) -> Steps:
    """The steps of one extender."""
    return Steps(
        read=tracing.step("decode", kube_wire.read, _of_kube),
        read_prioritize=tracing.step("decode", volcano_wire.read_prioritize, _of_prioritize),
        read_predicate=tracing.step("decode", volcano_wire.read_predicate, lambda found: _of_task(found[0])),
        read_event=tracing.step("decode", volcano_wire.read_event, _of_task),
        from_kube=tracing.noted(asks.from_kube, _of_ask),
        from_volcano=tracing.noted(asks.from_volcano, _of_ask),
        filter=tracing.step("filter", desk.screen, _of_screening),
        prioritize=tracing.step("prioritize", desk.decide, _of_decision),
        allocate=tracing.step("events", book.allocate),
        deallocate=tracing.step("events", book.deallocate),
    )


def _of_kube(found: tuple[placed_pods.Pod, Sequence[str]]) -> traces.Attributes:
    pod, nodes = found
    return {**_named(pod.metadata.namespace, pod.metadata.name), _NODES: len(nodes)}


def _of_prioritize(found: tuple[volcano_wire.Task, Sequence[volcano_wire.Node]]) -> traces.Attributes:
    return {**_of_task(found[0]), _NODES: len(found[1])}


def _of_task(task: volcano_wire.Task) -> traces.Attributes:
    return _named(task.namespace, task.name)


def _of_ask(question: ask.Ask | None) -> traces.Attributes:
    return {traces.FABRIC: question.fabric_name} if question is not None else {traces.DECISION: "neutral"}


def _named(namespace: str, name: str) -> traces.Attributes:
    return {traces.NAMESPACE: namespace[:_LONGEST], traces.POD: name[:_LONGEST]}


def _of_screening(found: decide.Screening) -> traces.Attributes:
    return {f"{_NODES}.kept": len(found.kept), traces.DECISION: "kept" if found.kept else "refused"}


def _of_decision(found: decide.Decision) -> traces.Attributes:
    return {
        traces.DECISION: "placeable" if found.plan.complete else "unplaceable",
        "railwright.gang.size": found.gang_size,
        "railwright.gang.leaves": len(found.plan.leaves),
    }
