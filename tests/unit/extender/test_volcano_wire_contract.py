"""Volcano's bodies as it sends them, with fields we do not know and with null where Go may send it."""

import copy
import math
from collections.abc import Iterator

import extending
from hypothesis import given
from hypothesis import strategies as st
from placing import build_node

PREDICATE, NAMES = extending.PREDICATE, ["gpu-0", "gpu-5", "gpu-6"]
PRIORITIZE, EVENT = extending.build_prioritize(*NAMES), extending.build_event("gpu-5")
Path_ = tuple[str | int, ...]
# Maps of Go: a name in them is data, not a field; to add one is another matter.
MAPS = {"labels", "annotations", "PodAnnotations", "ScalarResources", "requests", "limits", "allocatable", "capacity"}
# Structs that v1.Pod and the protocol hold by value: Go has no null for them. A list's elements are none either.
BY_VALUE = {("Pod", "metadata"), ("Pod", "spec"), ("Pod", "status")}
BY_VALUE |= {("task",), ("node",), ("nodes",)}
BY_VALUE |= {("containers", "resources"), ("containers", "securityContext")}


def list_places(tree: object, at: Path_ = ()) -> Iterator[tuple[Path_, object]]:
    """Yield every object and list below a body, with its path."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        if isinstance(child, (dict, list)):
            yield (*at, key), child
            yield from list_places(child, (*at, key))


def list_nullable(tree: object) -> list[Path_]:
    """Return the fields in which Go writes nil as null: maps, slices and pointers."""
    paths = []
    for path, _ in list_places(tree):
        named = tuple(key for key in path if isinstance(key, str))
        if isinstance(path[-1], str) and named[-2:] not in BY_VALUE and named not in BY_VALUE:
            paths.append(path)
    return paths


def set_null(tree: dict, paths: set[Path_]) -> dict:
    """Return the body with null at these paths. Paths inside another one are dropped with it."""
    changed = copy.deepcopy(tree)
    for path in paths:
        inner = changed
        for key in path[:-1]:
            inner = inner[key] if inner is not None else None
        if inner is not None:
            inner[path[-1]] = None
    return changed


def add_field(tree: object, field: str, value: object) -> object:
    """Return the body with an unknown field added to every object that is not a map."""
    if isinstance(tree, list):
        return [add_field(item, field, value) for item in tree]
    if not isinstance(tree, dict):
        return tree
    more = {key: child if key in MAPS else add_field(child, field, value) for key, child in tree.items()}
    return {**more, field: value}


class Handlers(extending.Site):
    """The eight captured nodes in two leaves, all free, and the captured pod."""

    def __init__(self) -> None:
        super().__init__(
            [build_node(f"gpu-{i}", f"leaf-{i // 4}", rails_each=100) for i in range(8)], [extending.WAITING]
        )

    def prioritize(self, body: object) -> dict:
        return self.ask_volcano("prioritize", body)

    def predicate(self, body: object) -> dict:
        return self.ask_volcano("predicate", body)


def some_of(tree: object) -> st.SearchStrategy[set[Path_]]:
    return st.sets(st.sampled_from(list_nullable(tree)), min_size=1, max_size=8)


unknown = st.tuples(
    st.sampled_from(["ZNew", "zNew", "uid2", "résumé", "Name2", "TASK", "x" * 300]),
    st.sampled_from([None, True, -1, 1e308, "", "text", [], [None], {}, {"Name": "gpu-0", "deep": [{"task": {}}]}]),
)


def assert_scored(answer: dict) -> None:
    """Assert that the answer has the fields that Volcano reads, for exactly the requested nodes."""
    assert set(answer) == {"nodeScore", "errorMessage"}
    assert answer["errorMessage"] == ""
    assert list(answer["nodeScore"]) == NAMES
    assert all(math.isfinite(score) and 0 <= score <= 1000 for score in answer["nodeScore"].values())


@given(field=unknown)
def test_unknown_fields_of_volcano_do_not_change_the_answer(field):
    assert Handlers().prioritize(add_field(PRIORITIZE, *field)) == Handlers().prioritize(PRIORITIZE)
    assert Handlers().predicate(add_field(PREDICATE, *field)) == Handlers().predicate(PREDICATE)
    handlers, plain = Handlers(), Handlers()
    for verb in ("allocate", "deallocate"):
        assert handlers.ask_volcano(verb, add_field(EVENT, *field)) == plain.ask_volcano(verb, EVENT)
        assert list(handlers.state.assumed) == list(plain.state.assumed)
    assert handlers.ask_volcano("close_session", add_field({}, *field)) == {}


@given(paths=some_of(PRIORITIZE))
def test_scores_cover_exactly_the_requested_nodes_with_any_field_null(paths):
    assert_scored(Handlers().prioritize(set_null(PRIORITIZE, paths)))


@given(paths=some_of(PREDICATE))
def test_a_predicate_never_refuses_a_free_node(paths):
    answer = Handlers().predicate(set_null(PREDICATE, paths))
    assert set(answer) == {"status", "code"}
    assert (answer["code"] == 0) == (answer["status"] == "")
    assert answer["code"] == 0


@given(paths=some_of(EVENT))
def test_a_pod_is_assumed_and_forgotten_with_any_field_null(paths):
    handlers, body = Handlers(), set_null(EVENT, paths)
    for _ in range(2):
        assert handlers.ask_volcano("allocate", body) == {"errorMessage": ""}
    ((uid, place),) = [(entry.uid, entry.node) for entry in handlers.state.assumed]
    assert (uid, place) == (EVENT["task"]["UID"], EVENT["task"]["NodeName"])
    for _ in range(2):
        assert handlers.ask_volcano("deallocate", body) == {"errorMessage": ""}
    assert not list(handlers.state.assumed)
