"""Nodes of pods with unseen bindings by kube-scheduler: inferred only if nothing else explains the requests."""

import extending
import pytest
from placing import LEAF, build_pod_group, node, pod

from railwright.fabric import views

NODES = [f"n-{i}" for i in range(6)]
SIZE = 4


class Asked(extending.Site):
    """Two nodes a leaf, for kube-scheduler: filter leaves all nodes to every pod."""

    def __init__(self) -> None:
        super().__init__([node(name, f"leaf-{index // 2}") for index, name in enumerate(NODES)])
        self.state.cluster.upsert_pod_group(build_pod_group("train", "g", SIZE))

    def filter(self, pod: views.Pod, names=None, **spec: object) -> list[str]:
        self.pods.upsert(pod)
        return super().filter(pod, names, **{**extending.PREFERRING, **spec})


def build_peer(rank: int, **kinds) -> views.Pod:
    return pod(f"w-{rank}", group="g", **kinds)


@pytest.fixture
def cluster():
    return Asked()


def test_the_one_node_missing_for_the_next_equal_pod_is_inferred_for_the_last_pod(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.now += 0.02
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1
    cluster.now += 5
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


@pytest.mark.parametrize("seconds", [1.5, 7.0, 3600.0])
def test_nothing_is_inferred_from_an_old_request(cluster, seconds):
    """Its gang was released, and the node taken by somebody since; a binding of its own would have been seen."""
    cluster.filter(build_peer(3), NODES[:2])
    cluster.now += seconds
    cluster.filter(build_peer(0), NODES[1:])
    assert cluster.count_remaining(build_peer(0), NODES[1:]) == SIZE


def test_a_node_with_a_newly_bound_pod_is_not_inferred_for_the_last_pod(cluster):
    cluster.filter(build_peer(3), NODES[:2])
    cluster.state.cluster.upsert_pod(pod("other", on=NODES[0]))
    cluster.filter(build_peer(0), NODES[1:])
    assert cluster.count_remaining(build_peer(0), NODES[1:]) == SIZE


def test_an_inference_ends_when_another_pod_is_bound_to_the_node(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1
    cluster.state.cluster.upsert_pod(pod("other", on=NODES[0]))
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


@pytest.mark.parametrize("change", ["cordoned", "gone", "other labels"])
def test_a_node_that_the_next_pod_cannot_use_is_not_missing_because_of_the_last_one(cluster, change):
    cluster.filter(build_peer(0), NODES)
    if change == "cordoned":
        cluster.state.cluster.upsert_node(node(NODES[0], "leaf-0", unschedulable=True))
    elif change == "gone":
        cluster.state.cluster.remove_node(NODES[0])
    else:
        cluster.state.cluster.upsert_node(node(NODES[0], "leaf-0", taints=[{"key": "k", "effect": "NoSchedule"}]))
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {LEAF: "leaf-2"}},
        {"schedulerName": "another"},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": LEAF}]}}},
        {"topologySpreadConstraints": [extending.SOFT_SPREAD, {**extending.SOFT_SPREAD, "topologyKey": LEAF}]},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    ],
    ids=["selector", "another kube-scheduler", "anti-affinity", "spread", "tolerations"],
)
def test_pods_that_may_go_to_different_nodes_allow_no_inference(cluster, spec):
    cluster.filter(build_peer(0), NODES, **spec)
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


def test_pods_of_different_sizes_allow_no_inference(cluster):
    cluster.filter(build_peer(0, gpus=4), NODES)
    cluster.filter(build_peer(1, gpus=8), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


def test_requests_of_another_kube_scheduler_in_between_do_not_prevent_an_inference(cluster):
    cluster.filter(build_peer(0), NODES)
    cluster.filter(pod("lone", gpus=8), NODES[:3], schedulerName="another")
    cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1


def test_a_sample_of_other_nodes_infers_nothing(cluster):
    cluster.filter(build_peer(0), NODES[:4])
    cluster.filter(build_peer(1), NODES[1:5])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE


def test_a_gang_that_is_scheduled_again_was_released_completely(cluster):
    """Coscheduling holds back a gang's pods until all have a node, and lets all of them go where one has none."""
    for rank in range(3):
        cluster.filter(build_peer(rank), NODES[rank:])
    assert cluster.count_remaining(build_peer(2), NODES[2:]) == SIZE - 2
    cluster.filter(build_peer(0), NODES[3:])
    assert cluster.count_remaining(build_peer(0), NODES[3:]) == SIZE


def test_a_gang_is_released_completely_if_its_last_pod_found_no_node_and_comes_first(cluster):
    for rank in range(3):
        cluster.filter(build_peer(rank), NODES[rank:])
    cluster.filter(build_peer(3), [])
    assert cluster.count_remaining(build_peer(3), NODES[2:]) == SIZE - 2
    cluster.now += 1.5  # kube-scheduler tries no pod again within a second
    cluster.filter(build_peer(3), NODES)
    assert cluster.count_remaining(build_peer(3), NODES) == SIZE


def test_a_repeated_filter_call_is_not_another_attempt(cluster):
    cluster.filter(build_peer(0), NODES)
    for _ in range(3):
        cluster.filter(build_peer(1), NODES[1:])
    assert cluster.count_remaining(build_peer(1), NODES[1:]) == SIZE - 1
