"""Domains of nodes by labels and HyperNodes, and the distances between nodes, also with missing labels."""

import itertools

import call_counts
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import hypernodes, node_views, topology
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import compiled, model

KEYS = ("leaf", "spine", "core")
VALUES = st.sampled_from(["", "a", "b"])
PLACES = st.tuples(VALUES, VALUES, VALUES)


@given(PLACES, PLACES, PLACES)
def test_the_two_largest_distances_among_three_nodes_are_equal_as_in_a_tree(one, two, three):
    """Domains are a tree: the largest of the three distances occurs twice."""
    distances = sorted(topology.compute_distance(*pair) for pair in itertools.combinations((one, two, three), 2))
    assert distances[1] == distances[2]


@given(PLACES, PLACES)
def test_the_distance_is_the_lowest_level_with_a_shared_domain(one, other):
    shared = [
        level
        for level in range(len(KEYS))
        if topology.get_domain(one, level) != topology.NO_DOMAIN
        and topology.get_domain(one, level) == topology.get_domain(other, level)
    ]
    assert topology.compute_distance(one, other) == min(shared, default=len(KEYS))


def test_a_node_without_a_leaf_label_is_below_its_spine():
    one, other = ("", "s", "c"), ("a", "s", "c")
    assert topology.get_domain(one) == topology.NO_DOMAIN
    assert topology.compute_distance(one, other) == 1
    assert topology.compute_distance(one, one) == 1, "two such nodes need not be on one leaf"


RAILS = ("rail0", "rail1")


@given(st.lists(VALUES, min_size=4, max_size=4))
def test_nodes_share_a_domain_with_the_rail_placeholder_only_if_they_share_it_for_all_rails(values):
    def place(leaves):
        labels = {f"leaf-{rail}": leaf for rail, leaf in zip(RAILS, leaves, strict=True) if leaf}
        return topology.read_domains(labels, ("leaf-{rail}",), RAILS)

    one, other = values[:2], values[2:]
    assert (topology.compute_distance(place(one), place(other)) == 0) == (one == other and any(one))


def test_a_node_without_labels_has_no_domain():
    assert topology.read_domains({"leaf-rail1": "b"}, ("leaf-{rail}",), RAILS) == ("-+b",)
    assert topology.read_domains({}, ("leaf-{rail}",), RAILS) == ("",)


def test_a_placeholder_label_value_is_not_a_domain():
    labels = {"leaf": "no-imds-data", "spine": "s1"}
    assert topology.read_domains(labels, ["leaf", "spine", "block"]) == ("", "s1", "")
    assert topology.get_domain(topology.read_domains(labels, ["leaf", "spine"])) == topology.NO_DOMAIN
    assert topology.read_domains({"leaf-a": "no-imds-data", "leaf-b": "l1"}, ["leaf-{rail}"], ["a", "b"]) == ("-+l1",)


# --- HyperNodes: the tree that they form, and invalid ones ----------------------------------------------------


DOMAINS = compiled.list_domain_keys(model.Placement(preset="volcano"))


def build_hyper_node(name: str, tier: int, *members: dict) -> hypernodes.HyperNode:
    tree = {"metadata": {"name": name}, "spec": {"tier": tier, "members": list(members)}}
    return msgspec.convert(tree, hypernodes.HyperNode)


def list_node_members(*names: str) -> list[dict]:
    return [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]


def list_hyper_members(*names: str) -> list[dict]:
    return [{"type": "HyperNode", "selector": {"exactMatch": {"name": name}}} for name in names]


def build_state(objects, labels=None) -> cluster_state.ClusterState:
    state = cluster_state.ClusterState()
    for name in ("n0", "n1", "n2", "n3"):
        tree = {"metadata": {"name": name, "labels": (labels or {}).get(name, {})}}
        state.upsert_node(msgspec.convert(tree, node_views.Node))
    state.hyper_nodes.replace(objects)
    return state


def places(state: cluster_state.ClusterState) -> dict[str, tuple[str, ...]]:
    places = {name: state.locate_node(node, DOMAINS) for name, node in state.nodes.items()}
    assert all(len(place) == len(DOMAINS) for place in places.values())
    return {name: tuple("/".join(place).rstrip("/").split("/")) for name, place in places.items()}


def find_problems(state):
    return state.hyper_nodes.find_problems({name: known.labels for name, known in state.nodes.items()})


TREE = [
    build_hyper_node("s0", 2, *list_hyper_members("l0", "l1")),
    build_hyper_node("l0", 1, *list_node_members("n0", "n1")),
    build_hyper_node("l1", 1, {"type": "Node", "selector": {"regexMatch": {"pattern": "^n2$"}}}),
    build_hyper_node("root", 3, *list_hyper_members("s0")),
]


def test_domains_are_hypernodes_from_the_lowest_tier_up():
    state = build_state(TREE)
    assert places(state) == {
        "n0": ("l0", "s0", "root"),
        "n1": ("l0", "s0", "root"),
        "n2": ("l1", "s0", "root"),
        "n3": ("",),
    }
    assert find_problems(state) == ()
    near, far = (state.locate_node(state.nodes[name], DOMAINS) for name in ("n0", "n2"))
    assert topology.compute_distance(near, far) == 1


def test_nodes_change_their_hypernode_when_their_labels_change():
    match = {"matchLabels": {"rack": "a"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    rack = build_hyper_node("rack-a", 1, {"type": "Node", "selector": {"labelMatch": match}})
    state = build_state([rack], {"n0": {"rack": "a"}, "n1": {"rack": "a", "old": "1"}})
    assert [name for name, place in places(state).items() if place == ("rack-a",)] == ["n0"]
    moved = {"metadata": {"name": "n1", "labels": {"rack": "a"}}}
    state.upsert_node(msgspec.convert(moved, node_views.Node))
    assert [name for name, place in places(state).items() if place == ("rack-a",)] == ["n0", "n1"]


def test_an_empty_label_selector_selects_nothing_as_in_volcano():
    state = build_state([build_hyper_node("all", 1, {"type": "Node", "selector": {"labelMatch": {}}})])
    assert set(places(state).values()) == {("",)}


def test_a_pattern_is_compiled_once_even_with_more_patterns_than_python_caches():
    """Python's own cache has 512 patterns, and compiling one takes some hundred times as long as a comparison."""

    def count_calls(patterns: int) -> int:
        selectors = ({"regexMatch": {"pattern": f"^rack-{number}-"}} for number in range(patterns))
        racks = [build_hyper_node(f"r{at}", 1, {"type": "Node", "selector": row}) for at, row in enumerate(selectors)]
        state = build_state(racks)
        places(state)
        state.hyper_nodes.forget_node("n0")
        return call_counts.count(lambda: places(state))

    assert count_calls(1000) < 3 * count_calls(500)


PARENTS = [
    build_hyper_node("l0", 1, *list_node_members("n0")),
    build_hyper_node("s1", 2, *list_hyper_members("l0")),
    build_hyper_node("s0", 2, *list_hyper_members("l0")),
]
LEAVES = [
    build_hyper_node("l1", 1, *list_node_members("n0", "n1")),
    build_hyper_node("l0", 1, *list_node_members("n0")),
]
SPARSE = [
    build_hyper_node("leaf", 0, *list_node_members("n0")),
    build_hyper_node("spine", 20, *list_hyper_members("leaf"), *list_node_members("n1")),
]
ANCESTORS = [*TREE[:3], build_hyper_node("root", 3, *list_hyper_members("l0", "s0"), *list_node_members("n0"))]


@pytest.mark.parametrize(
    ("objects", "expected", "problems"),
    [
        (SPARSE, {"n0": ("leaf", "spine"), "n1": ("", "spine")}, ()),
        (PARENTS, {"n0": ("l0", "s0")}, ("HyperNode l0 is a member of s0 and of s1; s0 is used: remove it from s1",)),
        (
            LEAVES,
            {"n0": ("l0",), "n1": ("l1",)},
            ("node n0 is a member of the HyperNodes l0 and l1; l0 is used: remove it from l1",),
        ),
        (ANCESTORS, {"n0": ("l0", "s0", "root")}, ()),
    ],
    ids=["the lowest tier is level 1, whatever its number", "a second parent", "two leaves", "a member of an ancestor"],
)
def test_a_node_is_in_one_hypernode_of_each_tier(objects, expected, problems):
    state = build_state(objects)
    assert {name: places(state)[name] for name in expected} == expected
    assert find_problems(state) == problems


def test_invalid_members_of_a_hypernode_are_left_out_and_reported():
    bad = [
        build_hyper_node("a", 1, *list_hyper_members("b"), *list_node_members("n0", "gone")),
        build_hyper_node("b", 1, *list_hyper_members("a")),
        build_hyper_node(
            "c", 2, *list_hyper_members("nobody"), {"type": "Node", "selector": {"regexMatch": {"pattern": "("}}}
        ),
        build_hyper_node(
            "d", 2, {"type": "Node", "selector": {"labelMatch": {"matchExpressions": [{"key": "k", "operator": "~"}]}}}
        ),
        build_hyper_node("e", 2, {"type": "Node"}, {"type": "Node", "selector": {}}),
        build_hyper_node("f", 2, {"type": "HyperNode", "selector": {"regexMatch": {"pattern": "a"}}}),
    ]
    state = build_state(bad)
    assert places(state)["n0"] == ("a",)
    problems = "\n".join(find_problems(state))
    for part in (
        "HyperNode a of tier 1 has the member b of tier 1, which is ignored",
        "HyperNode b of tier 1 has the member a of tier 1, which is ignored",
        "HyperNode c has the member nobody, which does not exist",
        "HyperNode c has the invalid pattern '('",
        "HyperNode d has an invalid labelMatch, so it matches nothing",
        "HyperNode a has the member gone, but there is no such node",
        "HyperNode f selects HyperNodes by a pattern or labels, which Volcano ignores",
    ):
        assert part in problems


def test_tiers_above_the_supported_levels_are_ignored_and_reported():
    chain = [
        build_hyper_node("t0", 0, *list_node_members("n0")),
        *(build_hyper_node(f"t{i}", i, *list_hyper_members(f"t{i - 1}")) for i in range(1, 10)),
    ]
    state = build_state(chain)
    assert places(state)["n0"] == tuple(f"t{i}" for i in range(8))
    assert find_problems(state) == (
        "HyperNodes have 10 tiers, but only 8 are supported; those from tier 8 upwards are ignored",
    )


def test_an_unchanged_hypernode_does_not_change_the_version_of_the_cluster_state():
    state = build_state(TREE)
    before = state.version
    state.hyper_nodes.upsert(TREE[0])
    state.hyper_nodes.replace(list(reversed(TREE)))
    state.hyper_nodes.remove(build_hyper_node("never", 1))
    assert state.version == before
    state.hyper_nodes.remove(TREE[0])
    assert state.version > before
    assert places(state)["n0"] == ("l0",)


@st.composite
def draw_trees(draw):
    """Draw HyperNodes of any tier with any members, also themselves."""
    names = [f"h{i}" for i in range(draw(st.integers(0, 6)))]
    known = st.sampled_from([*names, "nobody", "n0", "n1", "n9"])
    selectors = st.one_of(
        known.map(lambda name: {"exactMatch": {"name": name}}),
        st.sampled_from(["h", "^h[0-3]", "n", "(", ""]).map(lambda pattern: {"regexMatch": {"pattern": pattern}}),
        st.sampled_from(["a", "b"]).map(lambda label: {"labelMatch": {"matchLabels": {"rack": label}}}),
        st.just({}),
    )
    member = st.fixed_dictionaries({"type": st.sampled_from(["Node", "HyperNode", "?"]), "selector": selectors})
    return [build_hyper_node(name, draw(st.integers(0, 3)), *draw(st.lists(member, max_size=4))) for name in names]


@given(draw_trees(), st.permutations(range(6)))
def test_domains_do_not_depend_on_the_order_of_hypernode_events(objects, order):
    labels = {"n0": {"rack": "a"}, "n1": {"rack": "b"}}
    state, other = build_state(objects, labels), build_state([], labels)
    for at in order:
        if at < len(objects):
            places(other)  # grown in between, too
            other.hyper_nodes.upsert(objects[at])
    assert places(state) == places(other)
    assert set(find_problems(state)) == set(find_problems(other))
    tier = {item.metadata.name: item.spec.tier for item in objects}
    for place in places(state).values():
        filled = [part for part in place if part]
        assert len(set(filled)) == len(filled)
        assert sorted(filled, key=tier.__getitem__) == filled
