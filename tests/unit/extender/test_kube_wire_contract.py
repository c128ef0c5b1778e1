"""kube-scheduler's captured requests, with changes that a new release or an error could make."""

import copy
import json

import extending
import placing
import pytest
from admitting import WIRE
from hypothesis import given
from hypothesis import strategies as st

from extender import decoding

BODIES = {
    verb: json.loads((WIRE / "kube-scheduler.json").read_bytes()) for verb in ("filter", "prioritize")
}  # the same body
# Objects whose keys are names that users choose: a new key there is no unknown field.
FREE = {"labels", "annotations", "limits", "requests", "nodeSelector", "fieldsV1"}
# What Go writes as null where it is empty: maps, slices, pointers, and times.
NULLABLE = {
    *("creationTimestamp", "labels", "annotations", "ownerReferences", "managedFields", "finalizers", "volumes"),
    *("limits", "requests", "volumeMounts", "tolerations", "securityContext", "env", "ports", "affinity", "Nodes"),
    *("nodeSelector", "initContainers", "controller", "priority", "defaultMode", "sources", "items"),
}
UNKNOWN = st.from_regex(r"[a-z]{3,8}Future[A-Z][a-z]{2,8}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
verbs = pytest.mark.parametrize("verb", BODIES)


@pytest.fixture(scope="module")
def site():
    """Return an extender with eight nodes: the seventh is busy, the eighth has a broken rail."""
    nodes = [placing.build_node(f"gpu-{index}", f"leaf-{index // 3}") for index in range(8)]
    nodes[7] = placing.mark_broken(nodes[7], "rail0")
    site = extending.Site(nodes, [placing.build_pod("holder", on="gpu-6", gpus=0)], placing.build_policy())
    site.state.apply_policy(site.policy)
    return site


def list_places(tree: object, path: tuple = ()) -> list[tuple]:
    """Return the path of every value below a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in items for place in ((*path, key), *list_places(value, (*path, key)))]


def get_at(tree: object, path: tuple) -> object:
    for key in path:
        tree = tree[key]
    return tree


PLACES = {verb: list_places(body) for verb, body in BODIES.items()}
STRUCTS = {  # objects whose keys are fields
    verb: [
        path for path in ((), *PLACES[verb]) if isinstance(get_at(body, path), dict) and FREE.isdisjoint(map(str, path))
    ]
    for verb, body in BODIES.items()
}


def assert_usable(verb: str, tree: dict, answer: object) -> None:
    """Assert that kube-scheduler can use the answer."""
    if verb == "prioritize":
        assert {row["Host"] for row in answer} == set(tree["NodeNames"])
        assert all(type(row["Score"]) is int and 0 <= row["Score"] <= 10 for row in answer)
        return
    refused = [*answer["FailedNodes"].items(), *answer["FailedAndUnresolvableNodes"].items()]
    assert sorted([*answer["NodeNames"], *(name for name, _ in refused)]) == sorted(set(tree["NodeNames"]))
    assert answer["Error"] == ""
    assert all(isinstance(reason, str) and reason for _, reason in refused)


def test_requests_captured_from_kube_scheduler_are_answered(site):
    answer = site.ask_kube("filter", BODIES["filter"])
    assert answer["NodeNames"] == [f"gpu-{index}" for index in range(7)]
    assert (answer["FailedNodes"], list(answer["FailedAndUnresolvableNodes"])) == ({}, ["gpu-7"])
    assert max(row["Score"] for row in site.ask_kube("prioritize", BODIES["prioritize"])) == 10


@verbs
@given(data=st.data())
def test_unknown_fields_of_a_later_kubernetes_do_not_change_the_answer(site, verb, data):
    tree = copy.deepcopy(BODIES[verb])
    for path in data.draw(st.lists(st.sampled_from(STRUCTS[verb]), min_size=1, max_size=6)):
        get_at(tree, path)[data.draw(UNKNOWN)] = data.draw(VALUES)
    assert site.ask_kube(verb, tree) == site.ask_kube(verb, BODIES[verb])


@verbs
@given(data=st.data())
def test_only_nodes_of_the_request_are_in_the_answer(site, verb, data):
    known = st.sampled_from([f"gpu-{index}" for index in range(8)])
    tree = {**BODIES[verb], "NodeNames": data.draw(st.lists(known | st.text(max_size=300), max_size=12))}
    assert_usable(verb, tree, site.ask_kube(verb, tree))


@verbs
@given(data=st.data())
def test_empty_lists_and_maps_of_go_may_be_null(site, verb, data):
    tree = copy.deepcopy(BODIES[verb])
    emptied = [path for path in PLACES[verb] if path[-1] in NULLABLE]
    for path in data.draw(st.sets(st.sampled_from(emptied), min_size=1, max_size=6)):
        if path in list_places(tree):  # not below one that is null by now
            get_at(tree, path[:-1])[path[-1]] = None
    assert_usable(verb, tree, site.ask_kube(verb, tree))


@verbs
@given(data=st.data())
def test_a_request_with_any_json_value_is_answered_or_refused_with_a_reason(site, verb, data):
    tree = copy.deepcopy(BODIES[verb])
    path = data.draw(st.sampled_from([path for path in PLACES[verb] if path[0] != "NodeNames"]))
    get_at(tree, path[:-1])[path[-1]] = data.draw(VALUES)
    try:
        answer = site.ask_kube(verb, tree)
    except decoding.MalformedError as error:
        reason = str(error)
        assert reason
    else:
        assert_usable(verb, tree, answer)


def test_requests_about_unknown_pods_leave_no_state(site):
    def ask(number: int, group: str, skipped: int) -> list[object]:
        tree = copy.deepcopy(BODIES["filter"])
        tree["Pod"]["metadata"] |= {"name": f"{group}-{number}", "uid": f"{group}-{number}"}
        tree["Pod"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group
        tree["NodeNames"] = tree["NodeNames"][skipped:]  # as a scheduler's dry runs hold nodes back
        return [site.ask_kube(verb, tree) for verb in BODIES]

    before = ask(0, "first", 0)
    for number in range(60):
        ask(number, f"job-{number % 7}", number % 5)
    assert len(site.state.assumed) == 0
    assert ask(0, "first", 0) == before
