"""The summary of a gang during its placement: assumed peers, peers that terminate, and roles of different size."""

import json

import msgspec
from placing import (
    RememberingEngine,
    build_cluster,
    build_request,
    create_assumed_pods,
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


def leaving(member: views.Pod) -> views.Pod:
    metadata = msgspec.structs.replace(member.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(member, metadata=metadata)


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


def test_terminating_pods_are_not_peers_of_the_gang_that_replaces_them():
    old = [leaving(pod(f"old-{i}", group="gang", on=f"a-{i:02}")) for i in range(8)]
    state = build_cluster(leaves(a=8, b=8, c=1), old, {"train/gang": 8})
    request = build_request(pod("new-0", group="gang"), [name for name in state.nodes if not name.startswith("a")])
    decision = score_once(request, state)
    assert decision.gang.remaining == decision.gang_size == 8
    assert best_leaves(request, state) == {"b"}


def test_a_pod_on_its_way_out_holds_its_devices_to_the_end():
    state = build_cluster(leaves(a=1), [leaving(pod("old", on="a-00"))])
    explanation = explain(score_once(build_request(pod("new"), ["a-00"], policy(required=True)), state))["a-00"]
    assert explanation.refusal
    assert not explanation.is_unresolvable


def test_a_launcher_goes_where_its_workers_will_fit():
    workers = [pod(f"job-worker-{i}", group="gang") for i in range(8)]
    state = build_cluster(leaves(a=8, c=1), [*workers, launcher()], {"train/gang": 9})
    assert best_leaves(build_request(launcher(), list(state.nodes)), state) == {"a"}


def test_an_unplaced_launcher_takes_no_slot_of_a_worker():
    workers = [pod(f"job-worker-{i}", group="gang") for i in range(8)]
    state = build_cluster(leaves(a=8, b=10), [*workers, launcher()], {"train/gang": 9})
    assert best_leaves(build_request(workers[0], list(state.nodes)), state) == {"a"}


def test_a_record_without_rails_wants_none():
    bare = node("cpu", "a", rails_each=0)
    explanation = explain(score_once(build_request(launcher(), ["cpu"], policy(required=True)), build_cluster([bare])))[
        "cpu"
    ]
    assert not explanation.refusal
    assert explanation.row.evaluation.pools == ()


def test_without_domains_the_other_terms_have_the_whole_range():
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


def test_two_gangs_placed_alternately_take_a_leaf_each():
    """kube-scheduler pops their pods in turn and shows no binding before it is made."""
    gangs = {name: [pod(f"{name}-{rank}", group=name) for rank in range(8)] for name in ("one", "two")}
    state = build_cluster(leaves(a=8, b=8, c=8), [*gangs["one"], *gangs["two"]], {"train/one": 8, "train/two": 8})
    placement_engine, offered, landed = (
        RememberingEngine(state, create_assumed_pods()),
        list(state.nodes),
        {"one": [], "two": []},
    )
    for rank in range(8):
        for name, pods in gangs.items():
            scores = placement_engine.score(build_request(pods[rank], offered)).scores
            best = max(scores, key=lambda node: (scores[node], node))
            offered.remove(best)
            landed[name].append(best)
            if rank > 2:  # the watch is behind
                state.upsert_pod(pod(f"{name}-{rank - 2}", group=name, on=landed[name][rank - 2]))
    (one,), (two,) = ({node.split("-")[0] for node in decision} for decision in landed.values())
    assert one != two


def test_a_claim_gives_way_where_there_is_no_other_leaf():
    peers = [pod(f"one-{rank}", group="one") for rank in range(4)]
    state = build_cluster(leaves(a=6), [*peers, pod("two-0", group="two")], {"train/one": 4, "train/two": 4})
    placement_engine = RememberingEngine(state, create_assumed_pods())
    placement_engine.score(build_request(peers[0], list(state.nodes)))
    assert placement_engine.score(build_request(pod("two-0", group="two"), list(state.nodes))).plan.is_complete
