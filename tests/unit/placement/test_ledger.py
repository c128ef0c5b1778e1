"""The ledger: any events in any order leave exactly what is still announced."""

from hypothesis import given
from hypothesis import strategies as st
from placing import entry, pod

from railwright.fabric.placement import ledger

ALLOCATED, PIPELINED = ledger.State.ALLOCATED, ledger.State.PIPELINED
UIDS = st.sampled_from(["a", "b", "c"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), UIDS, st.sampled_from(["n1", "n2"]), st.sampled_from([ALLOCATED, PIPELINED])),
        st.tuples(st.just("deallocate"), UIDS),
        st.tuples(st.just("confirm"), UIDS),
        st.tuples(
            st.just("close"),
        ),
    ),
    max_size=30,
)


@given(EVENTS)
def test_indexes_agree_with_a_plain_dictionary_after_any_events(events):
    book, expected = ledger.Ledger(assume_seconds=30), {}
    for event in events:
        match event:
            case ("allocate", name, node, state):
                book.allocate(entry(pod(name, group="g"), node, state=state))
                expected[name] = (node, state)
            case ("deallocate" | "confirm" as verb, name):
                assert getattr(book, verb)(f"uid-{name}") == (name in expected)
                expected.pop(name, None)
            case ("close",):
                book.close(ledger.DEFAULT_SCOPE, now=1.0)
                expected = {k: v for k, v in expected.items() if v[1] is not PIPELINED}
    held = {each.uid.removeprefix("uid-"): each.node for each in book}
    assert held == {name: node for name, (node, _) in expected.items()}
    assert sorted(e.uid for n in ("n1", "n2") for e in book.on_node(n)) == sorted(f"uid-{n}" for n in expected)
    assert len(list(book.of_gang("train/g"))) == len(expected)


def test_an_event_twice_is_an_event_once():
    book = ledger.Ledger(assume_seconds=30)
    for _ in range(2):
        book.allocate(entry(pod("a"), "n1"))
    assert [each.node for each in book.on_node("n1")] == ["n1"]
    assert book.deallocate("uid-a")
    assert not book.deallocate("uid-a")
    assert not list(book.on_node("n1"))


def test_a_session_close_voids_pipelined_entries_of_its_own_scope_only():
    book = ledger.Ledger(assume_seconds=30)
    book.allocate(entry(pod("a"), "n1", state=PIPELINED), "east")
    book.allocate(entry(pod("b"), "n1", state=PIPELINED), "west")
    book.allocate(entry(pod("c"), "n1"), "east")
    book.close("east", now=5.0)
    assert {each.uid: each.state for each in book} == {
        "uid-b": PIPELINED,
        "uid-c": ledger.State.UNCONFIRMED,
    }


def test_an_unconfirmed_entry_expires_after_the_assumed_time_and_not_before():
    book = ledger.Ledger(assume_seconds=30)
    book.allocate(entry(pod("a"), "n1", since=100.0))
    assert book.expire(130.0) == ()
    assert [each.uid for each in book.expire(130.1)] == ["uid-a"]
    assert len(book) == 0


def test_closing_a_session_again_does_not_prolong_what_it_left():
    book = ledger.Ledger(assume_seconds=30)
    book.allocate(entry(pod("a"), "n1", since=0.0))
    book.close(ledger.DEFAULT_SCOPE, now=1.0)
    book.close(ledger.DEFAULT_SCOPE, now=25.0)
    assert [each.uid for each in book.expire(31.5)] == ["uid-a"]
