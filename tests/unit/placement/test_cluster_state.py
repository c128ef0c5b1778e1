"""The known cluster, in any order of events: pods and their use, assumed pods, devices by state."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import GPU, RESOURCES, build_assumed_pod, build_cluster, build_node, build_pod, build_policy, change_pod

from extender import cluster_reports
from railwright.fabric.placement.state import assumed_pods, gang_status
from railwright.fabric.policy import model
from railwright.fabric.workloads import membership

PODS = st.builds(
    build_pod,
    st.sampled_from(["a", "b", "c", "d"]),
    gpus=st.integers(0, 8),
    on=st.sampled_from(["", "n1", "n2"]),
    group=st.sampled_from(["", "g"]),
)


@given(st.lists(st.one_of(st.tuples(st.just("upsert"), PODS), st.tuples(st.just("remove"), PODS)), max_size=20))
def test_usage_is_the_sum_over_the_bound_pods_after_any_events(events):
    state, last = build_cluster([build_node("n1"), build_node("n2")]), {}
    for verb, event in events:
        if verb == "upsert":
            state.upsert_pod(event)
            last[event.metadata.uid] = event
        else:
            state.remove_pod(event.metadata.uid)
            last.pop(event.metadata.uid, None)
    for name in ("n1", "n2"):
        here = [pod for pod in last.values() if pod.spec.node_name == name]
        expected = sum(int(pod.spec.containers[0].resources.requests[GPU]) for pod in here)
        assert state.get_used(name).get(GPU, 0) == expected * 1000
        assert {p.uid for p in state.list_pods_on(name)} == {pod.metadata.uid for pod in here}
    gang = {uid for uid, pod in last.items() if pod.metadata.annotations}
    assert set(state.get_gang("train/g")) == gang
    unbound = {uid for uid in gang if not last[uid].spec.node_name}
    assert gang_status.count_unplaced_pods("train/g", state) == len(unbound)
    for uid in sorted(gang)[:2]:  # bound or not
        state.assumed.assume(build_assumed_pod(last[uid], "n1"))
    assert gang_status.count_unplaced_pods("train/g", state) == len(unbound.difference(sorted(gang)[:2]))


def test_a_heartbeat_of_a_node_is_not_recorded_as_a_change():
    state = build_cluster(
        [build_node("n", "a")], [build_pod("bound", group="g", on="n"), build_pod("waits", group="g")]
    )
    position = state.change_log.position
    state.upsert_node(build_node("n", "a"))
    state.upsert_pod(build_pod("bound", group="g", on="n"))
    assert state.change_log.position == position
    state.upsert_node(build_node("n", "b"))
    state.upsert_pod(build_pod("bound", group="g", gpus=4, on="n"))
    assert state.change_log.position > position
    assert state.get_used("n")[GPU] == 4000


def test_a_terminating_pod_leaves_its_gang_and_keeps_its_devices():
    state = build_cluster([build_node("n", "a")], [build_pod("p", group="g", on="n")])
    at = {"deletion_timestamp": "2026-01-01T00:00:00Z"}
    state.upsert_pod(change_pod(build_pod("p", group="g", on="n"), metadata=at))
    assert not state.get_gang(membership.GangKey("train/g"))
    assert state.get_used("n")[GPU] == 8000


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_no_devices(phase):
    state = build_cluster([build_node("n", "a")], [build_pod("p", on="n")])
    assert state.get_used("n")[GPU] == 8000
    state.upsert_pod(change_pod(build_pod("p", on="n"), status={"phase": phase}))
    assert not state.get_used("n").get(GPU)


# --- assumed pods: after any events exactly those that are still announced ------------------------------------


ALLOCATED, PIPELINED = assumed_pods.State.ALLOCATED, assumed_pods.State.PIPELINED
UIDS = st.sampled_from(["a", "b", "c"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("assume"), UIDS, st.sampled_from(["n1", "n2"]), st.sampled_from([ALLOCATED, PIPELINED])),
        st.tuples(st.just("forget"), UIDS),
        st.tuples(st.just("end_session")),
    ),
    max_size=30,
)


@given(EVENTS)
def test_the_indexes_of_assumed_pods_equal_a_recomputation_after_any_events(events):
    assumed, expected = assumed_pods.AssumedPods([].append), {}
    for event in events:
        match event:
            case ("assume", name, node, state):
                assumed.assume(build_assumed_pod(build_pod(name, group="g"), node, state=state))
                expected[name] = (node, state)
            case ("forget", name):
                assumed.forget(f"uid-{name}")
                expected.pop(name, None)
            case ("end_session",):
                assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
                expected = {k: v for k, v in expected.items() if v[1] is not PIPELINED}
    held = {assumed_pod.uid.removeprefix("uid-"): assumed_pod.node for assumed_pod in assumed}
    assert held == {name: node for name, (node, _) in expected.items()}
    assert sorted(e.uid for n in ("n1", "n2") for e in assumed.list_on_node(n)) == sorted(f"uid-{n}" for n in expected)
    assert len(list(assumed.list_of_gang("train/g"))) == len(expected)


def test_closing_a_session_removes_pipelined_pods_of_its_own_scope_only():
    assumed = assumed_pods.AssumedPods([].append)
    assumed.assume(build_assumed_pod(build_pod("a"), "n1", state=PIPELINED, scope="east"))
    assumed.assume(build_assumed_pod(build_pod("b"), "n1", state=PIPELINED, scope="west"))
    assumed.assume(build_assumed_pod(build_pod("c"), "n1", scope="east"))
    assumed.end_session("east", now=5.0)
    assert {assumed_pod.uid: assumed_pod.state for assumed_pod in assumed} == {
        "uid-b": PIPELINED,
        "uid-c": assumed_pods.State.UNCONFIRMED,
    }


def test_an_unconfirmed_pod_is_assumed_for_exactly_the_configured_time():
    assumed = assumed_pods.AssumedPods([].append)
    assumed.assume(build_assumed_pod(build_pod("a"), "n1", since=100.0))
    assumed.expire(130.0, 30)
    assert len(assumed) == 1
    assumed.expire(130.1, 30)
    assert len(assumed) == 0


def test_closing_a_session_again_does_not_prolong_unconfirmed_pods():
    assumed = assumed_pods.AssumedPods([].append)
    assumed.assume(build_assumed_pod(build_pod("a"), "n1", since=0.0))
    assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
    assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=25.0)
    assumed.expire(31.5, 30)
    assert len(assumed) == 0


# --- the devices of every rail by their state -----------------------------------------------------------------


FREE, BUSY, DEAD, MISSING, OUT, BEYOND = cluster_reports.DeviceState
RAIL0 = RESOURCES[0]


ILL = build_node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "1"))
CORDONED = build_node("a", rails_each=2, unschedulable=True)
HOLDER = build_pod("p", on="a")


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        ([build_node("a"), build_node("b")], [HOLDER, build_pod("waiting")], (1, 1, 0, 0)),
        ([ILL, build_node("b")], [], (1, 0, 1, 0)),
        ([ILL], [HOLDER], (0, 1, 0, 0)),
        ([CORDONED], [HOLDER], (0, 1, 0, 1)),
    ],
    ids=["requested by a bound pod", "not allocatable", "failed under a pod", "of a cordoned node"],
)
def test_devices_are_counted_as_free_busy_dead_or_unschedulable(nodes, pods, expected):
    cluster = build_cluster(nodes, pods)
    counts = cluster_reports.count_devices(cluster.nodes.values(), cluster, [RAIL0])
    assert tuple(counts[RAIL0, state] for state in (FREE, BUSY, DEAD, OUT)) == expected


def test_a_rail_is_missing_on_a_node_that_has_another_rail_of_the_fabric():
    nodes = [build_node("a", rails_each=0, capacity={RAIL0: "1"}), build_node("b", rails_each=0, capacity={})]
    cluster = build_cluster(nodes, [])
    counts = cluster_reports.count_devices(cluster.nodes.values(), cluster, RESOURCES)
    assert [counts[resource, MISSING] for resource in RESOURCES] == [0, *[1] * (len(RESOURCES) - 1)]


def test_devices_requested_beyond_allocatable_are_overcommitted():
    nodes = [
        build_node("a", rails_each=0, capacity=dict.fromkeys(RESOURCES, "2")),
        build_node("b", rails_each=2),
        build_node("c"),
    ]
    cluster = build_cluster(
        nodes, [build_pod("p", on="a", rails=2), build_pod("q", on="b"), build_pod("r", on="c"), build_pod("s", on="c")]
    )
    counts = cluster_reports.count_devices(cluster.nodes.values(), cluster, [RAIL0, "x/unknown"])
    assert (counts[RAIL0, BEYOND], counts["x/unknown", BEYOND]) == (3, 0)


def test_rails_that_share_a_resource_have_one_metric_label():
    rails = tuple(model.Rail(name=f"rail{number}", resource="x/y") for number in range(3))
    other = model.Rail(name="alone", resource="x/z")
    counted_by_nobody = model.Rail(name="none")
    fabric = msgspec.structs.replace(build_policy().document.fabrics["roce"], rails=(*rails, other, counted_by_nobody))
    assert cluster_reports.name_pools(fabric) == {"x/y": "rail0..rail2", "x/z": "alone"}
