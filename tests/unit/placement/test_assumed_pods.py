"""Assumed pods: after any events in any order exactly the pods that are still announced remain."""

from hypothesis import given
from hypothesis import strategies as st
from placing import build_assumed_pod, pod

from railwright.fabric.placement.state import assumed_pods

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
def test_indexes_agree_with_a_plain_dictionary_after_any_events(events):
    assumed, expected = assumed_pods.AssumedPods(assume_seconds=30), {}
    for event in events:
        match event:
            case ("assume", name, node, state):
                assumed.assume(build_assumed_pod(pod(name, group="g"), node, state=state))
                expected[name] = (node, state)
            case ("forget", name):
                assert assumed.forget(f"uid-{name}") == (name in expected)
                expected.pop(name, None)
            case ("end_session",):
                assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
                expected = {k: v for k, v in expected.items() if v[1] is not PIPELINED}
    held = {assumed_pod.uid.removeprefix("uid-"): assumed_pod.node for assumed_pod in assumed}
    assert held == {name: node for name, (node, _) in expected.items()}
    assert sorted(e.uid for n in ("n1", "n2") for e in assumed.list_on_node(n)) == sorted(f"uid-{n}" for n in expected)
    assert len(list(assumed.list_of_gang("train/g"))) == len(expected)


def test_a_repeated_event_has_no_effect():
    assumed = assumed_pods.AssumedPods(assume_seconds=30)
    for _ in range(2):
        assumed.assume(build_assumed_pod(pod("a"), "n1"))
    assert [assumed_pod.node for assumed_pod in assumed.list_on_node("n1")] == ["n1"]
    assert assumed.forget("uid-a")
    assert not assumed.forget("uid-a")
    assert not list(assumed.list_on_node("n1"))


def test_a_session_close_voids_pipelined_entries_of_its_own_scope_only():
    assumed = assumed_pods.AssumedPods(assume_seconds=30)
    assumed.assume(build_assumed_pod(pod("a"), "n1", state=PIPELINED), "east")
    assumed.assume(build_assumed_pod(pod("b"), "n1", state=PIPELINED), "west")
    assumed.assume(build_assumed_pod(pod("c"), "n1"), "east")
    assumed.end_session("east", now=5.0)
    assert {assumed_pod.uid: assumed_pod.state for assumed_pod in assumed} == {
        "uid-b": PIPELINED,
        "uid-c": assumed_pods.State.UNCONFIRMED,
    }


def test_an_unconfirmed_entry_expires_after_the_assumed_time_and_not_before():
    assumed = assumed_pods.AssumedPods(assume_seconds=30)
    assumed.assume(build_assumed_pod(pod("a"), "n1", since=100.0))
    assert assumed.expire(130.0) == ()
    assert [assumed_pod.uid for assumed_pod in assumed.expire(130.1)] == ["uid-a"]
    assert len(assumed) == 0


def test_closing_a_session_again_does_not_extend_unconfirmed_pods():
    assumed = assumed_pods.AssumedPods(assume_seconds=30)
    assumed.assume(build_assumed_pod(pod("a"), "n1", since=0.0))
    assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
    assumed.end_session(assumed_pods.DEFAULT_SCOPE, now=25.0)
    assert [assumed_pod.uid for assumed_pod in assumed.expire(31.5)] == ["uid-a"]
