"""Decodes and encodes Volcano's extender protocol (pkg/scheduler/plugins/extender).

Lower-case wrappers contain structs with Go's field names. Only the fields in use are decoded, so that a body of tens of
megabytes is scanned and not built. Volcano counts CPU in milli-cores, memory in bytes, `pods` in units and every other
scalar in milli-units; the functions here return milli-units of everything.
"""

import functools
from collections.abc import Mapping

import msgspec

from extender import decoding
from railwright.fabric import resources, scheduling_views
from railwright.fabric.placement import scheduling_request

PIPELINED = 4  # api.Pipelined
CODE_UNSCHEDULABLE = 2  # fwk.Unschedulable: the pod may fit once another pod leaves
CODE_UNRESOLVABLE = 3  # fwk.UnschedulableAndUnresolvable: the pod never fits


class Amounts(msgspec.Struct, frozen=True):
    """api.Resource."""

    milli_cpu: float | None = msgspec.field(default=None, name="MilliCPU")
    memory: float | None = msgspec.field(default=None, name="Memory")
    scalars: dict[str, float] | None = msgspec.field(default=None, name="ScalarResources")


class Task(msgspec.Struct, frozen=True):
    """api.TaskInfo, the fields that placement uses."""

    uid: str = msgspec.field(default="", name="UID")
    job: str = msgspec.field(default="", name="Job")
    name: str = msgspec.field(default="", name="Name")
    namespace: str = msgspec.field(default="", name="Namespace")
    request: Amounts | None = msgspec.field(default=None, name="InitResreq")
    node_name: str = msgspec.field(default="", name="NodeName")
    status: int = msgspec.field(default=0, name="Status")
    pod: scheduling_views.Pod | None = msgspec.field(default=None, name="Pod")


_MAX_AMOUNT = 2.0**63  # the largest amount in Kubernetes; JSON floats can be infinite

_NULL = msgspec.Raw(b"null")


class Node(msgspec.Struct, frozen=True):
    """api.NodeInfo, the fields that placement uses.

    Each is the raw JSON of an api.Resource, so that `decode_offer` decodes equal texts once.
    """

    name: str = msgspec.field(default="", name="Name")
    idle: msgspec.Raw = msgspec.field(default=_NULL, name="Idle")
    releasing: msgspec.Raw = msgspec.field(default=_NULL, name="Releasing")
    pipelined: msgspec.Raw = msgspec.field(default=_NULL, name="Pipelined")
    allocatable: msgspec.Raw = msgspec.field(default=_NULL, name="Allocatable")


class _Prioritize(msgspec.Struct, frozen=True):
    task: Task | None = None
    nodes: list[Node] | None = None


class _Predicate(msgspec.Struct, frozen=True):
    task: Task | None = None
    node: Node | None = None


class _Event(msgspec.Struct, frozen=True):
    task: Task | None = None


_decode_prioritize = msgspec.json.Decoder(_Prioritize).decode
_decode_predicate = msgspec.json.Decoder(_Predicate).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_amounts = msgspec.json.Decoder(Amounts | None).decode
_decode_close = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_encode = msgspec.json.Encoder().encode

EMPTY_OBJECT = b"{}"
EVENT_ACCEPTED = b'{"errorMessage":""}'


def encode_rejection(message: str) -> bytes:
    """Encode the answer to an event that makes Volcano roll the placement back."""
    return _encode({"errorMessage": message})


def read_prioritize(body: bytes) -> tuple[Task, list[Node]]:
    """Return (task, nodes). Raises decoding.MalformedError."""
    message = decoding.decode_body(_decode_prioritize, body)
    if message.nodes is None:
        raise decoding.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
    return _require_task(message.task), message.nodes


def read_predicate(body: bytes) -> tuple[Task, Node]:
    """Return (task, node). Raises decoding.MalformedError."""
    message = decoding.decode_body(_decode_predicate, body)
    if message.node is None or not message.node.name:
        raise decoding.MalformedError("node is missing or has no Name: expected {task, node} as Volcano sends them")
    return _require_task(message.task), message.node


def read_event(body: bytes) -> Task:
    """Return the task of an allocate or deallocate event. Raises decoding.MalformedError."""
    task = _require_task(decoding.decode_body(_decode_event, body).task)
    if not task.uid:
        raise decoding.MalformedError("task.UID is missing")
    return task


def read_close(body: bytes) -> None:
    """Check that a session-close body is a JSON object or null. Raises decoding.MalformedError."""
    decoding.decode_body(_decode_close, body)


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize. `nodeScore` is mandatory: without it Volcano silently skips the task."""
    return _encode({"nodeScore": scores, "errorMessage": ""})


def encode_predicate_result(message: str, *, unresolvable: bool) -> bytes:
    """Encode the answer of predicate. An empty message means that the pod fits."""
    if not message:
        return _encode({"status": "", "code": 0})
    return _encode({"status": message, "code": CODE_UNRESOLVABLE if unresolvable else CODE_UNSCHEDULABLE})


def convert_amounts(volcano_amounts: Amounts | None) -> dict[str, int]:
    """Convert an api.Resource to milli-units. Amounts are negative where a node is overcommitted."""
    if volcano_amounts is None:
        return {}
    result = {
        "cpu": _round_amount(volcano_amounts.milli_cpu or 0),
        "memory": _round_amount(volcano_amounts.memory or 0, resources.UNIT),
    }
    for name, value in (volcano_amounts.scalars or {}).items():
        result[name] = _round_amount(value, resources.UNIT if name == resources.PODS else 1)
    return result


def _round_amount(value: float, unit: int = 1) -> int:
    return round(max(-_MAX_AMOUNT, min(_MAX_AMOUNT, value)) * unit)


def decode_offer(node: Node) -> scheduling_request.NodeOffer | None:
    """Return the free resources of a node by Volcano's session, or None without `Idle`. Raises decoding.MalformedError.

    Equal texts return the same object.
    """
    return _decode_offer(bytes(node.idle), bytes(node.releasing), bytes(node.pipelined))


@functools.lru_cache(maxsize=4096)  # distinct texts, of a few hundred bytes each
def _decode_offer(idle: bytes, releasing: bytes, pipelined: bytes) -> scheduling_request.NodeOffer | None:
    idle_amounts, releasing_amounts, pipelined_amounts = (
        decoding.decode_body(_decode_amounts, text) for text in (idle, releasing, pipelined)
    )
    if idle_amounts is None:
        return None
    return scheduling_request.NodeOffer(
        idle=resources.FrozenAmounts(convert_amounts(idle_amounts)),
        future_idle=_calculate_future_idle(idle_amounts, releasing_amounts, pipelined_amounts)
        if releasing_amounts is not None and releasing_amounts.scalars
        else None,
    )


def _calculate_future_idle(
    idle_amounts: Amounts, releasing_amounts: Amounts, pipelined_amounts: Amounts | None
) -> resources.FrozenAmounts:
    """Return Volcano's FutureIdle: idle plus releasing minus pipelined."""
    total = convert_amounts(idle_amounts)
    for volcano_amounts, sign in ((releasing_amounts, 1), (pipelined_amounts, -1)):
        for name, amount in convert_amounts(volcano_amounts).items():
            total[name] = total.get(name, 0) + sign * amount
    return resources.FrozenAmounts(total)


def decode_offer_without_pods(node: Node) -> scheduling_request.NodeOffer | None:
    """Return what would be free with pipelined pods only, or None without `Allocatable`."""
    return _decode_offer_without_pods(bytes(node.allocatable), bytes(node.pipelined))


@functools.lru_cache(maxsize=4096)  # as above
def _decode_offer_without_pods(allocatable: bytes, pipelined: bytes) -> scheduling_request.NodeOffer | None:
    total, pipelined_amounts = (decoding.decode_body(_decode_amounts, text) for text in (allocatable, pipelined))
    if total is None:
        return None
    left = convert_amounts(total)
    for name, amount in convert_amounts(pipelined_amounts).items():
        left[name] = left.get(name, 0) - amount
    return scheduling_request.NodeOffer(idle=resources.FrozenAmounts(left), if_preempted=True)


def _require_task(task: Task | None) -> Task:
    if task is None:
        raise decoding.MalformedError("task is missing")
    return task
