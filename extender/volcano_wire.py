"""Decodes and encodes Volcano's extender protocol (pkg/scheduler/plugins/extender).

Lower-case wrappers contain structs with Go's field names. Only the fields in use are decoded, so that a body of tens of
megabytes is scanned and not built. A large one is scanned in slices, between which others are answered.

Volcano counts CPU in milli-cores, memory in bytes, `pods` in units and every other
scalar in milli-units; the functions here return milli-units of everything.
"""

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from extender import decoding
from railwright.fabric import resources, scheduling_views
from railwright.fabric.placement import scheduling_request
from railwright.serving import turns

PIPELINED = 4  # api.Pipelined
CODE_UNRESOLVABLE = 3  # fwk.UnschedulableAndUnresolvable: no other pod that leaves makes the node fit


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


class _NodeInfo(msgspec.Struct, frozen=True):
    """api.NodeInfo, the fields that placement uses. Each but the name is the raw JSON of an api.Resource."""

    name: str = msgspec.field(default="", name="Name")
    idle: msgspec.Raw = msgspec.field(default=_NULL, name="Idle")
    releasing: msgspec.Raw = msgspec.field(default=_NULL, name="Releasing")
    pipelined: msgspec.Raw = msgspec.field(default=_NULL, name="Pipelined")
    allocatable: msgspec.Raw = msgspec.field(default=_NULL, name="Allocatable")

    def __post_init__(self) -> None:
        """Stop decoding at the first node without a name: a list of such takes thirty times its bytes."""
        if not self.name:
            raise ValueError("a node is missing its Name")


class NodeAmounts(NamedTuple):
    """The resources of a node in a session, each an api.Resource as text. Those of many nodes are equal."""

    idle: bytes
    releasing: bytes
    pipelined: bytes
    allocatable: bytes


class _Prioritize(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    nodes: list[_NodeInfo] | None = None


class _NodeName(msgspec.Struct, frozen=True):
    name: str = msgspec.field(default="", name="Name")


class _Predicate(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    node: _NodeName | None = None


class _Event(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL


class TaskIdentity(msgspec.Struct, frozen=True):
    """Which pod an api.TaskInfo is about."""

    uid: str = msgspec.field(default="", name="UID")
    name: str = msgspec.field(default="", name="Name")
    namespace: str = msgspec.field(default="", name="Namespace")


class _Removal(msgspec.Struct, frozen=True):
    task: TaskIdentity | None = None


class _Close(msgspec.Struct, frozen=True):
    """A request of which nothing is read."""


_decode_prioritize = msgspec.json.Decoder(_Prioritize).decode
_decode_predicate = msgspec.json.Decoder(_Predicate).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_removal = msgspec.json.Decoder(_Removal).decode
_decode_amounts = msgspec.json.Decoder(Amounts | None).decode
_decode_close = msgspec.json.Decoder(_Close | None).decode
_decode_task = msgspec.json.Decoder(Task | None).decode
_decode_nodes = msgspec.json.Decoder(list[_NodeInfo]).decode
_encode = msgspec.json.Encoder().encode

_SLICE = 1 << 20  # bytes that are decoded at once: the densest JSON takes 40 ms
_MAX_NODE = 16 << 20  # bytes of one node; those of its pods are the most
# Go writes no spaces. Quotes inside of strings are escaped, so that no string matches.
_NODES, _NEXT_NODE = b',"nodes":[', b'},{"Name":'
_MAX_JOB = 2 * decoding.MAX_NAME + 1  # namespace/name
_MAX_SCALARS = 256  # resources of a node or task
_MAX_AMOUNTS = 8 << 10  # bytes of an api.Resource

_NO_TASK = "task is missing"
_Identified = TypeVar("_Identified", Task, TaskIdentity)
Body = bytes | bytearray
Nodes = Mapping[str, NodeAmounts]
"""Candidate nodes by name, in order. A node that is named twice counts as it is named last."""

EMPTY_OBJECT = b"{}"
EVENT_ACCEPTED = b'{"errorMessage":""}'


def read_prioritize(body: Body) -> turns.Steps[tuple[Task, Nodes]]:
    """Return (task, nodes). Raises decoding.MalformedError.

    A body of more than _SLICE bytes must have `task` before `nodes`, and `Name` first in each node, without spaces
    between these, as Volcano writes them.
    """
    nodes: dict[str, NodeAmounts] = {}
    if len(body) <= _SLICE:
        message = decoding.decode_body(_decode_prioritize, body)
        if message.nodes is None:
            raise decoding.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
        _add(nodes, message.nodes)
        return _read_task(message.task), nodes
    start = body.find(_NODES, 0, 4 * _SLICE)
    if start < 0:
        raise decoding.MalformedError(
            "a large body must have nodes right after task: expected {task, nodes} as Volcano sends them"
        )
    task = _read_task(decoding.decode_body(_decode_event, body[:start] + b"}").task)
    view, start, size = memoryview(body), start + len(_NODES), _SLICE
    while len(body) - start > size:
        end = body.rfind(_NEXT_NODE, start, start + size)
        infos: Sequence[_NodeInfo] = ()
        with contextlib.suppress(decoding.MalformedError):  # not between two nodes
            infos = (
                decoding.decode_body(_decode_nodes, b"".join((b"[", view[start : end + 1], b"]"))) if end > 0 else ()
            )
        _add(nodes, infos)
        if infos:
            start, size = end + 2, _SLICE
        elif size < _MAX_NODE:
            size *= 2
        else:
            raise decoding.MalformedError(f"not the expected JSON, or a node of more than {_MAX_NODE} bytes")
        yield
    _add(nodes, decoding.decode_body(_decode_prioritize, b'{"nodes":[' + body[start:]).nodes or ())
    return task, nodes


def _add(nodes: dict[str, NodeAmounts], infos: Sequence[_NodeInfo]) -> None:
    """Add nodes. Their texts are copied, because a part of a body keeps the body."""
    decoding.check_count("the request", len(nodes) + len(infos), decoding.MAX_NODES, "nodes")
    for info in infos:
        texts = map(bytes, (info.idle, info.releasing, info.pipelined, info.allocatable))
        nodes[info.name] = NodeAmounts(*texts)


def read_predicate(body: bytes) -> tuple[Task, str]:
    """Return the task and the name of its only candidate node. Raises decoding.MalformedError."""
    message = decoding.decode_body(_decode_predicate, body)
    if message.node is None or not message.node.name:
        raise decoding.MalformedError("node is missing: expected {task, node} as Volcano sends them")
    return _read_task(message.task), message.node.name


def read_event(body: bytes) -> Task:
    """Return the task of an allocate event. Raises decoding.MalformedError."""
    return _check_identity(_read_task(decoding.decode_body(_decode_event, body).task))


def read_removal(body: bytes) -> TaskIdentity:
    """Return which pod a deallocate event is about. Raises decoding.MalformedError."""
    task = decoding.decode_body(_decode_removal, body).task
    if task is None:
        raise decoding.MalformedError(_NO_TASK)
    return _check_identity(task)


def _check_identity(task: _Identified) -> _Identified:
    if not task.uid:
        raise decoding.MalformedError("task.UID is missing")
    decoding.check_names("task", (task.uid, task.name, task.namespace))
    return task


def read_close(body: bytes) -> None:
    """Check that a session-close body is a JSON object or null. Raises decoding.MalformedError."""
    decoding.decode_body(_decode_close, body)


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize. `nodeScore` is mandatory: without it Volcano silently skips the task."""
    return _encode({"nodeScore": scores, "errorMessage": ""})


def encode_predicate_result(message: str) -> bytes:
    """Encode the answer of predicate. An empty message means that the pod may go there."""
    return _encode({"status": message, "code": CODE_UNRESOLVABLE if message else 0})


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


@functools.lru_cache(maxsize=1024)
def decode_offer(amounts: NodeAmounts) -> scheduling_request.NodeOffer | None:
    """Return the free resources of nodes by Volcano's session, or None without `Idle`. Raises decoding.MalformedError.

    Equal texts return the same object.
    """
    idle, releasing, pipelined = map(_read_amounts, (amounts.idle, amounts.releasing, amounts.pipelined))
    if idle is None:
        return None
    return scheduling_request.NodeOffer(
        idle=resources.FrozenAmounts(convert_amounts(idle)),
        future_idle=_calculate_future_idle(idle, releasing, pipelined)
        if releasing is not None and releasing.scalars
        else None,
    )


def _read_amounts(text: bytes) -> Amounts | None:
    decoding.check_count("an amount of resources", len(text), _MAX_AMOUNTS, "bytes")
    amounts: Amounts | None = decoding.decode_body(_decode_amounts, text)
    decoding.check_count("an amount of resources", len((amounts and amounts.scalars) or ()), _MAX_SCALARS, "resources")
    return amounts


def _calculate_future_idle(
    idle_amounts: Amounts, releasing_amounts: Amounts, pipelined_amounts: Amounts | None
) -> resources.FrozenAmounts:
    """Return Volcano's FutureIdle: idle plus releasing minus pipelined."""
    total = convert_amounts(idle_amounts)
    for volcano_amounts, sign in ((releasing_amounts, 1), (pipelined_amounts, -1)):
        for name, amount in convert_amounts(volcano_amounts).items():
            total[name] = total.get(name, 0) + sign * amount
    return resources.FrozenAmounts(total)


@functools.lru_cache(maxsize=1024)
def decode_offer_without_pods(amounts: NodeAmounts) -> scheduling_request.NodeOffer | None:
    """Return what would be free with pipelined pods only, or None without `Allocatable`."""
    total, pipelined_amounts = map(_read_amounts, (amounts.allocatable, amounts.pipelined))
    if total is None:
        return None
    left = convert_amounts(total)
    for name, amount in convert_amounts(pipelined_amounts).items():
        left[name] = left.get(name, 0) - amount
    return scheduling_request.NodeOffer(idle=resources.FrozenAmounts(left), if_preempted=True)


def _read_task(raw: msgspec.Raw) -> Task:
    task: Task | None = decoding.decode_object(_decode_task, raw, "task")
    if task is None:
        raise decoding.MalformedError(_NO_TASK)
    decoding.check_names("task", (task.uid, task.name, task.namespace, task.node_name))
    decoding.check_names("task.Job", (task.job,), _MAX_JOB)
    decoding.check_count("task", len((task.request and task.request.scalars) or ()), _MAX_SCALARS, "resources")
    if task.pod is not None:
        decoding.check_pod(task.pod)
    return task
