"""Large requests of Volcano are read in slices, with the same result as in one read."""

import json

import coroutines
import extending
import pytest

from extender import decoding, kube_scheduler, volcano_wire

PRIORITIZE = extending.build_prioritize("gpu-0")
TASK = json.dumps(PRIORITIZE["task"], separators=(",", ":"))


def read(body: bytes) -> tuple[volcano_wire.Task, list[str]]:
    return coroutines.complete(volcano_wire.read_prioritize(body))


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


@pytest.mark.parametrize(("nodes", "size"), [(300, 30_000), (3, 3 << 20), (2000, 2000)])
def test_reading_a_large_request_in_slices_gives_the_same_result(nodes, size):
    body, names = build_large(nodes, size)
    task, nodes_read = read(body)
    assert nodes_read == names
    assert task.uid == PRIORITIZE["task"]["UID"]
    assert read(bytearray(body))[1] == names, "as it is received"


def build_numbered() -> bytes:
    trees = [{**PRIORITIZE["nodes"][0], "Name": f"n{number}", "Padding": '"},{' * 9000} for number in range(60)]
    return json.dumps({"task": PRIORITIZE["task"], "nodes": trees}, separators=(",", ":")).encode()


@pytest.mark.parametrize("most", [30, 58, 59])
def test_the_nodes_of_a_large_request_are_counted(most, monkeypatch):
    monkeypatch.setattr(decoding, "MAX_NODES", most)
    with pytest.raises(decoding.MalformedError, match=f"nodes: at most {most} are read"):
        read(build_numbered())


@pytest.mark.parametrize("damage", ["", "]", "}", '{"Name":"x"}', "]}}", '],"more":[{"Name":"x"}]}'])
def test_a_large_request_with_a_damaged_end_is_refused(damage):
    body, _ = build_large(300, 30_000)
    if damage == '],"more":[{"Name":"x"}]}':
        assert len(read(body[:-2] + damage.encode())[1]) == 300
        return
    with pytest.raises(decoding.MalformedError):
        read(body[:-2] + damage.encode())


def test_requests_of_kube_scheduler_are_limited_by_names():
    names = json.dumps({"Pod": {}, "NodeNames": [str(number) for number in range(decoding.MAX_NODES + 1)]})
    with pytest.raises(decoding.MalformedError, match="NodeNames has 20001 names: at most 20000 are read"):
        kube_scheduler.read_arguments(names.encode())
    assert kube_scheduler.read_arguments(b'{"Pod":{},"NodeNames":["a"]}').nodes == ["a"]
