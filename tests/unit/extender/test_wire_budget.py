"""Costs of requests by anybody who reaches the schedulers' ports, for the fields of each protocol.

The fields come from the structs that decode the requests, so a new field is covered.
`make test-slow PARTS=budgets` tries all values.
"""

import asyncio
import inspect
import json
import mmap
import time

import cost_budget
import extending
import msgspec
import pytest
import read_keys
from admitting import WIRE
from placing import LEAF, leaves, policy

from extender import decoding, kube_scheduler, state, volcano_wire
from railwright.fabric import scheduling_views
from railwright.serving import turns

pytestmark = pytest.mark.exhaustive

PRIORITIZE, EVENT, FILTER = (
    json.loads((WIRE / f"{name}.json").read_bytes())
    for name in ("volcano-prioritize", "volcano-allocate", "kube-scheduler-filter")
)
PREDICATE = {"task": PRIORITIZE["task"], "node": PRIORITIZE["nodes"][0]}
ROOM = cost_budget.ROOM if cost_budget.IS_FULL else 1 << 15
PARTS = cost_budget.PARTS if cost_budget.IS_FULL else ('"', "a,")


class Arguments(msgspec.Struct, rename="pascal"):
    """kube_wire's arguments, with what is decoded from their raw parts."""

    pod: scheduling_views.Pod | None = None
    node_names: list[str] | None = None


class Node(msgspec.Struct):
    """volcano_wire.Node, likewise."""

    name: str = msgspec.field(default="", name="Name")
    idle: volcano_wire.Amounts | None = msgspec.field(default=None, name="Idle")
    releasing: volcano_wire.Amounts | None = msgspec.field(default=None, name="Releasing")
    pipelined: volcano_wire.Amounts | None = msgspec.field(default=None, name="Pipelined")
    allocatable: volcano_wire.Amounts | None = msgspec.field(default=None, name="Allocatable")


class Prioritize(msgspec.Struct):
    task: volcano_wire.Task | None = None
    nodes: list[Node] | None = None


class Predicate(msgspec.Struct):
    task: volcano_wire.Task | None = None
    node: Node | None = None


class Event(msgspec.Struct):
    task: volcano_wire.Task | None = None


PROTOCOLS = {
    "filter": (Arguments, FILTER),
    "prioritize": (Arguments, FILTER),
    "volcano_prioritize": (Prioritize, PRIORITIZE),
    "volcano_predicate": (Predicate, PREDICATE),
    "volcano_allocate": (Event, EVENT),
    "volcano_deallocate": (Event, EVENT),
}


@pytest.fixture(scope="module")
def handlers():
    known = state.State(assume_seconds=30)
    for node in leaves(**{f"a{number}": 20 for number in range(25)}):
        known.cluster.upsert_node(node)
    chosen = policy(required=True, domains=[LEAF])
    return extending.Extender(known, lambda: chosen, clock=lambda: 0.0)


def answer(handlers, verb: str, body: bytes):
    """Return the answer of the port, which may be a refusal."""

    async def finish(reply):
        try:
            return await reply
        except decoding.MalformedError:
            return None

    handle = handlers.find("filter_nodes" if verb == "filter" else verb)
    try:
        reply = handle(body, "") if verb.startswith("volcano") else handle(body)
        reply = turns.run(reply) if inspect.isgenerator(reply) else reply
        return finish(reply) if inspect.isawaitable(reply) else reply
    except decoding.MalformedError:
        return None


def answer_now(handlers, verb: str, body: bytes) -> None:
    reply = answer(handlers, verb, body)
    if asyncio.iscoroutine(reply):
        asyncio.run(reply)


def list_rows(verb: str):
    """Yield the requests to try. In the short form, requests about a pod are tried with the filter only."""
    view, base = PROTOCOLS[verb]
    for row in cost_budget.list_objects(view, base, size=cost_budget.Size(ROOM)):
        field = row.title.split(":")[0]
        if cost_budget.IS_FULL or verb == "filter" or "Pod." not in field.title():
            yield row
    if verb == "filter":
        for row in cost_budget.sample(read_keys.list_pods(FILTER["Pod"], read_keys.list_keys()), 120):
            yield cost_budget.Row(row.title, lambda row=row: {**FILTER, "Pod": row.build()})


def list_pairs(verb: str):
    """Yield requests in which two lists or maps have many entries: in the short form, a sample of those about a pod."""
    view, base = PROTOCOLS[verb]
    rows = list(cost_budget.list_pairs(view, base, size=cost_budget.Size(ROOM)))
    return cost_budget.sample(rows, 40) or rows[:3]


FIRST = ("filter", "volcano_prioritize")  # the others decode the same objects, and do less with them


def choose(verb: str, rows):
    """Return all requests of the first verb that decodes an object, and a sample of those of the others."""
    rows = list(rows)
    return rows if verb in FIRST or not cost_budget.IS_FULL else cost_budget.thin(rows, 8)


@pytest.mark.parametrize("list_requests", [list_rows, list_pairs])
@pytest.mark.parametrize("verb", PROTOCOLS)
def test_no_request_costs_more_than_its_budget(verb, list_requests, handlers, monkeypatch):
    monkeypatch.setattr(cost_budget, "PARTS", PARTS)
    monkeypatch.setattr(
        cost_budget, "NUMBERS", cost_budget.NUMBERS if cost_budget.IS_FULL else (0, "9" * 100_000, 1e308)
    )
    answer_now(handlers, verb, json.dumps(PROTOCOLS[verb][1]).encode())
    problems, rows = [], 0
    for row in choose(verb, list_requests(verb)):
        rows, body = rows + 1, row.encode()
        began = time.thread_time()
        answer_now(handlers, verb, body)
        if time.thread_time() - began > cost_budget.STALL_SECONDS:  # measured again, and turn by turn
            cost = cost_budget.measure(lambda body=body: answer(handlers, verb, body), memory=False)
            if cost.stall > cost_budget.STALL_SECONDS or cost.total > cost_budget.TOTAL_SECONDS:
                problems.append(f"{row.title} ({len(body)} bytes): {cost.describe()}")
    assert rows > 2
    assert not problems, "\n".join(problems)


def repeat(part: str, count: int) -> str:
    return ",".join([part] * count)


NAMED = [f'{{"Name":"n{number}"}}' for number in range(200_000)]
TASK = json.dumps(PRIORITIZE["task"], separators=(",", ":"))
MANY = {
    "nodes without a name": ("volcano_prioritize", '{"task":' + TASK + ',"nodes":[' + repeat("{}", 1_000_000) + "]}"),
    "nodes": ("volcano_prioritize", '{"task":' + TASK + ',"nodes":[' + ",".join(NAMED) + "]}"),
    "containers": ("filter", '{"Pod":{"spec":{"containers":[' + repeat("{}", 700_000) + ']}},"NodeNames":[]}'),
    "names": ("filter", '{"Pod":{},"NodeNames":[' + repeat('"a"', 700_000) + "]}"),
    "values that are not read": ("filter", '{"x":[' + repeat("{}", 1_000_000) + '],"Pod":{},"NodeNames":[]}'),
    "fields of a session": ("volcano_close_session", "{" + ",".join(f'"{n}":1' for n in range(200_000)) + "}"),
    "resources": (
        "volcano_allocate",
        '{"task":{"InitResreq":{"ScalarResources":{' + ",".join(f'"{n}":1' for n in range(200_000)) + "}}}}",
    ),
}


@pytest.mark.parametrize("title", MANY)
def test_the_memory_for_many_small_values_is_a_small_multiple_of_the_request(title, handlers):
    verb, text = MANY[title]
    body = text.encode()
    cost = cost_budget.measure(lambda: answer(handlers, verb, body))
    assert cost.stall <= cost_budget.STALL_SECONDS, cost.describe()
    assert cost.total <= cost_budget.TOTAL_SECONDS, cost.describe()
    assert cost.peak <= 8 * len(body), f"{len(body)} bytes: {cost.describe()}"
    assert cost.retained <= cost_budget.RETAINED_BYTES, cost.describe()


def read_alone(tree: dict) -> volcano_wire.Nodes:
    """Read a node from a request that is not searched."""
    return volcano_wire.read_predicate(json.dumps({**PREDICATE, "node": tree}).encode())[1]


def build_large(nodes: int, size: int) -> tuple[bytes, list[str]]:
    """Return a request of Volcano with nodes of so many bytes, among them keys called Name that are none of a node."""
    template = json.dumps(
        {**PRIORITIZE["nodes"][0], "Name": "NAME", "Tasks": {"u": {"Name": "t", "x": [{"Name": "a"}, {"Name": "b"}]}}},
        separators=(",", ":"),
    )
    padded = template[:-1] + ',"Padding":"' + '},{\\"Name\\":' * (size // 12) + '"}'
    names = [f"n{number}" for number in range(nodes)]
    listed = ",".join(padded.replace("NAME", name) for name in names)
    return f'{{"task":{TASK},"nodes":[{listed}]}}'.encode(), names


@pytest.mark.parametrize(("nodes", "size"), [(300, 30_000), (3, 3 << 20), (2000, 2000)])
def test_reading_a_large_request_in_slices_gives_the_same_result(nodes, size):
    body, names = build_large(nodes, size)
    steps = volcano_wire.read_prioritize(body)
    turns_taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            task, read = end.value
            break
        turns_taken += 1
    assert turns_taken >= len(body) // (4 << 20)
    assert list(read) == names
    assert task.uid == PRIORITIZE["task"]["UID"]
    (whole,) = read_alone(PRIORITIZE["nodes"][0]).values()
    assert set(map(volcano_wire.decode_offer, read.values())) == {volcano_wire.decode_offer(whole)}


NESTED = {"u": {"Name": "t", "x": [{"Name": "a"}, {"Name": "b"}]}}
ODD = {
    "as Go writes it": {},
    "another key": {"Another": 1},
    "no object": {"Node": None},
    "no pods": {"Tasks": None},
    "an escaped name": {"Name": "\u00e9"},
    "a list with names": {"Tasks": NESTED},
    "long resources": {"Used": {"ScalarResources": {f"example.com/{number}": 1 for number in range(9000)}}},
}


ORDERS = {
    "pods before the state": ["Name", "Node", "Tasks", "Padding", "Idle", "State"],
    "pods before what is idle": ["Name", "Node", "State", "Tasks", "Idle", "Padding"],
}


def build_odd(title: str) -> tuple[list[dict], bytes]:
    """Return nodes of which some are written differently, and the request with them."""
    trees = [
        {**PRIORITIZE["nodes"][0], "Name": f"n{number}", "Idle": {"MilliCPU": number}, "Padding": '"},{' * 9000}
        for number in range(60)
    ]
    trees[40] = {"Name": "", "Node": {}} | trees[40] | ODD.get(title, {})
    if title in ORDERS:
        trees[20:41] = [{key: tree[key] for key in ORDERS[title]} for tree in trees[20:41]]
    return trees, json.dumps({"task": PRIORITIZE["task"], "nodes": trees}, separators=(",", ":")).encode()


@pytest.mark.parametrize("title", [*ODD, *ORDERS])
def test_nodes_are_read_alike_however_one_of_them_is_written(title):
    trees, body = build_odd(title)
    read = turns.complete(volcano_wire.read_prioritize(body))[1]
    whole = [item for tree in trees for item in read_alone(tree).items()]
    assert [(name, volcano_wire.decode_offer(amounts)) for name, amounts in read.items()] == [
        (name, volcano_wire.decode_offer(amounts)) for name, amounts in whole
    ]


def read(body: bytes, reader: volcano_wire.NodeReader | None = None) -> object:
    """Return the task and the texts of each node, or why the request is refused."""
    try:
        task, nodes = turns.complete(volcano_wire.read_prioritize(body, reader))
    except decoding.MalformedError as error:
        return str(error)
    return task, [(name, amounts.idle, amounts.allocatable) for name, amounts in nodes.items()]


def read_while_it_arrives(body: bytes, step: int) -> tuple[volcano_wire.NodeReader, object]:
    """Return the reader of a request that arrives in such steps, and what is read in the end."""
    reader, memory = volcano_wire.NodeReader(), mmap.mmap(-1, len(body))
    for size in [*range(step, len(body), step), len(body)]:
        memory[:size] = body[:size]
        reader.read(memory, size)
    return reader, read(memory, reader)


@pytest.mark.parametrize("step", [70_001, 1 << 20])
@pytest.mark.parametrize("title", [*ODD, *ORDERS])
def test_a_request_that_is_read_while_it_arrives_is_read_alike(title, step, monkeypatch):
    _, body = build_odd(title)
    whole = read(body)
    monkeypatch.setattr(volcano_wire, "_SLICE", 200_000)
    reader, result = read_while_it_arrives(body, step)
    assert result == whole
    assert len(reader.nodes) > 10, "most of it was read before its end arrived"


def test_small_nodes_are_not_read_while_they_arrive():
    """An event loop that receives them would wait too long."""
    body, names = build_large(2000, 2000)
    reader, (_, nodes) = read_while_it_arrives(body, 1 << 20)
    assert ([name for name, *_ in nodes], reader.nodes) == (names, [])


@pytest.mark.parametrize("damage", ["", "]", "}", '{"Name":"x"}', "]}}", '],"more":[{"Name":"x"}]}'])
def test_a_damaged_request_is_refused_alike_if_it_is_read_while_it_arrives(damage):
    body = build_large(100, 30_000)[0][:-2] + damage.encode()
    assert read_while_it_arrives(body, 1 << 20)[1] == read(body)


@pytest.mark.parametrize("left", range(-3, 4))
def test_a_node_near_the_limit_of_bytes_is_read_alike_while_it_arrives(left, monkeypatch):
    trees, _ = build_odd("")
    trees[30]["Padding"] *= 2
    nodes = [json.dumps(tree, separators=(",", ":")) for tree in trees]
    body = f'{{"task":{TASK},"nodes":[{",".join(nodes)}]}}'.encode()
    monkeypatch.setattr(volcano_wire, "_SLICE", 25_000)
    monkeypatch.setattr(volcano_wire, "_MAX_NODE", len(nodes[30]) + left)
    assert read_while_it_arrives(body, 30_000)[1] == read(body)


@pytest.mark.parametrize("most", [30, 58, 59])
def test_too_many_nodes_are_counted_alike_if_they_are_read_while_they_arrive(most, monkeypatch):
    _, body = build_odd("")
    monkeypatch.setattr(volcano_wire, "_SLICE", 200_000)
    monkeypatch.setattr(decoding, "MAX_NODES", most)
    reader, result = read_while_it_arrives(body, 400_000)
    assert result == read(body) == f"the request has 60 nodes: at most {most} are read"
    assert reader.nodes


@pytest.mark.parametrize("damage", ["", "]", "}", '{"Name":"x"}', "]}}", '],"more":[{"Name":"x"}]}'])
def test_a_large_request_with_a_damaged_end_is_refused(damage):
    body, _ = build_large(300, 30_000)
    if damage == '],"more":[{"Name":"x"}]}':
        assert len(turns.complete(volcano_wire.read_prioritize(body[:-2] + damage.encode()))[1]) == 300
        return
    with pytest.raises(decoding.MalformedError):
        turns.complete(volcano_wire.read_prioritize(body[:-2] + damage.encode()))


def test_requests_of_kube_scheduler_are_limited_by_names_and_those_of_volcano_by_nodes(handlers):
    names = json.dumps({"Pod": {}, "NodeNames": [str(number) for number in range(decoding.MAX_NODES + 1)]})
    with pytest.raises(decoding.MalformedError, match="NodeNames has 20001 names: at most 20000 are read"):
        handlers.kube.filter(names.encode())
    assert kube_scheduler.read_arguments(b'{"Pod":{},"NodeNames":["a"]}').nodes == ["a"]
