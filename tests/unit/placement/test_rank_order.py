"""Ranks of a gang fill its leaves in order, in whatever order a scheduler asks for them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from placing import build_cluster, build_request, create_assumed_pods, leaves, pod, score_once

SIZE = 11


def played(order, **sizes: int) -> list[str]:
    """The leaves by rank, where a scheduler asks for the ranks in this order and takes the best node offered."""
    nodes = leaves(**sizes)
    state, accounts = (
        build_cluster(nodes, [pod(f"job-{rank}", group="gang") for rank in range(SIZE)]),
        create_assumed_pods(),
    )
    landed: dict[int, str] = {}
    for rank in order:
        free = [node.metadata.name for node in nodes if node.metadata.name not in landed.values()]
        scores = score_once(build_request(pod(f"job-{rank}", group="gang"), free), state, accounts).scores
        landed[rank] = max(free, key=lambda name: (scores[name], name))
        state.upsert_pod(pod(f"job-{rank}", group="gang", on=landed[rank]))
    return [landed[rank].rpartition("-")[0] for rank in range(SIZE)]


def crossings(found: list[str]) -> int:
    """Edges of the ring that leave a leaf, the one from the last rank to the first as well."""
    return sum(leaf != found[rank - 1] for rank, leaf in enumerate(found))


@settings(max_examples=25)
@given(order=st.permutations(range(SIZE)))
def test_a_ring_over_two_leaves_crosses_each_once_in_any_order(order):
    found = played(order, xfew=3, xsome=6, xmore=7)
    assert set(found) == {"xsome", "xmore"}
    assert crossings(found) == 2, found


def test_a_gang_asked_for_from_its_end_is_contiguous_too():
    assert crossings(played(range(SIZE - 1, -1, -1), xsome=6, xmore=7)) == 2
