"""Ranks of a gang fill its leaves in order, in whatever order a scheduler asks for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import build_cluster, build_request, create_assumed_pods, leaves, pod, score_once

from railwright.fabric.workloads import membership

SIZE = 11


def build_rank(rank: int, label: str, on: str = ""):
    """Return a pod of the gang; with `label`, its rank is only there: the names end with 0, 7, 3, 10, ..."""
    if not label:
        return pod(f"job-{rank}", group="gang", on=on)
    member = pod(f"job-{rank * 7 % SIZE}", group="gang", on=on)
    member.metadata.labels[label] = str(rank)
    return member


def place_in_order(order, label: str = "", **sizes: int) -> list[str]:
    """Return the leaves by rank, where a scheduler asks for the ranks in this order and takes the best node offered."""
    nodes = leaves(**sizes)
    state = build_cluster(nodes, [build_rank(rank, label) for rank in range(SIZE)])
    assumed = create_assumed_pods()
    placed: dict[int, str] = {}
    for rank in order:
        free = [node.metadata.name for node in nodes if node.metadata.name not in placed.values()]
        scores = score_once(build_request(build_rank(rank, label), free), state, assumed).scores
        placed[rank] = max(free, key=lambda name: (scores[name], name))
        state.upsert_pod(build_rank(rank, label, placed[rank]))
    return [placed[rank].rpartition("-")[0] for rank in range(SIZE)]


def count_crossings(leaf_by_rank: list[str]) -> int:
    """Count the edges of the ring that leave a leaf, with the edge from the last rank to the first."""
    return sum(leaf != leaf_by_rank[rank - 1] for rank, leaf in enumerate(leaf_by_rank))


@settings(max_examples=25)
@given(order=st.permutations(range(SIZE)))
def test_a_ring_over_two_leaves_crosses_each_once_in_any_order(order):
    leaf_by_rank = place_in_order(order, xfew=3, xsome=6, xmore=7)
    assert set(leaf_by_rank) == {"xsome", "xmore"}
    assert count_crossings(leaf_by_rank) == 2, leaf_by_rank


def test_a_gang_asked_for_from_its_end_is_contiguous_too():
    assert count_crossings(place_in_order(range(SIZE - 1, -1, -1), xsome=6, xmore=7)) == 2


@pytest.mark.parametrize("label", membership.INDEX_LABELS)
def test_the_rank_is_read_from_the_label_of_each_framework(label):
    leaf_by_rank = place_in_order((4, 9, 0, 7, 2, 8, 10, 1, 3, 6, 5), label, xfew=3, xsome=6, xmore=7)
    assert set(leaf_by_rank) == {"xsome", "xmore"}
    assert count_crossings(leaf_by_rank) == 2, leaf_by_rank
