"""Durations: those of the options of `certs rotate`, and the pauses of the rotator."""

import argparse
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.cli import certificates
from railwright.cli import commands as certs


@given(st.text(max_size=12))
def test_any_text_is_read_as_a_time_or_refused_with_the_expected_form(text):
    try:
        read = certs.parse_duration(text)
    except argparse.ArgumentTypeError as error:
        message = str(error)
    else:
        assert read >= dt.timedelta()
        return
    assert "write" in message


@pytest.mark.parametrize(("failed", "seconds"), [(0, 3.0), (1, 6.0), (4, 30.0), (100, 30.0), (5000, 30.0)])
def test_pauses_grow_to_half_a_minute_and_never_overflow(failed, seconds):
    assert certificates.compute_pause(3.0, failed) == seconds
