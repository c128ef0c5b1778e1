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
    correlator = events.EventCorrelator()
    for _ in range(100):
        assert correlator.add(note())
    assert [(write.name, write.count) for write in drain(correlator, 0)] == [("", 100)]


def test_repeats_are_written_as_a_count_every_ten_seconds_at_most():
    correlator = events.EventCorrelator()
    correlator.add(note())
    drain(correlator, 0)
    counts = []
    for second in range(1, 31):
        correlator.add(note())
        counts += [(second, write.count) for write in drain(correlator, second)]
    assert counts == [(10, 11), (20, 21), (30, 31)]


def test_after_ten_minutes_an_equal_message_is_a_new_event():
    correlator = events.EventCorrelator()
    correlator.add(note())
    drain(correlator, 0)
    correlator.add(note())
    assert [write.name for write in drain(correlator, events.REPEAT_SECONDS)] == [""]
    correlator.add(note())
    (write,) = drain(correlator, events.REPEAT_SECONDS + events.COUNT_SECONDS)
    assert (write.name, write.count) == (f"event-0-{events.REPEAT_SECONDS}", 2)


def test_one_owner_gets_25_events_at_once_and_one_each_five_minutes_after():
    correlator = events.EventCorrelator()
    for number in range(100):
        correlator.add(note(f"m{number}"))
    assert len(drain(correlator, 0)) == 25
    assert correlator.suppressed == 75
    assert len(correlator) == 0
    for number in range(100, 110):
        correlator.add(note(f"m{number}"))
    assert len(drain(correlator, 300)) == 1


def test_the_next_count_of_an_event_includes_suppressed_repeats():
    correlator = events.EventCorrelator((events.Limit(lambda note: note.involved, 2, 1 / 300),))
    seen = []
    for seconds in (0, 10, 20, 30, 310):
        correlator.add(note())
        seen += [(seconds, write.count) for write in drain(correlator, seconds)]
    assert seen == [(0, 1), (10, 2), (310, 5)]
    assert correlator.suppressed == 0


def test_invented_owners_share_the_event_rate_of_their_namespace():
    correlator = events.EventCorrelator()
    for number in range(400):
        correlator.add(note(name=f"forged-{number}"))
    assert len(drain(correlator, 0)) == 100
    correlator.add(note(namespace="other"))
    assert [write.note.involved.namespace for write in drain(correlator, 0)] == ["other"]


def test_all_owners_together_get_ten_events_a_second_and_the_others_wait():
    correlator = events.EventCorrelator()
    for number in range(300):
        correlator.add(note(namespace=f"n{number}"))
    assert len(drain(correlator, 0)) == 200
    assert len(drain(correlator, 1)) == 10
    assert len(correlator) == 90
    assert correlator.suppressed == 0


def test_a_full_queue_drops_new_notes_and_counts_repeats_of_queued_ones():
    correlator = events.EventCorrelator()
    assert all(correlator.add(note(f"m{number}")) for number in range(events.QUEUE))
    assert not correlator.add(note("one too many"))
    assert correlator.add(note("m0"))


def test_memory_for_events_is_bounded():
    correlator = events.EventCorrelator()
    for number in range(3 * events.KNOWN):
        correlator.add(note(f"m{number}", name=f"o{number}", namespace=f"n{number}"))
        drain(correlator, number)
    assert len(correlator._posted) == events.KNOWN
    assert all(len(buckets._left) <= events.KNOWN for buckets in correlator._own)


def test_a_deleted_event_is_created_again():
    correlator = events.EventCorrelator()
    correlator.add(note())
    drain(correlator, 0)
    correlator.forget(note())
    correlator.add(note())
    assert [write.name for write in drain(correlator, 1)] == [""]


def test_a_clock_that_steps_back_neither_stops_nor_multiplies_events():
    correlator = events.EventCorrelator()
    correlator.add(note())
    drain(correlator, 1000)
    correlator.add(note("other"))
    assert len(drain(correlator, 0)) == 1
