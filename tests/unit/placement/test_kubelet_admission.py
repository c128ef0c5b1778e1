"""Pods that kubelet's topology manager would reject, by the documentation and source of Kubernetes (1.34)."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import (
    GPU,
    RESOURCES,
    TWO_SIDED,
    build_cluster,
    build_pod_with,
    build_report,
    build_request,
    build_topology,
    explain,
    node,
    policy,
    score_once,
)
from wording import text

from railwright.fabric import views
from railwright.fabric.placement import engine
from railwright.fabric.placement.nodes import kubelet_admission, numa

IDLE = (
    {GPU: (4, 4), RESOURCES[0]: (1, 1), RESOURCES[1]: (1, 1)},
    {GPU: (4, 4), RESOURCES[2]: (1, 1), RESOURCES[3]: (1, 1)},
)


def want(gpus=0, *rails):
    return (*(((GPU, gpus * 1000),) if gpus else ()), *[(RESOURCES[rail], 1000) for rail in rails])


def find_error(topology_report, requested, *containers):
    zones = numa.read_available_zones(topology_report, {GPU, *RESOURCES})
    error = kubelet_admission.find_admission_error(topology_report, zones, requested, containers or [requested])
    return text(error)


@pytest.mark.parametrize("policy", ["", "none", "best-effort", "of-tomorrow"])
def test_none_and_best_effort_admit_every_pod(policy):
    assert find_error(build_topology(*IDLE, manager=policy), want(8, 0, 1, 2, 3)) == ""


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_whole_node_pod_never_passes_single_numa_node_on_two_numa_nodes(scope):
    message = find_error(build_topology(*IDLE, manager="single-numa-node", scope=scope), want(8))
    assert message == (
        "kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
        f"single-numa-node, scope {scope}, and 8 nvidia.com/gpu are not free together on 1 of its NUMA nodes; "
        "request fewer devices or set topologyManagerPolicy: best-effort"
    )


def test_the_scope_container_looks_at_each_container_by_itself_and_the_scope_pod_at_their_sum():
    halves = (want(4, 0, 1), want(4, 2, 3))
    whole = want(8, 0, 1, 2, 3)
    by_container = build_topology(*IDLE, manager="single-numa-node", scope="container")
    assert find_error(by_container, whole, *halves) == ""
    assert find_error(by_container, whole, want(4, 0, 1), want(4, 2), want(1, 3)) != "", "the third finds no GPU left"
    assert find_error(build_topology(*IDLE, manager="single-numa-node", scope="pod"), whole, *halves) != ""
    assert find_error(by_container, whole) != "", "of one container"


def test_kubelet_checks_sidecars_and_app_containers_that_request_devices():
    def container(name, gpus, **more):
        return {"name": name, "resources": {"limits": {GPU: str(gpus), "cpu": "4"}}, **more}

    spec = {
        "initContainers": [container("setup", 8), container("agent", 1, restartPolicy="Always")],
        "containers": [container("main", 4), {"name": "logs"}],
    }
    by_container = kubelet_admission.list_container_devices(msgspec.convert(spec, views.PodSpec), [GPU, RESOURCES[0]])
    assert by_container == (want(1), want(4))


def test_a_resource_that_is_not_reported_by_numa_node_has_no_preference():
    topology_report = build_topology({GPU: (4, 4)}, {GPU: (4, 4)}, manager="single-numa-node")
    assert find_error(topology_report, want(4, 0, 3)) == ""
    assert find_error(topology_report, want(0, 0, 3)) == ""
    unknown = build_topology(*IDLE, manager="single-numa-node")
    assert kubelet_admission.find_admission_error(unknown, (), want(8), [want(8)]) is None, "nor is one not known"


def hints(has, free, amount):
    """Return {mask: preferred} of one resource, as devicemanager/topology_hints.go does."""
    nodes = range(len(has))
    masks = [mask for size in range(1, len(has) + 1) for mask in itertools.combinations(nodes, size)]
    least = min((len(mask) for mask in masks if sum(has[node] for node in mask) >= amount), default=len(has))
    return {mask: len(mask) == least for mask in masks if sum(free[node] for node in mask) >= amount}


def admits(policy, given_hints):
    """Return whether the merged hint is preferred, as policy.go and policy_single_numa_node.go compute it."""
    if policy == "single-numa-node":
        given_hints = [
            {mask: good for mask, good in given_hint.items() if len(mask) == 1 and good} for given_hint in given_hints
        ]
    return any(
        all(mask == masks[0] for mask in masks)
        and all(hint[mask] for mask, hint in zip(masks, given_hints, strict=True))
        for masks in itertools.product(*given_hints)
    )


ROWS = st.integers(1, 3).flatmap(
    lambda nodes: st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=nodes, max_size=nodes),
            st.integers(1, 6),
        ),
        min_size=1,
        max_size=3,
    )
)


@given(ROWS, st.sampled_from(["restricted", "single-numa-node"]))
def test_the_admission_error_agrees_with_merging_all_hints(rows, policy):
    rows = [([(max(pair), min(pair)) for pair in pairs], amount) for pairs, amount in rows]
    names = (GPU, *RESOURCES)[: len(rows)]
    nodes = [
        {name: pairs[node] for name, (pairs, _) in zip(names, rows, strict=True)} for node in range(len(rows[0][0]))
    ]
    demand = tuple((name, amount * 1000) for name, (_, amount) in zip(names, rows, strict=True))
    hints_of_rows = [hints([has for has, _ in pairs], [free for _, free in pairs], amount) for pairs, amount in rows]
    message = find_error(build_topology(*nodes, manager=policy), demand)
    assert (message == "") == admits(policy, hints_of_rows)


# --- effect of NUMA nodes on a decision: `preferred` scores, `ignore` does not ------------------------------


HALF = {GPU: "4", RESOURCES[0]: "1", RESOURCES[1]: "1"}


HALVES = [build_pod_with(f"half-{side}", {GPU: "2", RESOURCES[side]: "1"}, on="n") for side in (0, 2)]
UNSPLIT = {  # pods on the node, the requests of a pod, pods of its gang: slots, and those without a split
    "GPUs on the other NUMA node than the rails": ((), HALF, 2, (2, 1)),
    "the same for a single-pod job, which uses no rail": ((), HALF, 1, (2, 2)),
    "two GPUs left on each NUMA node": (HALVES, {GPU: "4", RESOURCES[0]: "1"}, 2, (1, 0)),
    "as many NUMA nodes as on an empty node": ((), {GPU: "6", RESOURCES[0]: "1"}, 2, (1, 1)),
}


@pytest.mark.parametrize(("pods", "requests", "size", "expected"), UNSPLIT.values(), ids=UNSPLIT)
def test_slots_on_more_numa_nodes_than_necessary_are_split(pods, requests, size, expected):
    state = build_cluster([node("n", "leaf", rails_each=2)], pods, {"train/g": size})
    request = build_request(build_pod_with("p", requests, group="g"), ["n"], policy(shapes=[TWO_SIDED]))
    index = engine.PlacementEngine(state).get_index(request)
    capacity = index.class_of_node["n"].capacity
    assert (len(capacity.slot_numa_factors), capacity.unsplit_slots) == expected


# --- what kubelet's topology manager would surely reject --------------------------------------------------


def find_fault(asking, topology_report, *, bound=()) -> str:
    """Return why a node comes last; "" if it does not. The other node, without a report, always scores."""
    state = build_cluster([node("n", "leaf"), node("other", "leaf")], bound)
    state.upsert_topology(topology_report)
    request = build_request(asking, ["n", "other"], policy())
    explained = explain(score_once(request, state))
    assert not engine.PlacementEngine(state).find_refusals(request)
    assert (explained["n"].score == 0) == (explained["n"].fault is not None)
    assert explained["other"].score > 0
    return "" if explained["n"].fault is None else text(explained["n"].fault)


@pytest.mark.parametrize("manager", ["restricted", "single-numa-node"])
def test_a_node_whose_kubelet_would_reject_the_pod_now_comes_last_until_devices_are_free(manager):
    taken = build_pod_with("a", {GPU: "2"}, on="n"), build_pod_with("b", {GPU: "2"}, on="n")
    asking, topology_report = build_pod_with("p", {GPU: "4"}), build_report(2, 2, manager=manager)
    busy = find_fault(asking, topology_report, bound=taken)
    assert "TopologyAffinityError" in busy
    assert "4 nvidia.com/gpu are not free together on 1 of its NUMA nodes" in busy
    assert find_fault(asking, build_report(4, 0, manager=manager), bound=taken) == ""
    assert find_fault(asking, build_report(2, 2, manager="best-effort"), bound=taken) == ""


def test_a_node_that_volcano_offers_comes_last_unless_its_pods_have_to_leave_first():
    state = build_cluster([node("n", "leaf")], [build_pod_with(name, {GPU: "2"}, on="n") for name in "ab"])
    state.upsert_topology(build_report(2, 2, manager="single-numa-node"))

    def is_last(gpus: int) -> bool:
        request = build_request(build_pod_with("p", {GPU: str(gpus)}), ["n"], policy())
        decision = score_once(msgspec.structs.replace(request, is_announced=True), state)
        return explain(decision)["n"].fault is not None

    assert is_last(4), "4 of 8 are free, on two NUMA nodes"
    state.upsert_pod(build_pod_with("c", {GPU: "2"}, on="n"))
    assert not is_last(4)
