"""The node index of a kind of pods forgets states that no node has any more."""

import tracemalloc

import msgspec
import pytest
from placing import GPU, build_cluster, build_pod_with, build_request, create_assumed_pods, node, pod

from railwright.fabric import resources
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.nodes import request_view
from railwright.fabric.placement.state import gang_status

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


def test_the_overrides_of_nodes_with_peers_are_in_one_order_in_every_process():
    peers = [pod(f"job-{number}", group="gang", gpus=4, on=f"n{number:02}") for number in range(12)]
    cluster = build_cluster([node(f"n{number:02}", "a", rails_each=100) for number in range(12)], peers)
    asked = pod("job-12", group="gang", gpus=4)
    offer = scheduling_request.NodeOffer(idle=resources.FrozenAmounts({GPU: 3000}))
    request = msgspec.structs.replace(
        build_request(asked, cluster.nodes), offers=dict.fromkeys(reversed(cluster.nodes), offer)
    )
    assumed = create_assumed_pods()
    placed = gang_status.build_status(request, cluster, assumed).placed
    index = engine.PlacementEngine(cluster, assumed).get_index(request)
    overrides = request_view.find_overrides(request, index, cluster, assumed, placed=placed, retried_uids=())
    assert list(overrides) == sorted(cluster.nodes)
