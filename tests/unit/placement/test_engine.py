"""Single decisions: feasible nodes, the best node, and the reason."""

import json

import msgspec
import pytest
from placing import (
    GPU,
    LEAF,
    RESOURCES,
    TWO_SIDED,
    build_assumed_pod,
    build_cluster,
    build_leaves,
    build_node,
    build_pod,
    build_pod_with,
    build_policy,
    build_request,
    explain,
    score_once,
)
from wording import texts

from railwright.fabric import names, views
from railwright.fabric.placement.explain import diagnosis
from railwright.fabric.placement.nodes import score_terms
from railwright.fabric.placement.state import cluster_state

LAUNCHED = {names.INJECTION: json.dumps({"fabric": "roce", "role": "launcher", "containers": [], "rails": []})}


def decide(nodes, assumed=()):
    """Return the explained nodes of a decision on a pod, to which all nodes are offered."""
    request = build_request(build_pod("p"), [node.metadata.name for node in nodes], build_policy())
    state = build_cluster(nodes)
    for entry in assumed:
        state.assumed.assume(entry)
    return explain(score_once(request, state))


def place_gang(size: int, nodes, pods=(), least=None, *, is_seen=True):
    """Place a gang as a greedy scheduler does, on ties on the last node by name. Return the leaf of each pod.

    Without `is_seen`, the only sign of a placed pod is that its node is no longer offered.
    """
    state = build_cluster(nodes, pods, least)
    free, landed = [node.metadata.name for node in nodes], []
    for rank in range(size):
        task = build_pod(f"job-worker-{rank}", group="gang")
        explanations = explain(score_once(build_request(task, free), state))
        best = max(explanations.values(), key=lambda row: (row.score, row.node)).node
        if is_seen:
            state.assumed.assume(build_assumed_pod(task, best))
        free.remove(best)
        landed.append(best.split("-")[0])
    return "".join(landed)


def find_best_leaves(request, state):
    explanations = explain(score_once(request, state)).values()
    top = max(explanation.score for explanation in explanations)
    return {explanation.node.split("-")[0] for explanation in explanations if explanation.score == top}


@pytest.mark.parametrize("is_declared", [True, False], ids=["by its PodGroup", "by the observed pods"])
def test_a_gang_takes_the_smallest_leaf_with_room_for_all_its_pods(is_declared):
    seen = () if is_declared else [build_pod(f"job-worker-{rank}", group="gang") for rank in range(8)]
    least = {"train/gang": 8} if is_declared else None
    assert place_gang(8, build_leaves(a=4, b=8, c=12), seen, least) == "b" * 8


@pytest.mark.parametrize(("sizes", "expected"), [({"a": 8, "b": 8}, "aaaaaaaa"), ({"a": 5, "b": 4}, "aaaaabbb")])
def test_a_gang_fills_one_leaf_after_the_other_before_the_watch_shows_its_bindings(sizes, expected):
    assert place_gang(8, build_leaves(**sizes), least={"train/gang": 8}, is_seen=False) == expected


@pytest.mark.parametrize(("is_announced", "leaf"), [(True, "b"), (False, "a")], ids=["Volcano", "kube-scheduler"])
def test_nodes_that_are_not_offered_count_as_capacity_for_kube_scheduler_but_not_for_volcano(is_announced, leaf):
    """Volcano may leave out a node for reasons that are unknown here. A peer may be on that of kube-scheduler."""
    state = build_cluster(build_leaves(a=2, b=3), [], {"train/g": 2})
    request = build_request(build_pod("g-0", group="g"), [name for name in state.nodes if name != "a-01"])
    plan = score_once(msgspec.structs.replace(request, is_announced=is_announced), state).plan
    assert plan.leaves == ((leaf, f"s-{leaf}"),)


def test_a_leaf_counts_as_capacity_only_if_kube_scheduler_offers_a_node_of_it():
    state = build_cluster(build_leaves(a=8, b=9), least={"train/gang": 8})
    offered = [name for name in state.nodes if name.startswith("b")]
    assert find_best_leaves(build_request(build_pod("job-0", group="gang"), offered), state) == {"b"}


def launcher() -> views.Pod:
    tree = msgspec.to_builtins(build_pod("job-launcher-0", group="gang", annotations=LAUNCHED))
    tree["spec"]["containers"] = [{"name": "mpi", "resources": {"requests": {"cpu": "1"}}}]
    return msgspec.convert(tree, views.Pod)


@pytest.mark.parametrize(
    ("sizes", "role"), [({"a": 8, "c": 1}, "launcher"), ({"a": 8, "b": 10}, "worker")], ids=["launcher", "worker"]
)
def test_a_launcher_goes_to_the_leaf_of_its_workers_without_using_their_slots(sizes, role):
    pods = {"launcher": launcher(), "worker": build_pod("job-worker-0", group="gang")}
    others = [build_pod(f"job-worker-{i}", group="gang") for i in range(1, 8)]
    state = build_cluster(build_leaves(**sizes), [*pods.values(), *others], {"train/gang": 9})
    assert find_best_leaves(build_request(pods[role], list(state.nodes)), state) == {"a"}


UNLABELLED = [build_node(f"{leaf}-{number}", leaf, "") for leaf in "ab" for number in range(2)]
SHARED = [build_node(f"{leaf}-{number}", leaf, "s", rails_each=100) for leaf in "ab" for number in range(2)]
HALF_USED = [build_pod(f"other-{leaf}", gpus=4, on=f"{leaf}-0") for leaf in "ab"]
RATED = {  # nodes, pods on them, pods of the gang: rating of nodes for its first pod, and the reason
    "the target leaf, another of the plan, one beside it with a slow node, and others": (
        [*build_leaves(xa=4, xb=3, y=1), build_node("xc-00", "xc", "s-x", capacity={RESOURCES[0]: "2"})],
        (),
        7,
        {
            "xa-00": (1.0, "xa in s-x has no other pod of the gang, slots for 4 of 7 pods to place"),
            "xb-00": (0.6, "xb in s-x is leaf 2 of 2 in the gang's plan"),
            "xc-00": (0.3, "xc in s-x has the same parent as the target leaf xa in s-x"),
            "y-00": (0.0, "y in s-y is not in the gang's plan"),
        },
    ),
    "a leaf with room for more pods than are to be placed": (
        build_leaves(a=4),
        (),
        3,
        {"a-00": (1.0, "a in s-a has no other pod of the gang, slots for 3 of 3 pods to place")},
    ),
    "leaves without the label of a parent": (UNLABELLED, (), 2, {"b-0": (0.0, "b is not in the gang's plan")}),
    "no leaf for two pods of the gang": (
        build_leaves(a=2, b=1, c=1),
        [build_pod("busy", on="c-00")],
        5,
        {
            "a-00": (1.0, "a in s-a has no other pod of the gang, slots for 2 of 5 pods to place"),
            "b-00": (
                0.6,
                "b in s-b has slots for 1 of 5 pods to place; the gang has no plan, because some pods have no room",
            ),
            "c-00": (0.0, "the gang has no plan, because some pods have no room"),
        },
    ),
    "idle nodes beside partly used ones": (
        SHARED,
        HALF_USED,
        4,
        {
            "a-0": (1.0, "a in s has no other pod of the gang, slots for 3 of 4 pods to place"),
            "a-1": (0.6, "other nodes of the target leaf come first"),
            "b-1": (0.6, "b in s is leaf 2 of 2 in the gang's plan"),
        },
    ),
}


@pytest.mark.parametrize(("nodes", "pods", "size", "expected"), RATED.values(), ids=RATED)
def test_the_locality_of_a_node_depends_on_the_plan_of_the_gang(nodes, pods, size, expected):
    state = build_cluster(nodes, pods, {"train/g": size})
    task = build_pod("w-0", group="g", gpus=4 if pods is HALF_USED else 8)
    explanations = explain(score_once(build_request(task, list(state.nodes), build_policy()), state))
    ratings = {name: explanations[name].terms["locality"] for name in expected}
    assert {name: (value, why.partition(" (this node")[0]) for name, (value, why) in ratings.items()} == expected
    scores = [explanations[name].score for name in expected]
    assert scores == sorted(scores, reverse=True)


GONE = dict.fromkeys(RESOURCES[1:], 1)


@pytest.mark.parametrize(
    "worse_first",
    [
        [build_node("nolabel", spine=""), build_node("labelled", "a")],
        [build_node("bare", "a", rails_each=0), build_node("full", "a")],
        [
            build_node("gone", "a", rails_each=GONE),
            build_node("slow", "a", capacity={RESOURCES[0]: "2"}),
            build_node("whole", "a"),
        ],
    ],
    ids=["without domain labels", "without rails", "missing, degraded and free rail"],
)
def test_nodes_with_domain_labels_and_healthy_rails_score_higher(worse_first):
    explanations = decide(worse_first)
    assert all(explanation.score for explanation in explanations.values())
    scores = [explanations[node.metadata.name].score for node in worse_first]
    assert scores == sorted(set(scores))


def test_the_earlier_announcement_of_a_pod_does_not_use_its_own_devices():
    (rail, *_) = decide(build_leaves(a=1), [build_assumed_pod(build_pod("p"), "a-00")])["a-00"].node_class.pools
    assert rail.devices.free == 1000


def test_an_unknown_node_scores_zero():
    explanation = explain(score_once(build_request(build_pod("p"), ["new"], build_policy()), build_cluster([])))["new"]
    assert (explanation.node_class, explanation.score) == (None, 0.0)


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
def test_eligible_nodes_outside_the_sample_of_the_scheduler_count_as_capacity(unfit, spec):
    in_pool = {"labels": {"pool": "gpu"}}
    offered = [build_node(f"o-{i:03}", "offered", **in_pool) for i in range(100)]
    hidden = [build_node(f"h-{i}", "hidden", **in_pool) for i in range(120)]
    cordoned = [build_node(f"c-{i}", "cordoned", **(in_pool | unfit)) for i in range(120)]
    state = build_cluster([*offered, *hidden, *cordoned], least={"train/g": 110})
    names = [*(n.metadata.name for n in offered), "h-0", "c-0"]
    decision = score_once(build_request(build_pod("p", group="g", **spec), names), state)
    assert decision.plan.leaves == (("hidden", "s0"),)
    assert max(decision.scores, key=decision.scores.get) == "h-0"


def test_pods_of_the_gang_that_share_a_nic_count_like_other_pods():
    """Pods of two GPUs share the NICs of one node: two of the gang, and a third of another."""
    nodes = [build_node("n", "a", rails_each=100)]
    for peer, share in (("g", 1 / 2), ("other", 1 / 3)):
        state = build_cluster(nodes, [build_pod("first", group=peer, gpus=2, on="n")], {"train/g": 2})
        assert score_once(build_request(build_pod("w-1", group="g", gpus=2), ["n"]), state).plan.bandwidth == share


def test_pods_of_a_gang_share_nics_even_if_they_request_no_devices_of_them():
    """As with `skip: devices`: the next pod goes to a node of its own."""
    peers = [build_pod("w-0", group="g", gpus=4, rails=0, on="a-00")]
    state = build_cluster(build_leaves(a=2), peers, {"train/g": 2})
    decision = score_once(build_request(build_pod("w-1", group="g", gpus=4, rails=0), list(state.nodes)), state)
    assert max(decision.scores, key=decision.scores.get) == "a-01"
    assert decision.plan.bandwidth == 1


# --- a job of one pod fills partly used nodes first; then the alignment of its rails decides ------------------


WHERE = {"one leaf": ("leaf-0", "leaf-0"), "two leaves": ("leaf-0", "leaf-1"), "no domains": ("", "")}


def build_pod_with_rails(name, gpus, *rails, on=""):
    """Return a pod with this number of GPUs and one device of each rail."""
    return build_pod_with(name, {GPU: str(gpus)} | {RESOURCES[rail]: "1" for rail in rails}, on=on)


def build_sided_policy(where, **placement):
    return build_policy(shapes=[TWO_SIDED], domains=[LEAF] if where != "no domains" else [], **placement)


def decide_single(where, asking, *bound, rails_each=2, **placement):
    """Return the decision on two nodes, `a` and `b`."""
    nodes = [build_node(name, leaf, rails_each=rails_each) for name, leaf in zip("ab", WHERE[where], strict=True)]
    policy = build_sided_policy(where, **placement)
    return score_once(build_request(asking, ["a", "b"], policy), build_cluster(nodes, bound))


wheres = pytest.mark.parametrize("where", WHERE)


@wheres
def test_the_node_with_aligned_rails_is_best_if_nodes_are_equally_full(where):
    """Both have four free GPUs. On `a` they are on NUMA node 1, and rails 0 and 1 are on NUMA node 0."""
    others = build_pod_with_rails("left", 4, 0, 1, on="a"), build_pod_with_rails("right", 4, 2, 3, on="b")
    decision = decide_single(where, build_pod_with_rails("p", 4, 0, 1), *others)
    assert decision.scores["b"] > decision.scores["a"]
    steps = score_terms.convert_to_priorities(decision.scores.values())
    assert 1 <= 10 - steps[decision.scores["a"]] <= 3, "it decides, and is not all of kube-scheduler's scale"
    assert decision.plan.bandwidth == (0.0 if where == "no domains" else 1.0)
    scores = {name: explanation.terms["numa"] for name, explanation in explain(decision).items()}
    assert scores["a"] == (0.0, "0 of 2 rails on the NUMA node of their GPUs; the pod uses NUMA nodes 0+1")
    assert scores["b"] == (1.0, "GPUs and rails together on NUMA node 0")


@wheres
def test_a_partly_used_node_is_filled_even_if_its_rails_are_on_another_numa_node(where):
    decision = decide_single(
        where,
        build_pod_with_rails("p", 4, 0, 1),
        build_pod_with_rails("left", 4, 0, 1, on="a"),
        build_pod_with_rails("right", 3, 2, 3, on="b"),
    )
    assert decision.scores["a"] > decision.scores["b"]
    steps = score_terms.convert_to_priorities(decision.scores.values())
    assert 1 <= 10 - steps[decision.scores["b"]] <= 3
    if where != "no domains":
        assert decision.plan.bandwidth < 1.0, "what it says is true of the node it leads to"
        diagnosed = diagnosis.explain_plan(decision, cluster_state.ClusterState())
        (why,) = texts(diagnosed.why)
        assert "a single-pod job fills partly used nodes first" in why
        assert (
            explain(decision)["a"].terms["locality"][1] == "a single-pod job fills partly used nodes first, on any leaf"
        )
    assert explain(decision)["a"].terms["numa"] == (
        0.0,
        "0 of 2 rails on the NUMA node of their GPUs; the pod uses NUMA nodes 0+1",
    )


@wheres
def test_an_idle_node_is_preferred_to_a_split_over_numa_nodes(where):
    two_and_two = build_pod_with_rails("left", 2, 0, 1, on="a"), build_pod_with_rails("right", 2, 2, 3, on="a")
    decision = decide_single(where, build_pod_with_rails("p", 4, 0, 1), *two_and_two)
    assert decision.scores["b"] > decision.scores["a"]


@wheres
def test_the_fullness_of_a_node_depends_on_its_gpus_and_not_on_large_pools(where):
    """One more used device of a hundred does not outweigh a node with local rails."""
    others = build_pod_with_rails("left", 4, 0, 1, on="a"), build_pod_with_rails("right", 4, 2, 3, on="b")
    small = [build_pod_with_rails(f"small-{i}", 0, 0, 1, on="a") for i in range(40)]
    decision = decide_single(where, build_pod_with_rails("p", 4, 0, 1), *others, *small, rails_each=100)
    assert decision.scores["b"] > decision.scores["a"]


def test_a_pod_that_needs_an_idle_node_takes_one_in_the_smallest_leaf():
    nodes = [build_node("a-0", "leaf-a"), *(build_node(f"b-{i}", "leaf-b") for i in range(3))]
    state = build_cluster(nodes, [])
    decision = score_once(
        build_request(build_pod_with_rails("p", 4, 0, 1), list(state.nodes), build_sided_policy("two leaves")), state
    )
    assert max(decision.scores, key=decision.scores.__getitem__) == "a-0"
