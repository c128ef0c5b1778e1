"""The ledger: any events in any order leave exactly what is still announced."""

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
        st.tuples(st.just("confirm"), UIDS),
        st.tuples(
            st.just("end_session"),
        ),
    ),
    max_size=30,
)


@given(EVENTS)
def test_indexes_agree_with_a_plain_dictionary_after_any_events(events):
    book, expected = assumed_pods.AssumedPods(assume_seconds=30), {}
    for event in events:
        match event:
            case ("assume", name, node, state):
                book.assume(build_assumed_pod(pod(name, group="g"), node, state=state))
                expected[name] = (node, state)
            case ("forget" | "confirm" as verb, name):
                assert getattr(book, verb)(f"uid-{name}") == (name in expected)
                expected.pop(name, None)
            case ("end_session",):
                book.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
                expected = {k: v for k, v in expected.items() if v[1] is not PIPELINED}
    held = {each.uid.removeprefix("uid-"): each.node for each in book}
    assert held == {name: node for name, (node, _) in expected.items()}
    assert sorted(e.uid for n in ("n1", "n2") for e in book.list_on_node(n)) == sorted(f"uid-{n}" for n in expected)
    assert len(list(book.list_of_gang("train/g"))) == len(expected)


def test_an_event_twice_is_an_event_once():
    book = assumed_pods.AssumedPods(assume_seconds=30)
    for _ in range(2):
        book.assume(build_assumed_pod(pod("a"), "n1"))
    assert [each.node for each in book.list_on_node("n1")] == ["n1"]
    assert book.forget("uid-a")
    assert not book.forget("uid-a")
    assert not list(book.list_on_node("n1"))


def test_a_session_close_voids_pipelined_entries_of_its_own_scope_only():
    book = assumed_pods.AssumedPods(assume_seconds=30)
    book.assume(build_assumed_pod(pod("a"), "n1", state=PIPELINED), "east")
    book.assume(build_assumed_pod(pod("b"), "n1", state=PIPELINED), "west")
    book.assume(build_assumed_pod(pod("c"), "n1"), "east")
    book.end_session("east", now=5.0)
    assert {each.uid: each.state for each in book} == {
        "uid-b": PIPELINED,
        "uid-c": assumed_pods.State.UNCONFIRMED,
    }


def test_an_unconfirmed_entry_expires_after_the_assumed_time_and_not_before():
    book = assumed_pods.AssumedPods(assume_seconds=30)
    book.assume(build_assumed_pod(pod("a"), "n1", since=100.0))
    assert book.expire(130.0) == ()
    assert [each.uid for each in book.expire(130.1)] == ["uid-a"]
    assert len(book) == 0


def test_closing_a_session_again_does_not_extend_unconfirmed_pods():
    book = assumed_pods.AssumedPods(assume_seconds=30)
    book.assume(build_assumed_pod(pod("a"), "n1", since=0.0))
    book.end_session(assumed_pods.DEFAULT_SCOPE, now=1.0)
    book.end_session(assumed_pods.DEFAULT_SCOPE, now=25.0)
    assert [each.uid for each in book.expire(31.5)] == ["uid-a"]
