"""Answers Volcano: prioritize, predicate, allocate, deallocate and session-close. Decodes, asks the decider, encodes.

Volcano's extender protocol (pkg/scheduler/plugins/extender) has lower-case wrappers around structs with Go's field
names. Only the fields in use are decoded. The body of prioritize has every node with its pods, tens of megabytes, and
is searched for the names while it arrives.

Volcano announces what it places by allocate, deallocate and session-close. A later prioritize or predicate for such a
pod shows that its gang was not bound (`forget_retried_gang`). Each instance of Volcano has its own scope
(docs/interface.md 4.3).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from extender import decider, decoding
from railwright.fabric import scheduling_views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods

# --- the protocol ---------------------------------------------------------------------------------------------

PIPELINED = 4  # api.Pipelined
CODE_UNRESOLVABLE = 3  # fwk.UnschedulableAndUnresolvable: no other pod that leaves makes the node fit


class Task(msgspec.Struct, frozen=True):
    """The fields of Volcano's api.TaskInfo that placement uses."""

    uid: str = msgspec.field(default="", name="UID")
    job: str = msgspec.field(default="", name="Job")
    node_name: str = msgspec.field(default="", name="NodeName")
    status: int = msgspec.field(default=0, name="Status")
    pod: scheduling_views.Pod | None = msgspec.field(default=None, name="Pod")


_NULL = msgspec.Raw(b"null")


class _Node(msgspec.Struct, frozen=True):
    """The name in Volcano's api.NodeInfo. The resources are not read: the cluster state has them."""

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
_encode = msgspec.json.Encoder().encode

_WHOLE = 128 << 10  # bytes of a body that is decoded as a whole: some thirty nodes
_MAX_HEAD = decoding.MAX_OBJECT + _WHOLE  # bytes before the nodes: the task
# Go writes no spaces. Quotes inside of strings are escaped, so that no string matches.
_NODES, _NEXT_NODE = b',"nodes":[', b'},{"Name":"'
_NAMED = re.compile(rb'([^"\\]{1,%d})","Node":' % decoding.MAX_NAME)  # not the Name in other lists of a node
_EDGE = 512  # bytes that surely hold a match of _NAMED, or of _NEXT_NODE
_KEPT_NAME = 320  # bytes of memory that the longest name takes in a dict
_MAX_JOB = 2 * decoding.MAX_NAME + 1  # namespace/name

EMPTY_OBJECT = b"{}"
EVENT_ACCEPTED = b'{"errorMessage":""}'


class PrioritizeBody:
    """The body of a prioritize request, which keeps the task and the names of the nodes while it is received.

    A body of more than _WHOLE bytes must have `task` before `nodes`, and each node must begin with `Name` and `Node`,
    without spaces, as Volcano writes them. The rest of each node is not checked.
    """

    def __init__(self) -> None:
        self._rest = bytearray()  # received and not read yet
        self._task: Task | None = None  # once the body is searched for nodes
        self._nodes: dict[str, None] = {}
        self._held = 0  # bytes of the task, and of the names that `extend` has found

    def __len__(self) -> int:
        """Return about how many bytes of the body are kept, also after it was read, for the server's limit."""
        return len(self._rest) + self._held

    def extend(self, part: bytes, /) -> None:
        """Add the next part of the body. Raises decoding.MalformedError."""
        known = len(self._rest)
        self._rest += part
        if self._task is None:
            if len(self._rest) <= _WHOLE:
                return
            start = self._rest.find(_NODES, 0 if known <= _WHOLE else known - len(_NODES))
            if start < 0 and len(self._rest) <= _MAX_HEAD:
                return
            if start < 0:
                raise decoding.MalformedError(
                    "a large body must have nodes right after task: expected {task, nodes} as Volcano sends them"
                )
            self._task = _read_task(decoding.decode_body(_decode_event, self._rest[:start] + b"}").task)
            self._held = start
            self._rest[: start + len(_NODES)] = b"},"  # as before the other nodes
        *texts, self._rest = self._rest.rsplit(_NEXT_NODE)  # CPython searches twice as fast from the end
        if len(self._rest) > 2 * _EDGE:  # the middle of a node
            del self._rest[_EDGE:-_EDGE]
        count = len(self._nodes)
        self._add_named(texts)
        self._held += _KEPT_NAME * (len(self._nodes) - count)

    def read_task_and_nodes(self) -> tuple[Task, Sequence[str]]:
        """Return the task and the names of its candidate nodes, each once. Raises decoding.MalformedError."""
        if self._task is not None:
            self._add_named([self._rest])
            if not self._nodes:
                raise decoding.MalformedError("no node begins with Name and Node: expected nodes as Volcano sends them")
            return self._task, list(self._nodes)
        message = decoding.decode_body(_decode_prioritize, self._rest)
        if message.nodes is None:
            raise decoding.MalformedError("nodes is missing: expected {task, nodes} as Volcano sends them")
        self._add_names([info.name for info in message.nodes])
        return _read_task(message.task), list(self._nodes)

    def _add_named(self, texts: Iterable[bytearray]) -> None:
        """Add the names of nodes from their JSON texts, each of which begins with the name."""
        try:
            self._add_names([match[1].decode() for match in map(_NAMED.match, texts) if match])
        except UnicodeDecodeError as error:
            raise decoding.MalformedError(f"the body is not the expected JSON: {error}") from None

    def _add_names(self, names: Sequence[str]) -> None:
        decoding.check_count("the request", len(self._nodes) + len(names), decoding.MAX_NODES, "nodes")
        self._nodes |= dict.fromkeys(names)


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


def check_session_close(body: bytes) -> None:
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
    decoding.check_names("task", (task.uid, task.node_name))
    decoding.check_names("task.Job", (task.job,), _MAX_JOB)
    if task.pod is not None:
        decoding.check_pod(task.pod)
    return task


# --- the handlers ---------------------------------------------------------------------------------------------

_FACTOR = 10.0  # that of binpack in Volcano's own example: locality outweighs the plugins that spread


class Volcano:
    """The handlers of Volcano's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding

    def prioritize(self, body: PrioritizeBody) -> bytes:
        """Answer POST /volcano/prioritize: scores of 0..100, times 10 to outweigh those of Volcano's plugins."""
        task, nodes = body.read_task_and_nodes()
        request = self._build_request(task, nodes)
        if request is None:
            return encode_priorities(dict.fromkeys(nodes, 0.0))
        # Volcano does not count what kube-scheduler may be about to place: each scheduler counts its own
        self._decider.scored.forget(self._decider.clock(), request)
        decision = self._decider.score(request)
        scores = {name: score * _FACTOR for name, score in decision.scores.items()}
        return encode_priorities(scores)

    def predicate(self, body: bytes) -> bytes:
        """Answer POST /volcano/predicate: code 0 if the pod may use the node, 3 if the node is refused."""
        task, node = read_predicate(body)
        request = self._build_request(task, [node])
        if request is None:
            return encode_predicate_result("")
        refusals = self._decider.find_refusals(request).values()
        return encode_predicate_result("".join([f"railwright: {refusal.text}" for refusal in refusals]))

    def allocate(self, body: bytes, scope: str) -> bytes:
        """Answer POST /volcano/allocate: assume the pod of a placed task, if the watch has shown the pod."""
        task, cluster = read_event(body), self._decider.state.cluster
        pod, node = cluster.pods.get(task.uid), cluster.nodes.get(task.node_name)
        if pod is None or pod.node or not task.node_name:
            return EVENT_ACCEPTED
        is_pipelined = task.status == PIPELINED
        assumed_pod = assumed_pods.AssumedPod(
            uid=pod.uid,
            key=pod.key,
            gang=pod.gang,
            rank=pod.rank,
            node=task.node_name if node is None else node.name,  # one object, which is found faster
            requests=pod.requests,
            state=assumed_pods.State.PIPELINED if is_pipelined else assumed_pods.State.ALLOCATED,
            since=self._decider.clock(),
            scope=scope,
        )
        cluster.assumed.assume(assumed_pod)
        return EVENT_ACCEPTED

    def deallocate(self, body: bytes) -> bytes:
        """Answer POST /volcano/deallocate: forget a task whose placement was rolled back. A bound pod still counts."""
        self._decider.state.assumed.forget(read_event(body).uid)
        return EVENT_ACCEPTED

    def close_session(self, body: bytes, scope: str) -> bytes:
        """Answer POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        check_session_close(body)
        self._decider.state.assumed.end_session(scope, self._decider.clock())
        return EMPTY_OBJECT

    def _build_request(self, task: Task, nodes: Sequence[str]) -> scheduling_request.SchedulingRequest | None:
        """Return the request for a task. Volcano's node contents are ignored: they only repeat its announcements."""
        if task.pod is None:
            return None
        state = self._decider.state
        state.assumed.forget_retried_gang(task.uid)
        request = scheduling_request.build_request(
            task.pod,
            self._decider.policy(),
            state.pools,
            nodes,
            requests=state.cluster.compute_requests(task.pod),
            volcano_job=task.job,
            uid=task.uid,
            is_announced=True,
        )
        if request is None or not state.cluster.sizes.is_confined(request.gang):
            return request
        return msgspec.structs.replace(request, is_confined=True)
