"""Domains of nodes and the distances between nodes, with any labels missing."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import topology

KEYS = ("leaf", "spine", "core")
VALUES = st.sampled_from(["", "a", "b"])
PLACES = st.tuples(VALUES, VALUES, VALUES)


@given(PLACES, PLACES, PLACES)
def test_of_three_distances_the_two_largest_are_equal(one, two, three):
    """Domains are a tree: of the three distances the largest comes twice."""
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


def test_a_missing_middle_label_is_skipped_on_the_way_up():
    one, other = ("a", "", "c"), ("b", "", "c")
    assert topology.compute_distance(one, other) == 2
    assert topology.compute_distance(one, one) == 0
    assert topology.format_domain(topology.get_domain(one)) == "a in c"


def test_a_node_without_a_leaf_label_is_below_its_spine():
    one, other = ("", "s", "c"), ("a", "s", "c")
    assert topology.get_domain(one) == topology.NO_DOMAIN
    assert topology.compute_distance(one, other) == 1
    assert topology.compute_distance(one, one) == 1, "two such nodes need not be on one leaf"


def test_levels_that_no_node_has_change_no_order_of_distances():
    deep = [("a", "s", "", ""), ("b", "s", "", ""), ("a", "t", "", "")]
    flat = [place[:2] for place in deep]
    for one, other in itertools.combinations(range(3), 2):
        near, far = topology.compute_distance(flat[one], flat[other]), topology.compute_distance(deep[one], deep[other])
        assert (near, far) in ((0, 0), (1, 1), (2, 4))


RAILS = ("rail0", "rail1")


def test_a_domain_key_with_rail_joins_the_leaves_of_all_rails():
    labels = {"x/leaf-rail0": "leaf-a", "x/leaf-rail1": "leaf-b", "x/spine": "s"}
    assert topology.read_domains(labels, ("x/leaf-{rail}", "x/spine"), RAILS) == ("leaf-a+leaf-b", "s")


@given(st.lists(VALUES, min_size=4, max_size=4))
def test_nodes_share_a_joined_domain_if_all_rails_do(values):
    def place(leaves):
        labels = {f"leaf-{rail}": leaf for rail, leaf in zip(RAILS, leaves, strict=True) if leaf}
        return topology.read_domains(labels, ("leaf-{rail}",), RAILS)

    one, other = values[:2], values[2:]
    assert (topology.compute_distance(place(one), place(other)) == 0) == (one == other and any(one))


def test_a_node_without_labels_has_no_domain():
    assert topology.read_domains({"leaf-rail1": "b"}, ("leaf-{rail}",), RAILS) == ("-+b",)
    assert topology.read_domains({}, ("leaf-{rail}",), RAILS) == ("",)


def test_a_placeholder_for_an_unknown_domain_is_no_domain():
    labels = {"leaf": "no-imds-data", "spine": "s1"}
    assert topology.read_domains(labels, ["leaf", "spine", "block"]) == ("", "s1", "")
    assert topology.get_domain(topology.read_domains(labels, ["leaf", "spine"])) == topology.NO_DOMAIN
    assert topology.read_domains({"leaf-a": "no-imds-data", "leaf-b": "l1"}, ["leaf-{rail}"], ["a", "b"]) == ("-+l1",)
