"""Decodes and encodes Volcano's extender protocol (pkg/scheduler/plugins/extender).

Lower-case wrappers contain structs with Go's field names. Only the fields in use are decoded, so a body of tens of
megabytes is scanned without building objects. A large body is scanned in slices, and other requests are answered in
between.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from extender import decoding
from railwright.fabric import scheduling_views

PIPELINED = 4  # api.Pipelined
CODE_UNRESOLVABLE = 3  # fwk.UnschedulableAndUnresolvable: no other pod that leaves makes the node fit


class Task(msgspec.Struct, frozen=True):
    """api.TaskInfo, the fields that placement uses."""

    uid: str = msgspec.field(default="", name="UID")
    name: str = msgspec.field(default="", name="Name")
    namespace: str = msgspec.field(default="", name="Namespace")
    job: str = msgspec.field(default="", name="Job")
    node_name: str = msgspec.field(default="", name="NodeName")
    status: int = msgspec.field(default=0, name="Status")
    pod: scheduling_views.Pod | None = msgspec.field(default=None, name="Pod")


_NULL = msgspec.Raw(b"null")


class _Node(msgspec.Struct, frozen=True):
    """api.NodeInfo. Its resources are those of the cluster state and of the announced pods."""

    name: str = msgspec.field(default="", name="Name")

    def __post_init__(self) -> None:
        """Stop decoding at the first node without a name. A list of such nodes would take thirty times its bytes."""
        if not self.name:
            raise ValueError("a node is missing its Name")


class _Prioritize(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    nodes: list[_Node] | None = None


class _Predicate(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    node: _Node | None = None


class _Event(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL


_decode_prioritize = msgspec.json.Decoder(_Prioritize).decode
_decode_predicate = msgspec.json.Decoder(_Predicate).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_close = msgspec.json.Decoder(_Event | None).decode
_decode_task = msgspec.json.Decoder(Task | None).decode
_decode_nodes = msgspec.json.Decoder(list[_Node]).decode
_encode = msgspec.json.Encoder().encode

_SLICE = 1 << 20  # bytes that are decoded at once: the densest JSON takes 40 ms
_MAX_NODE = 16 << 20  # bytes of one node; those of its pods are the most
# Go writes no spaces. Quotes inside of strings are escaped, so that no string matches.
_NODES, _NEXT_NODE = b',"nodes":[', b'},{"Name":'
_MAX_JOB = 2 * decoding.MAX_NAME + 1  # namespace/name

Body = bytes | bytearray

EMPTY_OBJECT = b"{}"
EVENT_ACCEPTED = b'{"errorMessage":""}'


async def read_prioritize(body: Body) -> tuple[Task, Sequence[str]]:
    """Return the task and the names of its candidate nodes, each once. Raises decoding.MalformedError.

    A body of more than _SLICE bytes must have `task` before `nodes`, and `Name` first in each node, without spaces
    between these, as Volcano writes them.
    """
    nodes: dict[str, None] = {}
    if len(body) <= _SLICE:
        message = decoding.decode_body(_decode_prioritize, body)
        if message.nodes is None:
            raise decoding.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
        _add(nodes, message.nodes)
        return _read_task(message.task), list(nodes)
    start = body.find(_NODES, 0, 4 * _SLICE)
    if start < 0:
        raise decoding.MalformedError(
            "a large body must have nodes right after task: expected {task, nodes} as Volcano sends them"
        )
    task = _read_task(decoding.decode_body(_decode_event, body[:start] + b"}").task)
    view, start, size = memoryview(body), start + len(_NODES), _SLICE
    while len(body) - start > size:
        end = body.rfind(_NEXT_NODE, start, start + size)
        infos: Sequence[_Node] = ()
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
        await asyncio.sleep(0)
    _add(nodes, decoding.decode_body(_decode_prioritize, b'{"nodes":[' + body[start:]).nodes or ())
    return task, list(nodes)


def _add(nodes: dict[str, None], infos: Sequence[_Node]) -> None:
    decoding.check_count("the request", len(nodes) + len(infos), decoding.MAX_NODES, "nodes")
    nodes |= dict.fromkeys([info.name for info in infos])


def read_predicate(body: bytes) -> tuple[Task, str]:
    """Return the task and the name of its only candidate node. Raises decoding.MalformedError."""
    message = decoding.decode_body(_decode_predicate, body)
    if message.node is None:
        raise decoding.MalformedError("node is missing: expected {task, node} as Volcano sends them")
    return _read_task(message.task), message.node.name


def read_event(body: bytes) -> Task:
    """Return the task of an allocate or deallocate event. Raises decoding.MalformedError."""
    task = _read_task(decoding.decode_body(_decode_event, body).task)
    if not task.uid:
        raise decoding.MalformedError("task.UID is missing")
    return task


def read_close(body: bytes) -> None:
    """Check that a session-close body is a JSON object or null. Raises decoding.MalformedError."""
    decoding.decode_body(_decode_close, body)


def encode_priorities(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize. `nodeScore` is mandatory: without it Volcano silently skips the task."""
    return _encode({"nodeScore": scores, "errorMessage": ""})


def encode_predicate_result(message: str) -> bytes:
    """Encode the answer of predicate. With an empty message the node is allowed."""
    return _encode({"status": message, "code": CODE_UNRESOLVABLE if message else 0})


def _read_task(raw: msgspec.Raw) -> Task:
    task: Task | None = decoding.decode_object(_decode_task, raw, "task")
    if task is None:
        raise decoding.MalformedError("task is missing")
    decoding.check_names("task", (task.uid, task.name, task.namespace, task.node_name))
    decoding.check_names("task.Job", (task.job,), _MAX_JOB)
    if task.pod is not None:
        decoding.check_pod(task.pod)
    return task
