"""Durations of the options of `certs rotate`."""

import argparse
import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

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
