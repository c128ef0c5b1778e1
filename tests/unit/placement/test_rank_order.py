"""Ranks of a gang fill its leaves in order, for any order of a scheduler's requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import build_cluster, build_leaves, build_pod, build_request, score_once

from railwright.fabric.placement.state import gang_status
from railwright.fabric.workloads import membership

SIZE = 11


def build_rank(rank: int, label: str, on: str = ""):
    """Return a pod of the gang; with `label`, only the label has its rank: the names end with 0, 7, 3, 10, ..."""
    member = build_pod(f"job-{rank * 7 % SIZE if label else rank}", group="gang", on=on)
    if label:
        member.metadata.labels[label] = str(rank)
    return member


def place_in_order(order, existing, size=SIZE, label: str = "", **sizes: int) -> list[str]:
    """Return the leaves by rank, where a scheduler asks for the ranks in this order and takes the best node offered.

    Pods other than the `existing` ones exist from the first request for them on.
    """
    nodes = build_leaves(**sizes)
    made = [build_rank(rank, label) for rank in existing]
    state = build_cluster(nodes, made, least={"train/gang": size})
    placed: dict[int, str] = {}
    for rank in order:
        free = [node.metadata.name for node in nodes if node.metadata.name not in placed.values()]
        scores = score_once(build_request(build_rank(rank, label), free), state).scores
        placed[rank] = max(free, key=lambda name: (scores[name], name))
        state.upsert_pod(build_rank(rank, label, placed[rank]))
    return [placed[rank].rpartition("-")[0] for rank in range(size)]


def count_crossings(leaf_by_rank: list[str]) -> int:
    """Count the edges of the ring that leave a leaf, with the edge from the last rank to the first."""
    return sum(leaf != leaf_by_rank[rank - 1] for rank, leaf in enumerate(leaf_by_rank))


@given(order=st.permutations(range(SIZE)), existing=st.sets(st.integers(0, SIZE - 1)))
def test_the_ring_of_a_gang_on_two_leaves_crosses_between_them_twice_in_any_order(order, existing):
    leaf_by_rank = place_in_order(order, existing, xfew=3, xsome=6, xmore=7)
    assert set(leaf_by_rank) == {"xsome", "xmore"}
    assert count_crossings(leaf_by_rank) == 2, leaf_by_rank


@pytest.mark.parametrize("label", membership.INDEX_LABELS)
def test_the_rank_is_read_from_the_label_of_each_framework(label):
    order = (4, 9, 0, 7, 2, 8, 10, 1, 3, 6, 5)
    leaf_by_rank = place_in_order(order, range(SIZE), label=label, xfew=3, xsome=6, xmore=7)
    assert set(leaf_by_rank) == {"xsome", "xmore"}
    assert count_crossings(leaf_by_rank) == 2, leaf_by_rank


@pytest.mark.parametrize(
    ("names", "indexes", "missing"),
    [
        (("job-3", "job-1"), [0, 1, 2, 3, 4], 0),
        (("job-5", "job-1"), [1, 5], 3),  # no number of a gang of five: a Job that has completions already
        (("one-1", "two-1"), [1, 1], 3),  # two series
        (("job-a", "job-b"), [1 << 30, 1 << 30], 3),
    ],
)
def test_missing_indexes_are_the_ranks_of_pods_that_do_not_exist_yet(names, indexes, missing):
    pods = [build_pod(name, group="gang") for name in names]
    cluster = build_cluster(build_leaves(x=5), pods, least={"train/gang": 5})
    status = gang_status.build_status(build_request(pods[0], ["x-00"]), cluster)
    assert ([rank.index for rank in status.waiting], status.missing) == (indexes, missing)
    assert status.unplaced == 5
