"""Single decisions: feasible nodes, the best node, and the reason."""

import msgspec
import pytest
from placing import (
    RESOURCES,
    build_assumed_pod,
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
from wording import text

from railwright.fabric import views


def place_gang(size: int, nodes, pods=(), least=None, *, names=None):
    """Place a gang as a greedy scheduler does: by the best score of each task, on ties the last node by name."""
    state, assumed = build_cluster(nodes, pods, least), create_assumed_pods()
    landed = []
    for rank in range(size):
        task = pod(names[rank] if names else f"job-worker-{rank}", group="gang")
        free = [
            n.metadata.name
            for n in nodes
            if not state.get_used(n.metadata.name) and not list(assumed.list_on_node(n.metadata.name))
        ]
        explanations = explain(score_once(build_request(task, free), state, assumed))
        best = max(explanations.values(), key=lambda v: (v.score, v.node))
        assumed.assume(build_assumed_pod(task, best.node))
        landed.append(best.node)
    return landed


def test_a_gang_takes_the_tightest_leaf_that_holds_all_of_it():
    nodes_by_rank = place_gang(8, leaves(a=4, b=8, c=12), least={"train/gang": 8})
    assert {name.split("-")[0] for name in nodes_by_rank} == {"b"}


def test_without_the_size_of_the_pod_group_a_gang_has_the_observed_pods():
    seen = [pod(f"job-worker-{i}", group="gang") for i in range(8)]
    nodes_by_rank = place_gang(8, leaves(a=4, b=8, c=12), pods=seen)
    assert {name.split("-")[0] for name in nodes_by_rank} == {"b"}


def test_a_lost_pod_is_replaced_on_the_leaf_of_its_peers():
    nodes = leaves(a=4, b=4)
    peers = [pod(f"job-worker-{i}", group="gang", on=f"b-0{i}") for i in (0, 2, 3)]
    state = build_cluster(nodes, peers, {"train/gang": 4})
    request = build_request(pod("job-worker-1", group="gang"), ["a-00", "a-01", "a-02", "a-03", "b-01"])
    explanations = explain(score_once(request, state))
    assert max(explanations.values(), key=lambda v: v.score).node == "b-01"


def test_nodes_without_domain_labels_come_last():
    nodes = [node("nolabel", spine=""), *leaves(a=1)]
    explanations = explain(score_once(build_request(pod("p"), ["nolabel", "a-00"]), build_cluster(nodes)))
    assert explanations["a-00"].score > explanations["nolabel"].score


def test_a_busy_rail_is_refused_as_busy_and_names_rail_and_resource():
    nodes = leaves(a=1)
    other = pod("other", gpus=1, on="a-00")
    explanation = score_once(build_request(pod("p"), ["a-00"], policy(required=True)), build_cluster(nodes, [other]))
    refused = explain(explanation)["a-00"]
    assert not refused.is_unresolvable
    assert text(refused.refusal) == "rail0 is busy: 0 of 1 nvidia.com/mlx5_0 free, 1 needed"
    assert refused.row.list_holders(RESOURCES[0]) == ("train/other",)


def test_a_node_without_the_rail_is_refused_for_good():
    bare = node("bare", "a", rails_each={RESOURCES[0]: 1, RESOURCES[1]: 1, RESOURCES[3]: 1})
    explanation = explain(score_once(build_request(pod("p"), ["bare"], policy(required=True)), build_cluster([bare])))[
        "bare"
    ]
    assert explanation.is_unresolvable
    assert "rail2" in text(explanation.refusal)
    assert "0 allocatable" in text(explanation.refusal)


def test_preferred_rails_never_filter_but_lower_the_score():
    nodes = [node("bare", "a", rails_each=0), node("full", "a")]
    explanations = explain(score_once(build_request(pod("p"), ["bare", "full"]), build_cluster(nodes)))
    assert not explanations["bare"].refusal
    assert explanations["bare"].score < explanations["full"].score


def test_a_degraded_rail_scores_between_free_and_missing():
    degraded = node("degraded", "a", capacity={RESOURCES[0]: "2"})
    nodes = [node("gone", "a", rails_each=dict.fromkeys(RESOURCES[1:], 1)), degraded, node("whole", "a")]
    explanations = explain(score_once(build_request(pod("p"), ["gone", "degraded", "whole"]), build_cluster(nodes)))
    assert explanations["gone"].score < explanations["degraded"].score < explanations["whole"].score


def test_an_announced_pod_counts_once_like_a_bound_one():
    state, assumed = build_cluster(leaves(a=1)), create_assumed_pods()
    other = pod("other", gpus=1)
    assumed.assume(build_assumed_pod(other, "a-00"))
    request = build_request(pod("p"), ["a-00"], policy(required=True))
    assert explain(score_once(request, state, assumed))["a-00"].refusal
    state.upsert_pod(pod("other", gpus=1, on="a-00"))
    (rail, *_) = explain(score_once(request, state, assumed))["a-00"].row.evaluation.pools
    assert rail.free == 0


def test_a_pods_earlier_announcement_does_not_count_against_it():
    state, assumed = build_cluster(leaves(a=1)), create_assumed_pods()
    own = pod("p")
    assumed.assume(build_assumed_pod(own, "a-00"))
    assert not explain(score_once(build_request(own, ["a-00"], policy(required=True)), state, assumed))["a-00"].refusal


def test_an_unknown_node_is_not_filtered_and_scores_zero():
    explanation = explain(score_once(build_request(pod("p"), ["new"], policy(required=True)), build_cluster([])))["new"]
    assert (explanation.row.evaluation, explanation.refusal, explanation.score) == (None, None, 0.0)


_GPU_POOL = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}
_REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_GPU_POOL]}}


@pytest.mark.parametrize(
    ("unfit", "spec"),
    [
        ({"unschedulable": True}, {}),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, {}),
        ({"labels": {}}, {"nodeSelector": {"pool": "gpu"}}),
        ({"labels": {}}, {"affinity": {"nodeAffinity": _REQUIRED}}),
    ],
)
def test_eligible_nodes_that_a_sampling_scheduler_did_not_offer_count_as_capacity(unfit, spec):
    in_pool = {"labels": {"pool": "gpu"}}
    offered = [node(f"o-{i:03}", "offered", **in_pool) for i in range(100)]
    hidden = [node(f"h-{i}", "hidden", **in_pool) for i in range(120)]
    cordoned = [node(f"c-{i}", "cordoned", **(in_pool | unfit)) for i in range(120)]
    state = build_cluster([*offered, *hidden, *cordoned])
    state.upsert_pod_group(
        msgspec.convert({"metadata": {"namespace": "train", "name": "g"}, "spec": {"minMember": 110}}, views.PodGroup)
    )
    names = [*(n.metadata.name for n in offered), "h-0", "c-0"]
    decision = score_once(build_request(pod("p", group="g", **spec), names), state)
    assert decision.plan.leaves == (("hidden", "s0"),)
    assert max(decision.scores, key=decision.scores.get) == "h-0"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_frees_its_devices(phase):
    state = build_cluster(leaves(a=1), [pod("done", on="a-00")])
    ended = pod("done", on="a-00")
    state.upsert_pod(msgspec.structs.replace(ended, status=msgspec.structs.replace(ended.status, phase=phase)))
    assert not explain(score_once(build_request(pod("p"), ["a-00"], policy(required=True)), state))["a-00"].refusal


def test_peers_share_a_nic_like_other_pods():
    """Pods of two GPUs on one node, whose NICs are shared: two of the gang, and a third of another."""
    nodes = [node("n", "a", rails_each=100)]
    for peer, share in (("g", 1 / 2), ("other", 1 / 3)):
        state = build_cluster(nodes, [pod("first", group=peer, gpus=2, on="n")], {"train/g": 2})
        assert score_once(build_request(pod("w-1", group="g", gpus=2), ["n"]), state).plan.bandwidth == share


def test_a_small_master_goes_where_its_large_workers_fit():
    workers = [pod(f"w-{i}", group="g") for i in range(1, 5)]
    master = pod("m-0", group="g", gpus=1, rails=0)
    state = build_cluster(leaves(a=2, b=5), [master, *workers], {"train/g": 5})
    decision = score_once(build_request(master, list(state.nodes)), state)
    assert decision.gang.target_leaf == ("b", "s-b")
    assert max(decision.scores, key=decision.scores.__getitem__).startswith("b-")


def test_two_devices_of_one_pod_on_a_nic_are_one_pod_that_shares_it():
    given = policy()
    twice = {"roce": msgspec.structs.replace(given.document.fabrics["roce"], devices_per_rail=2)}
    given = msgspec.structs.replace(given, document=msgspec.structs.replace(given.document, fabrics=twice))
    others = [pod(f"other-{name}", gpus=2, rails=2, on=name) for name in ("m", "n")]
    state = build_cluster([node(name, "a", rails_each=100) for name in ("m", "n")], others, {"train/g": 2})
    request = build_request(pod("w-0", group="g", gpus=2, rails=2), ["m", "n"], given)
    assert score_once(request, state).plan.bandwidth == 0.5
