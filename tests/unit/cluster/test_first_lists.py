"""A first list whose objects are decoded several at once: the objects are those of a list that is read one by one."""

import json
import random

import exploration
import msgspec
import pytest

from railwright.cluster import errors, reflector, resources, watch_wire
from railwright.fabric import node_views

POD = resources.PLACED_PODS


class Client:
    """Serves these texts as the pages of a list."""

    host = "http://127.0.0.1"

    def __init__(self, pages: list[bytes]) -> None:
        self.pages = pages

    async def get(self, _path: str, query: dict[str, str]) -> bytes:
        return self.pages[int(query.get("continue", "0"))]


class Sink:
    def __init__(self) -> None:
        self.objects: list = []

    def upsert(self, obj) -> None:
        self.objects.append(obj)

    def replace(self, objects) -> None:
        self.objects = list(objects)


def build_page(items: list[str], number: int = 0, more: str = "", form: str = "") -> bytes:
    head = f'"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{7 + number}","continue":"{more}"}}'
    tail = f",{head}}}" if form == "items first" else f"{' ' * (form == 'spaces')}}}\n"
    head = "" if form == "items first" else f"{head},"
    return f'{{{head}"items":[{",".join(items)}]{tail}'.encode()


def build_item(chance: random.Random, number: int) -> str:
    metadata = {"name": f"p{number}", "namespace": "n", "uid": f"u{number}", "resourceVersion": "3"}
    tree: dict = {"metadata": metadata, "spec": {"nodeName": f"node{number % 3}"}, "status": {"phase": "Running"}}
    kind = chance.randrange(14)
    if kind == 0:  # looks like two items, inside of one
        tree["spec"]["x"] = [{"metadata": {"name": f"inner{row}"}} for row in range(chance.randrange(1, 400))]
    elif kind == 1:
        metadata["annotations"] = {"a": '},{"metadata":{' * chance.randrange(1, 900) + '"items":[]}'}
    elif kind == 2:
        metadata["labels"] = {"long": "x" * chance.choice((100, 14_000, 16_000, 40_000))}
    elif kind == 3:
        tree["spec"]["containers"] = [{"name": "c", "args": ["," * chance.choice((100, 20_000))]}]
    elif kind == 4:
        tree["spec"]["nodeName"] = 7  # cannot be decoded
    elif kind == 5:
        return chance.choice(("null", "7", '{"metadata":{}}'))
    elif kind == 6:
        tree["spec"]["deep"] = json.loads("[" * 300 + "]" * 300)
    return json.dumps(tree, separators=(",", ":"))


async def read_list(pages: list[bytes], monkeypatch, *, at_once: bool) -> tuple:
    """Return what a first list gives: the objects, how many were skipped, and the error or the list's version."""
    if not at_once:
        monkeypatch.setattr(watch_wire, "open_page", watch_wire.decode_list)
    sink, skipped = Sink(), []
    reading = reflector.Reflector(Client(pages), POD, sink, excerpt=resources.scheduling_views.complete, gradual=True)
    reading._skipped = skipped.append
    try:
        end = await reading._list()
    except (errors.ForeignError, msgspec.MsgspecError) as error:
        end = type(error)
    monkeypatch.undo()
    return sink.objects, len(skipped), end


@pytest.mark.parametrize("seed", range(exploration.choose(8, 200)))
async def test_objects_are_those_of_a_list_that_is_read_one_by_one(seed, monkeypatch):
    chance = random.Random(seed)  # noqa: S311 - the same cases every time
    numbers = iter(range(10_000))
    lists = [[build_item(chance, next(numbers)) for _ in range(chance.choice((0, 1, 5, 60)))] for _ in range(3)]
    form = chance.choice(("", "", "", "spaces", "items first"))
    pages = [build_page(items, page, "" if page == 2 else str(page + 1), form) for page, items in enumerate(lists)]
    one_by_one = await read_list(pages, monkeypatch, at_once=False)
    assert await read_list(pages, monkeypatch, at_once=True) == one_by_one


async def test_pods_that_can_be_decoded_are_decoded_several_at_once(monkeypatch):
    """No object is searched for in its page first."""
    items = [json.dumps({"metadata": {"name": f"p{number}"}}, separators=(",", ":")) for number in range(900)]
    monkeypatch.setattr(reflector.Reflector, "_read", None)
    objects, skipped, _ = await read_list([build_page(items)], monkeypatch, at_once=True)
    assert ([pod.metadata.name for pod in objects], skipped) == ([f"p{number}" for number in range(900)], 0)


@pytest.mark.parametrize("broken", ["}", ']},"metadata":{}', "]", '"'])
async def test_a_page_that_is_no_json_is_no_list(broken, monkeypatch):
    page = build_page(['{"metadata":{"name":"a"}}'])
    text = page.replace(b'"a"}}', b'"a"}}' + broken.encode())
    assert (await read_list([text], monkeypatch, at_once=True))[2] is errors.ForeignError


def test_parts_of_a_page_are_of_whole_objects():
    node = '{"metadata":{"name":"a"},"status":{}}'
    page = watch_wire.open_page(build_page([node] * 50))
    assert isinstance(page, watch_wire.Text)
    parts = [msgspec.json.decode(part, type=list[node_views.Node]) for part in page.split(100)]
    assert [len(part) for part in parts] == [2] * 25


def test_a_page_that_ends_with_another_list_keeps_its_version():
    page = watch_wire.open_page(b'{"items":[{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"7"},"x":[]}')
    assert (page.metadata.resource_version, len(page.items)) == ("7", 1)
