"""Reports that come and go: how long they count."""

from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.placement.state import rail_reports

LIMITS = rail_reports.Limits(hold=60, max_hold=1800)
changes = st.lists(st.tuples(st.floats(0, 5000), st.booleans()), max_size=40)
limits = st.tuples(st.floats(1, 1000), st.floats(1, 3000)).map(
    lambda pair: rail_reports.Limits(min(pair), max(pair)),
)


def play(steps, given_limits=LIMITS):
    """Return (time, made, what is known) after each step: a wait in seconds, and whether the report is made then."""
    known, now, rows = None, 0.0, []
    for seconds, is_made in steps:
        now += seconds
        known = rail_reports.update(known, is_made=is_made, now=now, limits=given_limits)
        rows.append((now, is_made, known))
    return rows


def list_outages(times, until, down=1.0):
    """Return how long the report counts, in whole seconds from each of these times, if it lasts `down` seconds."""
    known, counted = None, []
    for second in range(until):
        is_made = any(at <= second < at + down for at in times)
        known = rail_reports.update(known, is_made=is_made, now=float(second), limits=LIMITS)
        counted.append(known is not None and known.counts(float(second)))
    return counted


def test_one_report_counts_at_once_and_for_a_minute_after_it_has_ended():
    counted = list_outages([10], 200, down=5)
    assert [second for second, counts in enumerate(counted) if counts] == list(range(10, 75))


def test_the_hold_doubles_with_each_return_up_to_the_limit():
    rows = play([(0, True), *[(300, index % 2 == 1) for index in range(16)]])
    assert [known.hold for _, made, known in rows if made] == [60, 120, 240, 480, 960, 1800, 1800, 1800, 1800]


def test_a_link_that_flaps_every_fifty_seconds_is_out_without_a_break():
    counted = list_outages(range(0, 3000, 50), 3000)
    assert all(counted)


def test_a_link_that_flaps_every_five_minutes_is_out_for_longer_each_time():
    counted = list_outages(range(0, 1500, 300), 1500)
    assert [sum(counted[start : start + 300]) for start in range(0, 1500, 300)] == [61, 121, 241, 300, 300]


def test_after_the_longest_hold_without_a_report_the_next_is_the_first():
    rows = play([(0, True), (1, False), (100, True), (1, False), (1800, True)])
    assert [known.hold for _, made, known in rows if made] == [60, 120, 60]


@given(changes, limits)
def test_a_report_counts_while_it_is_made_and_for_no_longer_than_the_limit_after_it(steps, given_limits):
    for now, is_made, known in play(steps, given_limits):
        if is_made:
            assert known.counts(now + 1e6)
            assert given_limits.hold <= known.hold <= given_limits.max_hold
        elif known is not None:
            assert not known.counts(known.changed_at + given_limits.max_hold + 0.001)
            assert known.counts(known.changed_at) or not known.hold


@given(changes, limits)
def test_nothing_is_remembered_for_longer_than_the_limit(steps, given_limits):
    *_, (_, _, known) = play([*steps, (0, False), (given_limits.max_hold + 1, False)], given_limits)
    assert known is None


@given(changes, limits)
def test_seeing_the_same_again_changes_nothing(steps, given_limits):
    doubled = [step for seconds, is_made in steps for step in ((seconds, is_made), (0.0, is_made))]
    assert [known for *_, known in play(doubled, given_limits)[1::2]] == [
        known for *_, known in play(steps, given_limits)
    ]
