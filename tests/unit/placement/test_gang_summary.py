"""The summary of a gang during its placement: unseen peers, and roles of different size."""

import json

import msgspec
from placing import (
    build_cluster,
    build_request,
    explain,
    leaves,
    node,
    pod,
    policy,
    score_once,
)

from railwright.fabric import names, views

LAUNCHED = {names.INJECTION: json.dumps({"fabric": "roce", "role": "launcher", "containers": [], "rails": []})}


def best_leaves(request, state, assumed=None):
    explanations = explain(score_once(request, state, assumed)).values()
    top = max(explanation.score for explanation in explanations)
    return {explanation.node.split("-")[0] for explanation in explanations if explanation.score == top}


def launcher() -> views.Pod:
    tree = msgspec.to_builtins(pod("job-launcher-0", group="gang", annotations=LAUNCHED))
    tree["spec"]["containers"] = [{"name": "mpi", "resources": {"requests": {"cpu": "1"}}}]
    return msgspec.convert(tree, views.Pod)


def test_kube_scheduler_keeps_its_leaf_while_bindings_are_still_unseen():
    state = build_cluster(leaves(a=8, b=8), least={"train/gang": 8})
    offered = list(state.nodes)
    for rank in range(8):  # each peer takes a node of leaf a, and the watch has shown none of them yet
        assert best_leaves(build_request(pod(f"job-{rank}", group="gang"), offered), state) == {"a"}
        offered.remove(f"a-{rank:02}")


def test_kube_scheduler_fills_the_next_leaf_while_bindings_are_still_unseen():
    state = build_cluster(leaves(a=5, b=4), least={"train/gang": 8})
    landed = []
    offered = list(state.nodes)
    for rank in range(8):
        explanations = explain(score_once(build_request(pod(f"job-{rank}", group="gang"), offered), state))
        landed.append(max(explanations.values(), key=lambda explanation: (explanation.score, explanation.node)).node)
        offered.remove(landed[-1])
    assert [name[0] for name in landed] == list("aaaaabbb")


def test_a_leaf_without_a_node_offered_by_kube_scheduler_is_no_capacity():
    state = build_cluster(leaves(a=8, b=9), least={"train/gang": 8})
    offered = [name for name in state.nodes if name.startswith("b")]
    assert best_leaves(build_request(pod("job-0", group="gang"), offered), state) == {"b"}


def test_a_launcher_goes_where_its_workers_will_fit():
    workers = [pod(f"job-worker-{i}", group="gang") for i in range(8)]
    state = build_cluster(leaves(a=8, c=1), [*workers, launcher()], {"train/gang": 9})
    assert best_leaves(build_request(launcher(), list(state.nodes)), state) == {"a"}


def test_an_unplaced_launcher_takes_no_slot_of_a_worker():
    workers = [pod(f"job-worker-{i}", group="gang") for i in range(8)]
    state = build_cluster(leaves(a=8, b=10), [*workers, launcher()], {"train/gang": 9})
    assert best_leaves(build_request(workers[0], list(state.nodes)), state) == {"a"}


def test_a_record_without_rails_requests_none():
    bare = node("cpu", "a", rails_each=0)
    explanation = explain(score_once(build_request(launcher(), ["cpu"], policy(required=True)), build_cluster([bare])))[
        "cpu"
    ]
    assert not explanation.refusal
    assert explanation.row.evaluation.pools == ()


def test_without_domains_the_other_terms_share_the_whole_score():
    nodes = [node("bare", rails_each=0), node("full")]
    explanations = explain(
        score_once(build_request(pod("p"), ["bare", "full"], policy(domains=[])), build_cluster(nodes))
    )
    assert explanations["full"].score == 100
    assert "locality" not in explanations["full"].terms


def test_a_gang_without_any_device_is_planned_whole():
    gang = [pod(f"job-{i}", group="gang", gpus=0, rails=0) for i in range(8)]
    state = build_cluster(leaves(a=2), gang)
    assert score_once(build_request(gang[0], list(state.nodes)), state).gang.remaining == 8
