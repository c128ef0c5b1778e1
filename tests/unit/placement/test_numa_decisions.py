"""Effect of NUMA nodes on a decision: `required` filters, `preferred` scores, `ignore` does neither."""

import msgspec
import pytest
from placing import (
    GPU,
    RESOURCES,
    TWO_SIDED,
    build_assumed_pod,
    build_cluster,
    build_pod_with,
    build_report,
    build_request,
    create_assumed_pods,
    explain,
    node,
    pod,
    policy,
    score_once,
)
from wording import text

from railwright.fabric import resources, views
from railwright.fabric.placement import engine, scheduling_request

HALF = {GPU: "4", RESOURCES[0]: "1", RESOURCES[1]: "1"}


def explain_both(numa, *, shapes=(TWO_SIDED,)):
    """Return a pod of 4 GPUs and rails 0 and 1: on `near` their NUMA node is free, on `far` its GPUs are taken."""
    nodes = [node("far", "leaf"), node("near", "leaf")]
    taken = [
        build_pod_with("a", {GPU: "3", RESOURCES[2]: "1"}, on="near"),
        build_pod_with("b", {GPU: "3"}, on="far"),
    ]
    asking = build_pod_with("p-0", HALF, group="g")  # of a gang: a job of one pod uses no rail
    request = build_request(asking, ["far", "near"], policy(numa=numa, shapes=shapes))
    return explain(score_once(request, build_cluster(nodes, taken, {"train/g": 2})))


def test_required_filters_a_node_with_free_gpus_away_from_the_rails():
    topology_report = explain_both("required")
    assert topology_report["near"].refusal is None
    assert "NUMA" in text(topology_report["far"].refusal)
    assert not topology_report["far"].is_unresolvable, "once the other pod has gone it fits"


def test_preferred_only_scores_and_ignore_does_not_look():
    preferred, ignored = explain_both("preferred"), explain_both("ignore")
    assert preferred["far"].refusal is ignored["far"].refusal is None
    assert preferred["near"].score > preferred["far"].score
    assert ignored["near"].score == pytest.approx(ignored["far"].score, abs=3), "packing alone"


def test_required_filters_nothing_where_no_layout_is_known():
    assert explain_both("required", shapes=())["far"].refusal is None


# --- what kubelet's topology manager would surely reject --------------------------------------------------


def decide(asking, topology_report, *, numa: str, bound=(), entries=()):
    state = build_cluster([node("n", "leaf")], bound)
    state.upsert_topology(topology_report)
    assumed = create_assumed_pods()
    for entry in entries:
        assumed.assume(build_assumed_pod(entry, "n"))
    request = build_request(asking, ["n"], policy(numa=numa))
    filtered = engine.PlacementEngine(state, assumed).filter(request)
    (explanation,) = explain(score_once(request, state, assumed)).values()
    assert (explanation.refusal is not None) == ("n" not in filtered.feasible)
    messages = {rejection.is_unresolvable: text(rejection.reason) for rejection in filtered.rejections.values()}
    return messages.get(True, ""), messages.get(False, ""), explanation


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize(
    ("manager", "requests", "because"),
    [
        ("single-numa-node", {GPU: "8"}, "no NUMA node has 8 nvidia.com/gpu free together"),
        ("single-numa-node", {GPU: "8", RESOURCES[0]: "1"}, "no NUMA node has 8 nvidia.com/gpu, 1 nvidia.com/mlx5_0"),
        (
            "restricted",
            {GPU: "8", RESOURCES[0]: "1"},
            "the resources need different numbers of NUMA nodes (8 nvidia.com/gpu on 2, 1 nvidia",
        ),
    ],
)
def test_a_pod_that_kubelet_rejects_on_the_empty_node_is_unresolvable(manager, requests, because, scope):
    topology_report = build_report(4, 4, manager=manager, scope=scope, rails=[[RESOURCES[0]]])
    never, busy, explanation = decide(build_pod_with("p", requests), topology_report, numa="preferred")
    assert because in never
    assert f"kubelet would reject the pod (TopologyAffinityError): its topology manager has policy {manager}" in never
    assert f"scope {scope}" in never
    assert (busy, explanation.score) == ("", 0)
    assert decide(build_pod_with("p", requests), topology_report, numa="required")[0], (
        "for this reason or for rails far away"
    )
    assert decide(build_pod_with("p", requests), topology_report, numa="ignore")[2].refusal is None


@pytest.mark.parametrize("manager", ["restricted", "single-numa-node"])
def test_a_pod_that_kubelet_rejects_now_is_filtered_until_devices_are_free_and_never_with_ignore(manager):
    taken = build_pod_with("a", {GPU: "2"}, on="n"), build_pod_with("b", {GPU: "2"}, on="n")
    asking, topology_report = build_pod_with("p", {GPU: "4"}), build_report(2, 2, manager=manager)
    never, busy, explanation = decide(asking, topology_report, numa="preferred", bound=taken)
    assert never == ""
    assert "TopologyAffinityError" in busy
    assert "free: node 0: 2 nvidia.com/gpu; node 1: 2 nvidia.com/gpu" in busy
    assert explanation.score == 0
    assert decide(asking, build_report(4, 0, manager=manager), numa="preferred", bound=taken)[1] == ""
    assert decide(asking, topology_report, numa="ignore", bound=taken)[2].refusal is None
    assert decide(asking, build_report(2, 2, manager="best-effort"), numa="preferred", bound=taken)[2].refusal is None


def test_with_the_scope_container_the_devices_of_each_container_count():
    halves = [
        views.Container(name=name, resources=views.ResourceRequirements(requests_or_none={GPU: "4"})) for name in "ab"
    ]
    asking = msgspec.structs.replace(pod("p"), spec=views.PodSpec(containers_or_none=halves))
    assert decide(asking, build_report(4, 4, manager="single-numa-node"), numa="preferred")[2].refusal is None
    assert (
        "scope pod" in decide(asking, build_report(4, 4, manager="single-numa-node", scope="pod"), numa="preferred")[0]
    )


@pytest.mark.parametrize(
    "doubt", ["bound since the report", "announced since the report", "a pod has left since", "none"]
)
def test_preferred_filters_nothing_by_an_estimate_of_free_devices(doubt):
    """Which NUMA node a pod has is a guess until kubelet reports it, and devices of pods that left come back."""
    old = build_pod_with("a", {GPU: "2"}, on="n"), build_pod_with("b", {GPU: "2"}, on="n")
    topology_report, entries, bound = (
        build_report(2, 2, manager="single-numa-node", written="2026-11-22T13:00:00Z"),
        (),
        old,
    )
    if doubt == "bound since the report":
        bound = (*old, build_pod_with("c", {GPU: "1"}, on="n"))
    elif doubt == "announced since the report":
        entries = (build_pod_with("c", {GPU: "1"}),)
    elif doubt == "a pod has left since":
        bound = old[:1]
    _, busy, _ = decide(
        build_pod_with("p", {GPU: "3"}), topology_report, numa="preferred", bound=bound, entries=entries
    )
    assert (busy != "") == (doubt == "none")


def test_devices_of_terminating_pods_known_to_volcano_filter_nothing():
    leaving = build_pod_with("a", {GPU: "2"}, on="n"), build_pod_with("b", {GPU: "2"}, on="n")
    state = build_cluster([node("n", "leaf")], leaving)
    state.upsert_topology(build_report(2, 2, manager="single-numa-node"))
    request = build_request(build_pod_with("p", {GPU: "4"}), ["n"], policy(numa="preferred"))

    def is_refused(free: int, promised: int | None) -> bool:
        amounts = {"cpu": 1 << 40, "memory": 1 << 60, "pods": 100_000, **dict.fromkeys(RESOURCES, 1000)}
        later = None if promised is None else resources.freeze(amounts | {GPU: promised * 1000})
        offers = {
            "n": scheduling_request.NodeOffer(idle=resources.freeze(amounts | {GPU: free * 1000}), future_idle=later)
        }
        return bool(
            engine.PlacementEngine(state, create_assumed_pods())
            .filter(msgspec.structs.replace(request, offers=offers))
            .rejected
        )

    assert is_refused(4, None)
    assert not is_refused(2, 6), "once a pod has gone kubelet admits it"
    assert not is_refused(6, None), "Volcano has seen a pod go before our watch has"
