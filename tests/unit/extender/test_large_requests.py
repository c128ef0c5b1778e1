"""Large requests of Volcano are read in slices, also while they arrive, as one that is read at once."""

import json
import mmap

import pytest
import tables
from admitting import WIRE

from extender import decoding, kube_scheduler, volcano_wire
from railwright.serving import turns

PRIORITIZE = json.loads((WIRE / "volcano-prioritize.json").read_bytes())
PREDICATE = {"task": PRIORITIZE["task"], "node": PRIORITIZE["nodes"][0]}
TASK = json.dumps(PRIORITIZE["task"], separators=(",", ":"))


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


@pytest.mark.parametrize(("title", "step"), tables.pair([*ODD, *ORDERS], [70_001, 1 << 20]))
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


def test_requests_of_kube_scheduler_are_limited_by_names():
    names = json.dumps({"Pod": {}, "NodeNames": [str(number) for number in range(decoding.MAX_NODES + 1)]})
    with pytest.raises(decoding.MalformedError, match="NodeNames has 20001 names: at most 20000 are read"):
        kube_scheduler.read_arguments(names.encode())
    assert kube_scheduler.read_arguments(b'{"Pod":{},"NodeNames":["a"]}').nodes == ["a"]
