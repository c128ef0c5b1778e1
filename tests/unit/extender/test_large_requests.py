"""Large requests of Volcano are searched while they arrive, with the same result as those that are decoded."""

import json

import extending
import pytest

from extender import decoding, kube_scheduler, volcano

PRIORITIZE = extending.build_prioritize("gpu-0")
TASK = json.dumps(PRIORITIZE["task"], separators=(",", ":"))


def read_in_parts(body: bytes, size: int = 256_000) -> tuple[volcano.Task, list[str]]:
    """Return the result of a body that arrives in parts of this size."""
    received = volcano.PrioritizeBody()
    for start in range(0, len(body), size):
        received.extend(body[start : start + size])
    return received.read_task_and_nodes()


def build_large(nodes: int, size: int) -> tuple[bytes, list[str]]:
    """Return a request of Volcano with nodes of `size` bytes, with keys Name inside other objects of the nodes."""
    template = json.dumps(
        {**PRIORITIZE["nodes"][0], "Name": "NAME", "Tasks": {"u": {"Name": "t", "x": [{"Name": "a"}, {"Name": "b"}]}}},
        separators=(",", ":"),
    )
    padded = template[:-1] + ',"Padding":"' + '},{\\"Name\\":' * (size // 12) + '"}'
    names = [f"n{number}" for number in range(nodes)]
    listed = ",".join(padded.replace("NAME", name) for name in names)
    return f'{{"task":{TASK},"nodes":[{listed}]}}'.encode(), names


@pytest.mark.parametrize("part", [7, 1000, 256_000, 1 << 30])
@pytest.mark.parametrize(("nodes", "size"), [(40, 500), (300, 3000), (2, 300_000)])
def test_node_names_of_a_large_request_are_found_however_it_is_split(nodes, size, part):
    body, names = build_large(nodes, size)
    task, nodes_read = read_in_parts(body, part)
    assert nodes_read == names
    assert task.uid == PRIORITIZE["task"]["UID"]


def test_only_the_node_names_of_a_large_request_are_kept():
    body, names = build_large(300, 30_000)
    received = volcano.PrioritizeBody()
    for start in range(0, len(body), 50_000):
        received.extend(body[start : start + 50_000])
        assert len(received) < 200_000
    assert received.read_task_and_nodes()[1] == names


def test_kept_node_names_count_towards_the_size_limit_of_a_request():
    received = volcano.PrioritizeBody()
    listed = ",".join(f'{{"Name":"{number:0253}","Node":{{}}}}' for number in range(10_000))
    received.extend(f'{{"task":{TASK},"nodes":[{listed}]}}'.encode())
    counted = len(received)
    assert counted > 10_000 * 253
    received.read_task_and_nodes()
    assert len(received) == counted, "the server subtracts at the end what it has added"


def build_numbered() -> bytes:
    trees = [{**PRIORITIZE["nodes"][0], "Name": f"n{number}", "Padding": '"},{' * 9000} for number in range(60)]
    return json.dumps({"task": PRIORITIZE["task"], "nodes": trees}, separators=(",", ":")).encode()


@pytest.mark.parametrize("most", [30, 58, 59])
def test_a_large_request_with_too_many_nodes_is_refused(most, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_NODES", most)
    with pytest.raises(decoding.MalformedError, match=f"nodes: at most {most} are allowed"):
        read_in_parts(build_numbered())


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (b'"task":', b'"work":', "task is missing"),
        (b',"nodes":[', b',"nodes": [', "nodes right after task"),
        (b'{"Name":"', b'{ "Name":"', "no node begins with Name and Node"),
        (b'","Node":', b'","Knot":', "no node begins with Name and Node"),
        (b'"Name":"n3"', b'"Name":"n\xff"', "not the expected JSON"),
        (TASK.encode(), TASK.encode()[1:], "not the expected JSON"),
    ],
)
def test_a_large_request_in_an_unexpected_form_is_refused(before, after, reason):
    body, _ = build_large(300, 30_000)
    with pytest.raises(decoding.MalformedError, match=reason):
        read_in_parts(body.replace(before, after))


def test_a_request_of_kube_scheduler_with_too_many_node_names_is_refused():
    names = json.dumps({"Pod": {}, "NodeNames": [str(number) for number in range(decoding.MAX_NODES + 1)]})
    with pytest.raises(decoding.MalformedError, match="NodeNames has 20001 names: at most 20000 are allowed"):
        kube_scheduler.read_arguments(names.encode())
    assert kube_scheduler.read_arguments(b'{"Pod":{},"NodeNames":["a"]}').nodes == ["a"]
