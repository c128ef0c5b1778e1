"""Tables in any width: what is dropped, what is cut, and that names never are."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.cli import formats

COLUMNS = (
    formats.Column("NAMESPACE", drop=3),
    formats.Column("GANG"),
    formats.Column("PLACED", right=True),
    formats.Column("FABRIC", drop=2),
    formats.Column("WHY", drop=1, cut=True),
)
ROWS = [
    ("prod", "a-gang-of-some-length", "3/8", "roce", "eight pods remain, and nothing is free"),
    ("dev", "b", "16/16", "ib", "-"),
]


@pytest.mark.parametrize(
    ("limit", "titles"),
    [
        (None, ["NAMESPACE", "GANG", "PLACED", "FABRIC", "WHY"]),
        (120, ["NAMESPACE", "GANG", "PLACED", "FABRIC", "WHY"]),
        (61, ["GANG", "PLACED", "FABRIC", "WHY"]),
        (48, ["GANG", "PLACED", "WHY"]),
        (30, ["GANG", "PLACED"]),
        (10, ["GANG", "PLACED"]),
    ],
)
def test_the_least_important_columns_are_left_out_first(limit, titles):
    head, *_ = formats.format_table(COLUMNS, ROWS, limit)
    assert head.split() == titles


def test_the_last_text_is_truncated_to_the_width():
    lines = formats.format_table(COLUMNS, ROWS, 61)
    assert lines[1] == "a-gang-of-some-length     3/8  roce    eight pods remain, an…"
    assert len(lines[1]) == 61


def test_numbers_are_right_aligned_and_lines_have_no_trailing_blanks():
    lines = formats.format_table(COLUMNS, ROWS, None)
    assert lines[0].index("PLACED") + len("PLACED") == lines[1].index("3/8") + len("3/8")
    assert all(line == line.rstrip() for line in lines)


WORDS = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, WORDS), max_size=6), st.integers(1, 150))
def test_names_are_not_truncated_at_any_width(rows, limit):
    lines = formats.format_table(COLUMNS, rows, limit)
    assert len(lines) == 1 + len(rows)
    for line, row in zip(lines[1:], rows, strict=True):
        assert row[1] in line
    least = 2 + sum(max([len(title), *(len(row[at]) for row in rows)]) for at, title in ((1, "GANG"), (2, "PLACED")))
    assert all(len(line) <= max(limit, least) for line in lines)


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m"), (7200 + 60, "121m"), (3 * 3600, "3h"),
        (3 * 3600 + 1200, "3h20m"), (8 * 3600 + 60, "8h"), (49 * 3600, "2d1h"), (8 * 86400, "8d"),
        (800 * 86400, "2y70d"), (3000 * 86400, "8y"), (-5, "0s"),
    ],
)  # fmt: skip
def test_an_age_is_written_as_kubectl_writes_it(seconds, text):
    assert formats.format_age((NOW - dt.timedelta(seconds=seconds)).isoformat(), NOW) == text


@pytest.mark.parametrize("at", ["", "yesterday", "2026-01-01T00:00:00"])
def test_an_unknown_time_has_no_age(at):
    assert formats.format_age(at, NOW) == "-"


def test_the_times_of_the_api_server_are_read():
    assert formats.format_age("2025-12-31T23:00:00Z", NOW) == "60m"
