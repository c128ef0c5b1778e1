"""Volcano's extender protocol (pkg/scheduler/plugins/extender): lower-case wrappers around Go-named structs.

Decodes only the fields used, so that a body of tens of megabytes costs a scan and not a tree. Volcano counts
milli-cores, bytes, and milli-units of every scalar but `pods`; here all of it becomes milli-units.
"""

import functools
from collections.abc import Mapping

import msgspec

from extender import requests
from railwright.fabric import placed_pods, resources
from railwright.fabric.placement import ask

PIPELINED = 4  # api.Pipelined
CODE_BUSY = 2  # fwk.Unschedulable: another pod leaving may help
CODE_NEVER = 3  # fwk.UnschedulableAndUnresolvable: the node is no use to this pod


class Amounts(msgspec.Struct, frozen=True):
    """api.Resource."""

    milli_cpu: float | None = msgspec.field(default=None, name="MilliCPU")
    memory: float | None = msgspec.field(default=None, name="Memory")
    scalars: dict[str, float] | None = msgspec.field(default=None, name="ScalarResources")


class Task(msgspec.Struct, frozen=True):
    """api.TaskInfo, the fields a placement reads."""

    uid: str = msgspec.field(default="", name="UID")
    job: str = msgspec.field(default="", name="Job")
    name: str = msgspec.field(default="", name="Name")
    namespace: str = msgspec.field(default="", name="Namespace")
    request: Amounts | None = msgspec.field(default=None, name="InitResreq")
    node_name: str = msgspec.field(default="", name="NodeName")
    status: int = msgspec.field(default=0, name="Status")
    pod: placed_pods.Pod | None = msgspec.field(default=None, name="Pod")


_MOST = 2.0**63  # Kubernetes has no larger amount; a float may be one that no integer is

_NULL = msgspec.Raw(b"null")


class Node(msgspec.Struct, frozen=True):
    """api.NodeInfo, the fields a placement reads: what is idle, being released, and promised.

    Each is an api.Resource as written, for `offered`: most nodes of a request write the same.
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

NOTHING = b"{}"
EVENT_TAKEN = b'{"errorMessage":""}'
EVENT_SENT_BACK = _encode(
    {"errorMessage": "railwright has just started and has not seen where this gang's first pods are: place it anew"}
)


def sent_back(reason: str) -> bytes:
    """The answer to an event that makes Volcano take the placement back."""
    return _encode({"errorMessage": reason})


def read_prioritize(body: bytes) -> tuple[Task, list[Node]]:
    """(task, nodes). Raises requests.MalformedError."""
    message = requests.decoded(_decode_prioritize, body)
    if message.nodes is None:
        raise requests.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
    return _task(message.task), message.nodes


def read_predicate(body: bytes) -> tuple[Task, Node]:
    """(task, node). Raises requests.MalformedError."""
    message = requests.decoded(_decode_predicate, body)
    if message.node is None or not message.node.name:
        raise requests.MalformedError("node is missing or has no Name: expected {task, node} as Volcano sends them")
    return _task(message.task), message.node


def read_event(body: bytes) -> Task:
    """The task of an allocate or deallocate event. Raises requests.MalformedError."""
    task = _task(requests.decoded(_decode_event, body).task)
    if not task.uid:
        raise requests.MalformedError("task.UID is missing")
    return task


def read_close(body: bytes) -> None:
    """A session-close body says nothing, but has to be JSON. Raises requests.MalformedError."""
    requests.decoded(_decode_close, body)


def prioritized(scores: Mapping[str, float]) -> bytes:
    """The answer of prioritize; never without nodeScore, or Volcano drops the task unsaid."""
    return _encode({"nodeScore": scores, "errorMessage": ""})


def predicated(refusal: str, *, unresolvable: bool) -> bytes:
    """The answer of predicate; its message key is `status` and an empty one means that the pod fits."""
    if not refusal:
        return _encode({"status": "", "code": 0})
    return _encode({"status": refusal, "code": CODE_NEVER if unresolvable else CODE_BUSY})


def amounts(given: Amounts | None) -> dict[str, int]:
    """Volcano's Resource as milli-units of everything. Values may be negative where a node is over-committed."""
    if given is None:
        return {}
    result = {"cpu": _whole(given.milli_cpu or 0), "memory": _whole(given.memory or 0, resources.UNIT)}
    for name, value in (given.scalars or {}).items():
        result[name] = _whole(value, resources.UNIT if name == resources.PODS else 1)
    return result


def _whole(value: float, unit: int = 1) -> int:
    return round(max(-_MOST, min(_MOST, value)) * unit)


def offered(node: Node) -> ask.Offer | None:
    """What a node's scheduler holds free; None where it does not say. Raises requests.MalformedError.

    Equal texts give one and the same offer.
    """
    return _offered(bytes(node.idle), bytes(node.releasing), bytes(node.pipelined))


@functools.lru_cache(maxsize=4096)  # different states of nodes; a text has a few hundred bytes
def _offered(idle: bytes, releasing: bytes, pipelined: bytes) -> ask.Offer | None:
    now, leaving, coming = (requests.decoded(_decode_amounts, text) for text in (idle, releasing, pipelined))
    if now is None:
        return None
    return ask.Offer(
        free=amounts(now),
        promised=_promised(now, leaving, coming) if leaving is not None and leaving.scalars else None,
    )


def _promised(now: Amounts, leaving: Amounts, coming: Amounts | None) -> dict[str, int]:
    """What will be free once releasing pods are gone and pipelined ones have come (Volcano's FutureIdle)."""
    total = amounts(now)
    for given, sign in ((leaving, 1), (coming, -1)):
        for name, amount in amounts(given).items():
            total[name] = total.get(name, 0) + sign * amount
    return total


def emptied(node: Node) -> ask.Offer | None:
    """What would be free if every pod on the node went but those promised a place there; None where it does not say."""
    return _emptied(bytes(node.allocatable), bytes(node.pipelined))


@functools.lru_cache(maxsize=4096)  # as above
def _emptied(allocatable: bytes, pipelined: bytes) -> ask.Offer | None:
    total, coming = (requests.decoded(_decode_amounts, text) for text in (allocatable, pipelined))
    if total is None:
        return None
    left = amounts(total)
    for name, amount in amounts(coming).items():
        left[name] = left.get(name, 0) - amount
    return ask.Offer(free=left, emptied=True)


def _task(task: Task | None) -> Task:
    if task is None:
        raise requests.MalformedError("task is missing")
    return task
