"""The cluster state: in any order of events, a node's use is the sum of its pods."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from placing import GPU, build_assumed_pod, build_cluster, create_assumed_pods, node, pod

from railwright.fabric import resources
from railwright.fabric.placement.state import gang_status
from railwright.fabric.workloads import membership

PODS = st.builds(
    pod,
    st.sampled_from(["a", "b", "c", "d"]),
    gpus=st.integers(0, 8),
    on=st.sampled_from(["", "n1", "n2"]),
    group=st.sampled_from(["", "g"]),
)


@given(st.lists(st.one_of(st.tuples(st.just("upsert"), PODS), st.tuples(st.just("remove"), PODS)), max_size=20))
def test_use_is_the_sum_over_the_pods_last_seen_bound(events):
    state, last = build_cluster([node("n1"), node("n2")]), {}
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
    assert set(state.get_unbound("train/g")) == unbound
    assumed = create_assumed_pods()
    for uid in sorted(gang)[:2]:  # bound or not
        assumed.assume(build_assumed_pod(last[uid], "n1"))
    unplaced = gang_status.list_unplaced("train/g", state, assumed)
    assert {p.uid for p in unplaced} == unbound.difference(sorted(gang)[:2])
    assert gang_status.count_unplaced("train/g", state, assumed) == len(unbound.difference(sorted(gang)[:2]))
    assert gang_status.has_placed("train/g", state, create_assumed_pods()) == bool(gang - unbound)


def test_a_full_list_removes_objects_that_are_not_in_it():
    state = build_cluster([node("n1"), node("n2")], [pod("a", on="n1"), pod("b", on="n2")])
    state.replace_pods([pod("b", on="n2")])
    state.replace_nodes([node("n2")])
    assert set(state.nodes) == {"n2"}
    assert not state.get_used("n1")
    assert set(state.pods) == {"uid-b"}


def test_a_heartbeat_touches_no_node():
    state = build_cluster([node("n", "a")], [pod("bound", group="g", on="n"), pod("waits", group="g")])
    position = state.change_log.position
    state.upsert_node(node("n", "a"))
    state.upsert_pod(pod("bound", group="g", on="n"))
    assert state.change_log.position == position
    state.upsert_node(node("n", "b"))
    state.upsert_pod(pod("bound", group="g", gpus=4, on="n"))
    assert state.change_log.position > position
    assert state.get_used("n")[GPU] == 4000


def test_a_terminating_pod_leaves_its_gang_and_keeps_its_devices():
    state = build_cluster([node("n", "a")], [pod("p", group="g", on="n")])
    leaving = pod("p", group="g", on="n")
    leaving = msgspec.structs.replace(
        leaving, metadata=msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    state.upsert_pod(leaving)
    assert not state.get_gang(membership.GangKey("train/g"))
    assert state.get_used("n")[GPU] == 8000


def test_equal_requests_are_the_object_of_a_known_pod_and_others_are_not_kept():
    known, unknown = pod("known"), pod("unknown", gpus=4)
    state = build_cluster([], [known])
    (info,) = state.pods.values()
    assert state.compute_requests(known, resources.compute_requests(known.spec)) is info.requests
    first, second = (state.compute_requests(unknown, resources.compute_requests(unknown.spec)) for _ in range(2))
    assert first == second
    assert first is not second
