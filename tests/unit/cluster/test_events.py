"""Number and times of written Events, by a clock that the test sets."""

import datetime as dt

from railwright.cluster import events

START = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


def build_time(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def note(message: str = "m", name: str = "train", namespace: str = "prod") -> events.EventNote:
    about = events.Involved(kind="ReplicaSet", api_version="apps/v1", namespace=namespace, name=name)
    return events.EventNote(about, "Warning", "FabricRefused", message)


def drain(given: events.EventCorrelator, seconds: float) -> list[events.Write]:
    """Return every write that is due at that time."""
    made = []
    while (write := given.next_write(build_time(seconds))) is not None:
        given.record_write(write, write.name or f"event-{len(made)}-{seconds}", build_time(seconds))
        made.append(write)
    return made


def test_a_hundred_equal_queued_notes_are_one_event_with_their_count():
    given = events.EventCorrelator()
    for _ in range(100):
        assert given.add(note())
    assert [(write.name, write.count) for write in drain(given, 0)] == [("", 100)]


def test_repeats_are_written_as_a_count_every_ten_seconds_at_most():
    given = events.EventCorrelator()
    given.add(note())
    drain(given, 0)
    counts = []
    for second in range(1, 31):
        given.add(note())
        counts += [(second, write.count) for write in drain(given, second)]
    assert counts == [(10, 11), (20, 21), (30, 31)]


def test_after_ten_minutes_an_equal_message_is_a_new_event():
    given = events.EventCorrelator()
    given.add(note())
    drain(given, 0)
    given.add(note())
    assert [write.name for write in drain(given, events.REPEAT_SECONDS)] == [""]
    given.add(note())
    (write,) = drain(given, events.REPEAT_SECONDS + events.COUNT_SECONDS)
    assert (write.name, write.count) == (f"event-0-{events.REPEAT_SECONDS}", 2)


def test_one_owner_gets_25_events_at_once_and_one_each_five_minutes_after():
    given = events.EventCorrelator()
    for number in range(100):
        given.add(note(f"m{number}"))
    assert len(drain(given, 0)) == 25
    assert given.suppressed == 75
    assert len(given) == 0
    for number in range(100, 110):
        given.add(note(f"m{number}"))
    assert len(drain(given, 300)) == 1


def test_suppressed_repeats_of_an_event_are_in_its_next_count():
    given = events.EventCorrelator((events.Limit(lambda note: note.involved, 2, 1 / 300),))
    seen = []
    for seconds in (0, 10, 20, 30, 310):
        given.add(note())
        seen += [(seconds, write.count) for write in drain(given, seconds)]
    assert seen == [(0, 1), (10, 2), (310, 5)]
    assert given.suppressed == 0


def test_invented_owners_share_the_event_rate_of_their_namespace():
    given = events.EventCorrelator()
    for number in range(400):
        given.add(note(name=f"forged-{number}"))
    assert len(drain(given, 0)) == 100
    given.add(note(namespace="other"))
    assert [write.note.involved.namespace for write in drain(given, 0)] == ["other"]


def test_all_owners_together_get_ten_events_a_second_and_the_others_wait():
    given = events.EventCorrelator()
    for number in range(300):
        given.add(note(namespace=f"n{number}"))
    assert len(drain(given, 0)) == 200
    assert len(drain(given, 1)) == 10
    assert len(given) == 90
    assert given.suppressed == 0


def test_a_full_queue_drops_new_notes_and_counts_repeats_of_queued_ones():
    given = events.EventCorrelator()
    assert all(given.add(note(f"m{number}")) for number in range(events.QUEUE))
    assert not given.add(note("one too many"))
    assert given.add(note("m0"))


def test_memory_for_events_is_bounded():
    given = events.EventCorrelator()
    for number in range(3 * events.KNOWN):
        given.add(note(f"m{number}", name=f"o{number}", namespace=f"n{number}"))
        drain(given, number)
    assert len(given._posted) == events.KNOWN
    assert all(len(buckets._left) <= events.KNOWN for buckets in given._own)


def test_a_deleted_event_is_created_again():
    given = events.EventCorrelator()
    given.add(note())
    drain(given, 0)
    given.forget(note())
    given.add(note())
    assert [write.name for write in drain(given, 1)] == [""]


def test_a_clock_that_steps_back_neither_stops_events_nor_floods():
    given = events.EventCorrelator()
    given.add(note())
    drain(given, 1000)
    given.add(note("other"))
    assert len(drain(given, 0)) == 1
