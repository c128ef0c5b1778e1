"""The reasons why a plan is not better, and the comparison of a complete gang with the best possible placement."""

import msgspec
import pytest
from placing import (
    GPU,
    RAILS,
    RESOURCES,
    build_cluster,
    build_leaves,
    build_node,
    build_pod,
    build_pod_with,
    build_policy,
    build_request,
)
from wording import text, texts

from railwright.fabric.placement import bandwidth, engine
from railwright.fabric.placement.explain import node_explainer, placement_result
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.policy import model


def messages(nodes, size, pods=(), *, offered=None, rank=0, gpus=8, **placement):
    state = build_cluster(nodes, pods, {"train/gang": size})
    request = build_request(
        build_pod(f"job-worker-{rank}", group="gang", gpus=gpus),
        offered or list(state.nodes),
        build_policy(**placement),
    )
    placement = engine.PlacementEngine(state)
    decision = placement.score(request)
    return decision, texts(placement.explain_plan(decision).why)


def diagnose(state, request):
    """Return a decision and its diagnosis."""
    placement = engine.PlacementEngine(state)
    decision = placement.score(request)
    return decision, placement.explain_plan(decision)


def test_a_gang_on_one_leaf_at_full_bandwidth_gets_no_reason():
    assert messages(build_leaves(a=8), 8)[1] == ()


def test_the_reason_for_two_leaves_is_that_the_largest_holds_too_few_pods():
    _, why = messages(build_leaves(a=5, b=5), 8)
    assert why == ("8 pods remain; the largest leaf, a in s-a, has 5 slots; 2 leaves are needed",)


def test_the_reason_names_why_a_single_leaf_would_be_slower():
    slow = build_node("a-9", "a", spine="s-a", capacity={RESOURCES[2]: "2"})
    _, why = messages([*build_leaves(a=4), slow, *build_leaves(b=3)], 5)
    assert why[0] == (
        "1 leaf has enough slots (a in s-a), but at 0.88 of full bandwidth (modelled): rail2 degraded on 1 node"
    )


def test_the_reason_for_less_bandwidth_names_numa_splits():
    numa = [{"gpus": [0, 1, 2, 3], "rails": list(RAILS)}, {"gpus": [4, 5, 6, 7], "rails": []}]
    shape = msgspec.convert({"name": "lopsided", "match": {"kind": "lopsided"}, "numa": numa}, model.NodeShape)
    nodes = [build_node(f"a-{i}", "a", spine="s-a", labels={"kind": "lopsided"}) for i in range(4)]
    busy = [build_pod(f"busy-{i}", gpus=4, rails=0, on=f"a-{i}") for i in range(4)]  # the GPUs beside the rails
    state = build_cluster(nodes, busy, {"train/gang": 4})
    request = build_request(
        build_pod("job-worker-0", group="gang", gpus=4), list(state.nodes), build_policy(shapes=[shape])
    )
    decision, diagnosed = diagnose(state, request)
    assert decision.plan.bandwidth == pytest.approx(bandwidth.MISALIGNED)
    (why,) = texts(diagnosed.why)
    assert why == (
        "the gang gets 0.63 of full bandwidth (modelled): faster nodes have slots for 0 of the 4 pods; "
        "NUMA splits on 4 nodes"
    )


@pytest.mark.parametrize(
    ("pods", "number", "shared"),
    [((), 2, "pods of the gang share NICs"), ((build_pod("b", gpus=2, on="a-0"),), 1, "NICs shared with other pods")],
)
def test_a_node_on_which_pods_share_nics_is_degraded(pods, number, shared):
    nodes = [build_node("a-0", "a", rails_each=100)]
    decision, _ = messages(nodes, 2, pods, gpus=2)
    assert texts(node_explainer.list_degradations(decision.view.get_class("a-0"), number)) == (shared,)


def test_the_reason_for_less_bandwidth_names_the_uplinks_of_a_small_leaf():
    _, why = messages(build_leaves(a=1, b=1), 2, oversubscription=[7])
    assert why[0].endswith("2 leaves are needed")
    assert why[1].startswith(
        "the gang gets 0.14 of full bandwidth (modelled): the uplinks of a in s-a (1 node, 7:1) carry 0.14"
    )


def test_the_reason_names_the_rails_that_the_gang_cannot_use():
    taken = [build_pod(f"busy-{i}", gpus=0, on=f"a-{i:02}", rails=0, annotations={}) for i in range(4)]
    nodes = [build_node(f"a-{i}", "a", spine="s-a", rails_each=dict.fromkeys(RESOURCES[:3], 1)) for i in range(4)]
    state = build_cluster(nodes, taken, {"train/gang": 4})
    task = build_pod("job-worker-0", group="gang", rails=0)
    decision, diagnosed = diagnose(state, build_request(task, list(state.nodes)))
    assert decision.plan.bandwidth == pytest.approx(0.75)
    assert texts(diagnosed.why) == (
        (
            "the gang gets 0.75 of full bandwidth (modelled): faster nodes have slots for 0 of the 4 pods; "
            "rail3 dead or absent on 4 nodes"
        ),
    )


def test_the_reason_for_a_shortage_names_the_missing_devices_and_their_users():
    held = [build_pod("llm-3", gpus=0, rails=0, on="a-02")]
    held[0].spec.containers[0].resources.requests_or_none.update({RESOURCES[2]: "1"})
    shortage = "1 node: rail2 has 0 of 1 free, 1 needed"
    decision, why = messages(build_leaves(a=6), 6, held)
    assert not decision.plan.is_complete
    remain = "6 pods remain, each with rail0..rail3; the cluster has slots for 5"
    assert why == (remain, shortage, "rail2 on a-02 is used by train/llm-3")
    _, why = messages(build_leaves(a=6), 8, held)
    assert why == ("the gang never fits: it needs 8 slots, and without any other pod the eligible nodes have 6",)


def test_the_reason_for_a_shortage_names_what_partly_used_nodes_lack_and_its_users():
    held = [build_pod(f"llm-{i}", gpus=4, rails=0, on=f"a-0{i}") for i in range(2)]
    nodes = [build_node(f"a-0{i}", "a", spine="s-a", rails_each=4) for i in range(2)]
    _, why = messages(nodes, 3, held, gpus=4)
    remain = "3 pods remain, each with rail0..rail3; the cluster has slots for 2"
    users = "nvidia.com/gpu on a-00 is used by train/llm-0; nvidia.com/gpu on a-01 is used by train/llm-1"
    assert why == (remain, "2 nodes: nvidia.com/gpu has 4 of 8 free", users)
    peer = build_pod("job-worker-0", group="gang", gpus=4, on="a-00")
    _, why = messages(nodes, 4, [peer, held[1]], rank=1, gpus=4)
    assert why[-1] == "nvidia.com/gpu on a-01 is used by train/llm-1"
    _, why = messages(nodes, 5, held, gpus=4)
    assert why == ("the gang never fits: it needs 5 slots, and without any other pod the eligible nodes have 4",)


def test_the_only_reason_of_a_gang_that_never_fits_names_the_missing_resources():
    _, why = messages(build_leaves(a=3), 2, gpus=16)
    reason = (
        "the gang never fits (3 nodes: nvidia.com/gpu has 8 of 8 free, 16 needed): it needs 2 slots, and without any "
        "other pod the eligible nodes have 0"
    )
    assert why == (reason,)


def test_a_gang_is_said_never_to_fit_only_if_it_would_not_fit_without_other_pods():
    held = [build_pod("llm-3", gpus=8, on="a-02")]
    _, why = messages(build_leaves(a=6), 6, held)
    assert why[0] == "6 pods remain, each with rail0..rail3; the cluster has slots for 5"
    _, why = messages(build_leaves(a=6), 7, held)
    assert why[0].startswith(
        "the gang never fits: it needs 7 slots, and without any other pod the eligible nodes have 6"
    )


HELD, PEER = build_pod("llm-3", on="a-01"), build_pod("job-worker-0", group="gang", on="a-00")
LAUNCHER = build_pod("job-launcher", group="gang", gpus=0, rails=0, on="a-00")
CORDONED = [build_node("a-00", "a", unschedulable=True), build_node("a-01", "a")]


@pytest.mark.parametrize(
    ("nodes", "pods", "size", "domains"),
    [
        (CORDONED, [HELD, PEER], 2, True),
        (CORDONED, [HELD, PEER], 2, False),
        (build_leaves(a=2), [HELD, PEER, LAUNCHER], 3, True),
        ([build_node("a-00"), build_node("a-01")], [HELD, PEER], 2, True),
    ],
    ids=["placed on a cordoned node", "cordoned, without domains", "with a placed launcher", "on unlabelled nodes"],
)
def test_a_gang_that_waits_for_another_pod_to_end_is_not_said_never_to_fit(nodes, pods, size, domains):
    placement = {} if domains else {"domains": [], "oversubscription": []}
    _, why = messages(nodes, size, pods, rank=1, **placement)
    assert "llm-3" in why[-1]
    assert not [reason for reason in why if "never fits" in reason]


@pytest.mark.parametrize("placement", [{}, {"domains": [], "oversubscription": []}], ids=["domains", "no domains"])
def test_small_pods_on_one_node_count_as_one_slot(placement):
    workers = [build_pod_with(f"job-worker-{rank}", {GPU: "1"}, group="gang", on="a-00") for rank in range(1, 9)]
    _, why = messages(build_leaves(a=2), 9, [HELD, *workers], **placement)
    assert "llm-3" in why[-1]
    assert not [reason for reason in why if "never fits" in reason]


@pytest.mark.parametrize("driver", [0, 1, 8])
@pytest.mark.parametrize(("workers", "never"), [(3, False), (4, True)])
def test_a_gang_never_fits_if_its_largest_pods_do_not_fit(driver, workers, never):
    pods = [build_pod_with("job-driver", {GPU: str(driver)}, group="gang")]
    pods += [build_pod(f"job-worker-{rank}", group="gang") for rank in range(1, workers)]
    others = [build_pod("llm-3", on="a-00"), build_pod("llm-4", on="a-01"), build_pod("llm-5", on="a-02")]
    _, why = messages(build_leaves(a=3), workers + 1, [*others, *pods])
    assert any("never fits" in reason for reason in why) == never


def test_a_small_placed_pod_beside_which_a_large_one_fits_uses_no_slot():
    driver = build_pod_with("job-driver", {GPU: "2"}, group="gang", on="a-00")
    held = build_pod_with("llm-3", {GPU: "8"}, on="a-01")
    _, why = messages([build_node(f"a-0{at}", "a", rails_each=9) for at in range(2)], 5, [driver, held], gpus=3)
    assert "llm-3" in why[-1]
    assert not [reason for reason in why if "never fits" in reason]


def test_a_shortage_counts_the_slots_of_unlabelled_nodes():
    _, why = messages([build_node("a-00"), build_node("a-01")], 2, [HELD])
    assert why[0] == "2 pods remain, each with rail0..rail3; the cluster has slots for 1"


def test_the_reason_for_a_shortage_names_ineligible_nodes():
    nodes = [
        *build_leaves(a=2),
        build_node("b-0", "b", unschedulable=True),
        build_node("c-0", "c", taints=[{"key": "x", "effect": "NoSchedule"}]),
    ]
    _, why = messages(nodes, 4)
    assert "2 nodes: cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity" in why[0]


def test_the_explanation_names_too_little_cpu_and_a_node_that_the_cache_lacks():
    state = build_cluster(build_leaves(a=1), [build_pod_with("hog", {"cpu": "126"}, on="a-00")])
    request = build_request(build_pod_with("w", {GPU: "8", "cpu": "4"}), ["a-00", "later"], build_policy())
    decision, given = diagnose(state, request)
    assert "too little CPU or memory, or too many pods" in " ".join(texts(given.why))
    rows = {row.node: row for row in node_explainer.explain_nodes(decision, state, {})}
    assert text(rows["later"].reasons[0]) == "the extender's cache does not contain this node yet, so its score is 0"


def test_the_search_for_pods_that_use_missing_devices_visits_a_limited_number_of_nodes(monkeypatch):
    """Nodes without rails, in any number, have no such pods."""
    searched, list_holders = [], pod_usage.list_holders

    def record_call(node, *args, **kinds):
        searched.append(node)
        return list_holders(node, *args, **kinds)

    monkeypatch.setattr(pod_usage, "list_holders", record_call)
    _, why = messages([build_node(f"n-{i}", "a", rails_each={}) for i in range(1000)], 2)
    assert why
    assert len(searched) < 400


def test_the_reason_for_less_bandwidth_names_nodes_without_a_domain_label():
    decision, why = messages([build_node(f"bare-{i}", spine="") for i in range(3)], 2)
    assert decision.plan.is_complete
    message = "only nodes without a topology label have slots for the 2 pods still to be placed; label these nodes"
    assert why == (message,)


# --- the placement that a gang has ----------------------------------------------------------------------------


LEAF_A, LEAF_B = ("a", "s"), ("b", "s")
SIZES = {LEAF_A: 4, LEAF_B: 1, ("s",): 5}


def build_node_class(**changed):
    """Return the class of a node for a gang's member."""
    state = build_cluster([build_node("n", "a", **changed)], (), {"train/gang": 4})
    decision = engine.PlacementEngine(state).score(build_request(build_pod("w-0", group="gang"), ["n"]))
    return decision.view.get_class("n")


def places(*where, **stood):
    return [
        placement_result.PlacedPod(f"n-{i}", leaf, stood.get(f"n{i}", build_node_class()))
        for i, leaf in enumerate(where)
    ]


def test_a_ring_with_ranks_out_of_order_crosses_uplinks_more_often():
    sizes = SIZES | {LEAF_B: 4}
    in_order = placement_result.compute_placement(places(LEAF_A, LEAF_A, LEAF_B, LEAF_B), bandwidth.Uplinks(sizes, [7]))
    mixed = placement_result.compute_placement(places(LEAF_A, LEAF_B, LEAF_A, LEAF_B), bandwidth.Uplinks(sizes, [7]))
    assert in_order.bandwidth == pytest.approx(4 / 7)
    assert mixed.bandwidth == pytest.approx(2 / 7)
    assert "carry 0.29 for each of 2 crossings" in text(mixed.causes[0])


@pytest.mark.parametrize(("lost", "value"), [({"n2": 3}, 0.75), ({"n0": 0, "n2": 3}, 0.5)])
def test_a_rail_that_one_pod_lacks_is_not_used_by_the_gang(lost, value):
    def remove_rail(rail):
        bad = build_node_class(rails_each={item: 1 for item in RESOURCES if item != RESOURCES[rail]})
        return msgspec.structs.replace(bad, slot_numa_factors=(1.0,))

    lacking = {name: remove_rail(rail) for name, rail in lost.items()}
    placement = placement_result.compute_placement(places(*[LEAF_A] * 4, **lacking), bandwidth.Uplinks(SIZES, [1]))
    assert placement.bandwidth == pytest.approx(value)
    assert "rail3 dead or absent on n-2" in texts(placement.causes)
