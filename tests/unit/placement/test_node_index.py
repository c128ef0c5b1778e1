"""The node index of a kind of pods forgets states that no node has any more."""

import tracemalloc

import pytest
from placing import GPU, build_cluster, build_pod_with, build_request, create_assumed_pods, node

from railwright.fabric.placement import engine

NODES = [f"n{number}" for number in range(500)]
_MIB = 1024**2


@pytest.mark.exhaustive
def test_past_states_of_nodes_do_not_fill_the_memory():
    state = build_cluster([node(name) for name in NODES])
    indexes = engine.PlacementEngine(state, create_assumed_pods())
    request = build_request(build_pod_with("waiting", {GPU: "8"}), NODES)

    def measure_peak(first):
        """Change all nodes twenty times, each to a state of its own."""
        tracemalloc.reset_peak()
        for turn in range(first, first + 20):
            for number, name in enumerate(NODES):
                requests = {"memory": str(turn * len(NODES) + number + 1)}
                state.upsert_pod(build_pod_with(f"on-{name}", requests, on=name))
            assert len(indexes.get_index(request).class_of_node) == len(NODES)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        before = measure_peak(0)
        assert measure_peak(20) - before < _MIB / 2
    finally:
        tracemalloc.stop()
