"""Decodes and encodes Volcano's extender protocol (pkg/scheduler/plugins/extender).

Lower-case wrappers contain structs with Go's field names. Only the fields in use are decoded, so that a body of tens of
megabytes is scanned and not built; a large one is scanned in slices, between which others are answered. Most of it are
the objects and pods of nodes, which are not parsed: what is around them is searched for, in a quarter of the time.

Volcano counts CPU in milli-cores, memory in bytes, `pods` in units and every other
scalar in milli-units; the functions here return milli-units of everything.
"""

import functools
import mmap
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from extender import decoding
from railwright.fabric import resources, scheduling_views
from railwright.fabric.placement import scheduling_request
from railwright.serving import turns

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


class NodeAmounts(msgspec.Struct, frozen=True, eq=False):
    """The resources of a node in a session, not decoded. Nodes of one request with equal texts share one object."""

    idle: bytes
    releasing: bytes
    pipelined: bytes
    allocatable: bytes


class _Prioritize(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    nodes: list[_NodeInfo] | None = None


class _Predicate(msgspec.Struct, frozen=True):
    task: msgspec.Raw = _NULL
    node: _NodeInfo | None = None


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
_decode_info = msgspec.json.Decoder(_NodeInfo).decode
_decode_nodes = msgspec.json.Decoder(list[_NodeInfo]).decode
_encode = msgspec.json.Encoder().encode

_SLICE = 1 << 20  # bytes that are decoded in one turn: the densest JSON takes 40 ms
_MAX_NODE = 16 << 20  # bytes of one node; those of its pods are the most
_NODES_KEY = re.compile(rb',\s*"nodes"\s*:\s*\[')
_NEXT_NODE = re.compile(rb'\}(\s*,\s*)\{"Name"')  # quotes inside of strings are escaped, so that no string matches
_LOOK_BACK = 64  # bytes between two nodes
# Go writes the fields of each node in their order: Name, Node, State, those with resources, Tasks. No string has these
# texts, as above.
_NEXT_HEAD, _HEAD = b'},{"Name":"', re.compile(rb'\{"Name":"([-.0-9A-Za-z]{1,253})","Node":\{')
_STATE, _IDLE, _TASKS = b'},"State":{"Phase":', b',"Idle":', b',"Tasks":'
_MAX_RESOURCES = 64 << 10  # bytes of a node's fields from State to Tasks
_MAX_ARRIVED = 128  # nodes read in one turn while a body arrives, in a millisecond; with more, all wait for its end
_MAX_TRIES = 10_000  # objects with a Name at the end of a slice; Volcano sends few but nodes
_MAX_JOB = 2 * decoding.MAX_NAME + 1  # namespace/name
_MAX_SCALARS = 256  # resources of a node or task
_MAX_AMOUNTS = 16 << 10  # bytes of an api.Resource
_MAX_CACHED = 2 << 10  # bytes of the texts of a cached offer

_NO_TASK = "task is missing"
_Identified = TypeVar("_Identified", Task, TaskIdentity)
Body = bytes | mmap.mmap
Nodes = Mapping[str, NodeAmounts]
"""Candidate nodes by name, in order. A node that is named twice counts as it is named first."""
_Named = tuple[str, NodeAmounts]

EMPTY_OBJECT = b"{}"
EVENT_ACCEPTED = b'{"errorMessage":""}'


def encode_rejection(message: str) -> bytes:
    """Encode the answer to an event that makes Volcano roll the placement back."""
    return _encode({"errorMessage": message})


class _SharedAmounts:
    """The amounts of the nodes of one request. Most nodes have those of the node before, which are compared first."""

    def __init__(self) -> None:
        self._by_texts: dict[tuple[bytes, ...], NodeAmounts] = {}
        self._by_fields: dict[bytes, NodeAmounts] = {}
        self._latest: tuple[tuple[msgspec.Raw, ...], NodeAmounts] | None = None

    def name(self, infos: Iterable[_NodeInfo]) -> list[_Named]:
        """Return the name and amounts of each node, without a reference to the body around their texts."""
        return [(info.name, self._share(info)) for info in infos]

    def read_fields(self, fields: bytes) -> NodeAmounts:
        """Return the amounts in the fields of a node, which begin with a comma. Most nodes have those of another."""
        amounts = self._by_fields.get(fields)
        if amounts is None:
            info = decoding.decode_body(_decode_info, b'{"Name":"-"%b}' % fields)
            amounts = self._by_fields[fields] = self._share(info)
        return amounts

    def _share(self, info: _NodeInfo) -> NodeAmounts:
        raw = info.idle, info.releasing, info.pipelined, info.allocatable
        if self._latest is not None and self._latest[0] == raw:
            return self._latest[1]
        texts = tuple(map(bytes, raw))
        amounts = self._by_texts.get(texts)
        if amounts is None:
            amounts = self._by_texts[texts] = NodeAmounts(*texts)
        self._latest = raw, amounts
        return amounts


class NodeReader:
    """Reads the nodes of a large body while it arrives, if they are as large and written as those of Volcano.

    It reads what `read_prioritize` would read of these nodes. It stops at the first that is different.
    """

    def __init__(self) -> None:
        self.nodes: list[_Named] = []
        self.shared = _SharedAmounts()
        self.end = 0  # the first byte that is not read, where a node begins; 0 before the first node
        self._searched = 0
        self._is_stopped = False

    def read(self, body: mmap.mmap, size: int) -> None:
        """Read the nodes that have arrived whole. Do nothing until another _SLICE bytes have arrived."""
        if self._is_stopped or size - self._searched < _SLICE:
            return
        try:
            self._is_stopped = not self._read(body, size)
        except decoding.MalformedError:  # it is reported when the body is complete
            self._is_stopped = True

    def _read(self, body: mmap.mmap, size: int) -> bool:
        """Return False if the nodes are written differently."""
        if not self.end:
            key = _NODES_KEY.search(body, 0, size)
            if key is None:
                return False
            self.end = key.end()
        begins, before, searched = list[int](), size, max(self.end, self._searched - len(_NEXT_HEAD))
        while (bracket := body.rfind(_NEXT_HEAD, searched, before)) >= 0 and len(begins) <= _MAX_ARRIVED:
            before = bracket + 2
            begins.append(before)
        self._searched = size
        if len(begins) > _MAX_ARRIVED:
            return False
        for end in reversed(begins):
            head = _HEAD.match(body, self.end)
            node = head and end - self.end <= _MAX_NODE and _read_node(body, head, end, self.shared)
            if not node:
                return False
            self.nodes.append(node)
            self.end = end
        return size - self.end <= _MAX_NODE


def read_prioritize(body: Body, reader: NodeReader | None = None) -> turns.Steps[tuple[Task, Nodes]]:
    """Return (task, nodes). Raises decoding.MalformedError. `reader` has read nodes while the body arrived.

    A body of more than _SLICE bytes must have `task` before `nodes`, and `Name` first in each node, as Volcano does.
    """
    if len(body) > _SLICE:
        return (yield from _read_large(body, reader))
    message = decoding.decode_body(_decode_prioritize, body)
    if message.nodes is None:
        raise decoding.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
    decoding.check_count("the request", len(message.nodes), decoding.MAX_NODES, "nodes")
    return _read_task(message.task), _index(_SharedAmounts().name(message.nodes))


def _index(nodes: Sequence[_Named]) -> Nodes:
    by_name = dict(nodes)
    return by_name if len(by_name) == len(nodes) else by_name | dict(reversed(nodes))


def _read_large(body: Body, reader: NodeReader | None) -> turns.Steps[tuple[Task, Nodes]]:
    key = _NODES_KEY.search(body, 0, 4 * _SLICE)
    if key is None:
        raise decoding.MalformedError(
            "a large body must have nodes right after task: expected {task, nodes} as Volcano sends them"
        )
    task = _read_task(decoding.decode_body(_decode_event, body[: key.start()] + b"}").task)
    start, first, shared = key.end(), list[_Named](), _SharedAmounts()
    if reader is not None and reader.nodes:
        start, first, shared = reader.end, reader.nodes, reader.shared
    last, end = yield from _read_from_end(body, start, shared)
    # the rest is written differently, a node of it looks like several, or there are too many
    if first and (end > start or len(first) + len(last) > decoding.MAX_NODES):
        start, first = key.end(), []
        last, end = yield from _read_from_end(body, start, shared)
    nodes = [*first, *(yield from _read_slices(body, start, end, shared)), *last]
    decoding.check_count("the request", len(nodes), decoding.MAX_NODES, "nodes")
    return task, _index(nodes)


def _read_from_end(body: Body, start: int, shared: _SharedAmounts) -> turns.Steps[tuple[list[_Named], int]]:
    """Read nodes as Go writes them, from the last one on, without their objects and pods.

    Texts are found twice as fast backwards, where their first byte is compared first: a bracket is rarer than a quote.
    Return the nodes in order, and where the others end: the first of these from the end is written differently.
    """
    head = _find_head(body, start, len(body))
    if head is None:
        return [], len(body)
    rest = decoding.decode_body(_decode_prioritize, b'{"nodes":[' + body[head.start() :])
    nodes = shared.name(rest.nodes or ())[::-1]
    end = turn_end = head.start()
    while end > start and (head := _find_head(body, start, end)):
        if turn_end - end >= _SLICE:
            yield
            turn_end = end
        node = _read_node(body, head, end, shared)
        if node is None:
            break
        nodes.append(node)
        end = head.start()
        if len(nodes) > decoding.MAX_NODES:
            break  # the request is refused
    return nodes[::-1], end


def _read_node(body: Body, head: re.Match[bytes], end: int, shared: _SharedAmounts) -> _Named | None:
    """Read the node that begins with `head`; None if it is written differently."""
    state = body.find(_STATE, head.end(), end) + 1
    tasks = body.find(_TASKS, state, min(state + _MAX_RESOURCES, end)) if state else -1
    fields = body[state:tasks] if tasks > 0 else b""
    return (head[1].decode(), shared.read_fields(fields)) if _IDLE in fields else None


def _find_head(body: Body, start: int, end: int) -> re.Match[bytes] | None:
    """Return the beginning of the last node before `end`; None if it is written differently or too far away."""
    before = body.rfind(_NEXT_HEAD, max(start, end - _MAX_NODE - 2), end)
    if before < 0 and end - start > _MAX_NODE:
        return None
    return _HEAD.match(body, before + 2 if before >= 0 else start)


def _read_slices(body: Body, start: int, end: int, shared: _SharedAmounts) -> turns.Steps[list[_Named]]:
    """Read the nodes before `end`, where a node begins or the body ends, however they are written."""
    nodes: list[_Named] = []
    if start == end:
        return nodes
    size = _SLICE
    while start + size < end:
        yield
        part = body[start : start + size]
        match, infos = _find_last(part), list[_NodeInfo]()
        try:
            infos += _decode_nodes(b"[" + part[: match.start() + 1] + b"]") if match else ()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            match = None  # unless the node goes on
            reason = f"not the expected JSON: {error}"
        else:
            reason = f"a node has more than {_MAX_NODE} bytes"
        if match is None:
            size *= 2
            if size > _MAX_NODE:
                raise decoding.MalformedError(reason)
            continue
        decoding.check_count("the request", len(nodes) + len(infos), decoding.MAX_NODES, "nodes")
        nodes += shared.name(infos)
        start, size = start + match.end(1), _SLICE
    yield
    rest = body[start:] if end == len(body) else body[start : end - 1] + b"]}"
    return nodes + shared.name(decoding.decode_body(_decode_prioritize, b'{"nodes":[' + rest).nodes or ())


def _find_last(part: bytes) -> re.Match[bytes] | None:
    """Return the last end of a node, and the beginning of the next one, in a part of the list."""
    position = len(part)
    for _ in range(_MAX_TRIES):
        position = part.rfind(b'{"Name"', 0, position)
        match = _NEXT_NODE.search(part, max(0, position - _LOOK_BACK), position + 7) if position >= 0 else None
        if match or position < 0:
            return match
    return None


def read_predicate(body: bytes) -> tuple[Task, Nodes]:
    """Return the task and its only candidate node. Raises decoding.MalformedError."""
    message = decoding.decode_body(_decode_predicate, body)
    if message.node is None:
        raise decoding.MalformedError("node is missing: expected {task, node} as Volcano sends them")
    return _read_task(message.task), _index(_SharedAmounts().name([message.node]))


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


def decode_offer(amounts: NodeAmounts) -> scheduling_request.NodeOffer | None:
    """Return the free resources of nodes by Volcano's session, or None without `Idle`. Raises decoding.MalformedError.

    Equal texts return the same object, unless they are long.
    """
    texts = amounts.idle, amounts.releasing, amounts.pipelined
    return (_decode_cached_offer if sum(map(len, texts)) <= _MAX_CACHED else _decode_offer)(*texts)


def _decode_offer(idle: bytes, releasing: bytes, pipelined: bytes) -> scheduling_request.NodeOffer | None:
    idle_amounts, releasing_amounts, pipelined_amounts = map(_read_amounts, (idle, releasing, pipelined))
    if idle_amounts is None:
        return None
    return scheduling_request.NodeOffer(
        idle=resources.FrozenAmounts(convert_amounts(idle_amounts)),
        future_idle=_calculate_future_idle(idle_amounts, releasing_amounts, pipelined_amounts)
        if releasing_amounts is not None and releasing_amounts.scalars
        else None,
    )


_decode_cached_offer = functools.lru_cache(maxsize=4096)(_decode_offer)


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


def decode_offer_without_pods(amounts: NodeAmounts) -> scheduling_request.NodeOffer | None:
    """Return what would be free with pipelined pods only, or None without `Allocatable`."""
    texts = amounts.allocatable, amounts.pipelined
    is_short = sum(map(len, texts)) <= _MAX_CACHED
    return (_decode_cached_offer_without_pods if is_short else _decode_offer_without_pods)(*texts)


def _decode_offer_without_pods(allocatable: bytes, pipelined: bytes) -> scheduling_request.NodeOffer | None:
    total, pipelined_amounts = map(_read_amounts, (allocatable, pipelined))
    if total is None:
        return None
    left = convert_amounts(total)
    for name, amount in convert_amounts(pipelined_amounts).items():
        left[name] = left.get(name, 0) - amount
    return scheduling_request.NodeOffer(idle=resources.FrozenAmounts(left), if_preempted=True)


_decode_cached_offer_without_pods = functools.lru_cache(maxsize=4096)(_decode_offer_without_pods)


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
