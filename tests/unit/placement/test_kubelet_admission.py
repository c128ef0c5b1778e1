"""Pods that kubelet's topology manager would reject, by the documentation and source of Kubernetes (1.34)."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import text

from railwright.fabric import node_views, views
from railwright.fabric.placement.nodes import kubelet_admission, numa

GPU, RAILS = "nvidia.com/gpu", tuple(f"nvidia.com/mlx5_{rail}" for rail in range(4))
IDLE = ({GPU: (4, 4), RAILS[0]: (1, 1), RAILS[1]: (1, 1)}, {GPU: (4, 4), RAILS[2]: (1, 1), RAILS[3]: (1, 1)})


def report(*nodes, policy="", scope="", deprecated=""):
    attributes = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    tree = {
        "metadata": {"name": "n"},
        "topologyPolicies": [deprecated] if deprecated else None,
        "attributes": [{"name": name, "value": value} for name, value in attributes.items() if value],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": str(total), "allocatable": str(total), "available": str(free)}
                    for name, (total, free) in zones.items()
                ],
            }
            for number, zones in enumerate(nodes)
        ],
    }
    return msgspec.convert(
        {key: value for key, value in tree.items() if value is not None}, node_views.NodeResourceTopology
    )


def want(gpus=0, *rails):
    return numa.NumaDemand(((GPU, gpus * 1000),) if gpus else (), tuple((RAILS[rail], 1000) for rail in rails))


def find_error(topology_report, demand, *containers):
    zones = numa.read_available_zones(topology_report, {GPU, *RAILS})
    return text(kubelet_admission.find_admission_error(topology_report, zones, demand, containers))


@pytest.mark.parametrize("policy", ["", "none", "best-effort", "of-tomorrow"])
def test_none_and_best_effort_admit_every_pod(policy):
    assert find_error(report(*IDLE, policy=policy), want(8, 0, 1, 2, 3)) == ""


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_whole_node_pod_never_passes_single_numa_node_on_two_numa_nodes(scope):
    message = find_error(report(*IDLE, policy="single-numa-node", scope=scope), want(8))
    assert message == (
        "kubelet would reject the pod (TopologyAffinityError): its topology manager has policy "
        f"single-numa-node, scope {scope}, and no NUMA node has 8 nvidia.com/gpu free together "
        "(free: node 0: 4 nvidia.com/gpu; node 1: 4 nvidia.com/gpu); "
        "request fewer devices or set topologyManagerPolicy: best-effort"
    )


def test_single_numa_node_admits_pods_that_fit_on_one_numa_node():
    topology_report = report(*IDLE, policy="single-numa-node")
    assert find_error(topology_report, want(4, 0, 1)) == ""
    assert "no NUMA node has 4 nvidia.com/gpu, 1 nvidia.com/mlx5_0, 1 nvidia.com/mlx5_2" in find_error(
        topology_report, want(4, 0, 2)
    )
    busy = report({GPU: (4, 2), RAILS[0]: (1, 1)}, {GPU: (4, 2)}, policy="single-numa-node")
    assert find_error(busy, want(2, 0)) == ""
    assert find_error(busy, want(3)) != ""


def test_restricted_admits_the_least_numa_nodes_that_an_empty_node_would_need_and_no_more():
    topology_report = report(*IDLE, policy="restricted")
    assert find_error(topology_report, want(8)) == "", "eight of eight need both"
    assert find_error(topology_report, want(4, 2, 3)) == ""
    two_and_two = report({GPU: (4, 2)}, {GPU: (4, 2)}, policy="restricted")
    assert "no NUMA node has 4 nvidia.com/gpu" in find_error(two_and_two, want(4)), "one would do if it were empty"


def test_restricted_refuses_resources_that_need_different_numbers_of_numa_nodes():
    message = find_error(report(*IDLE, policy="restricted"), want(8, 0, 1, 2, 3))
    assert (
        "the resources need different numbers of NUMA nodes (8 nvidia.com/gpu on 2, 1 nvidia.com/mlx5_0 on 1" in message
    )


def test_the_scope_container_looks_at_each_container_by_itself_and_the_scope_pod_at_their_sum():
    halves = (want(4, 0, 1), want(4, 2, 3))
    whole = want(8, 0, 1, 2, 3)
    by_container = report(*IDLE, policy="single-numa-node", scope="container")
    assert find_error(by_container, whole, *halves) == ""
    assert find_error(by_container, whole, want(4, 0, 1), want(4, 2), want(1, 3)) != "", "the third finds no GPU left"
    assert find_error(report(*IDLE, policy="single-numa-node", scope="pod"), whole, *halves) != ""
    assert find_error(by_container, whole) != "", "not told, they are taken for one"


def test_kubelet_checks_sidecars_and_app_containers_that_request_devices():
    def container(name, gpus, **more):
        return {"name": name, "resources": {"limits": {GPU: str(gpus), "cpu": "4"}}, **more}

    spec = {
        "initContainers": [container("setup", 8), container("agent", 1, restartPolicy="Always")],
        "containers": [container("main", 4), {"name": "logs"}],
    }
    topology_report = kubelet_admission.list_container_demands(msgspec.convert(spec, views.PodSpec), want(5, 0))
    assert topology_report == (want(1), want(4))


def test_a_resource_that_is_not_reported_by_numa_node_has_no_preference():
    topology_report = report({GPU: (4, 4)}, {GPU: (4, 4)}, policy="single-numa-node")
    assert find_error(topology_report, want(4, 0, 3)) == ""
    assert find_error(topology_report, want(0, 0, 3)) == ""
    assert kubelet_admission.find_admission_error(report(*IDLE, policy="single-numa-node"), (), want(8)) is None, (
        "nor is one not known"
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("SingleNUMANodeContainerLevel", ("single-numa-node", "container")),
        ("SingleNUMANodePodLevel", ("single-numa-node", "pod")),
        ("RestrictedPodLevel", ("restricted", "pod")),
        ("BestEffortPodLevel", ("", "container")),
    ],
)
def test_the_deprecated_field_counts_where_no_attribute_is_set(word, expected):
    assert kubelet_admission.read_topology_manager(report(*IDLE, deprecated=word)) == expected
    spoken = report(*IDLE, deprecated=word, policy="best-effort", scope="pod")
    assert kubelet_admission.read_topology_manager(spoken) == ("best-effort", "pod")


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
    names = (GPU, *RAILS)[: len(rows)]
    nodes = [
        {name: pairs[node] for name, (pairs, _) in zip(names, rows, strict=True)} for node in range(len(rows[0][0]))
    ]
    demand = numa.NumaDemand(
        ((GPU, rows[0][1] * 1000),),
        tuple((name, amount * 1000) for name, (_, amount) in zip(names[1:], rows[1:], strict=True)),
    )
    hints_of_rows = [hints([has for has, _ in pairs], [free for _, free in pairs], amount) for pairs, amount in rows]
    message = find_error(report(*nodes, policy=policy), demand)
    assert (message == "") == admits(policy, hints_of_rows)
