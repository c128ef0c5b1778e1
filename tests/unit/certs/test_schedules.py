"""The schedule options of `certs rotate`, and their validation before any change."""

import argparse
import dataclasses
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs import schedules
from railwright.cli import certificate_watching as watching
from railwright.cli import certificates as command
from railwright.cli import commands as certs
from railwright.cli import dispatch
from railwright.cli.__main__ import main


def parse(*arguments):
    return dispatch.build_parser(["certs"]).parse(["certs", "rotate", *arguments])[1]


def test_without_options_the_schedule_is_the_default():
    assert command.build_schedule(parse()) == schedules.Schedule()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(schedules.Schedule)])
def test_every_duration_of_a_schedule_has_an_option(field):
    flag, _ = certs.SCHEDULE_OPTIONS[field]
    assert getattr(command.build_schedule(parse(f"{flag}=26d", *longer(field))), field) == dt.timedelta(days=26)


def longer(field):
    return ("--overlap=1h",) if field == "ca" else ()


@given(st.integers(0, 36500 * 86400))
def test_a_time_is_written_as_it_is_read(seconds):
    value = dt.timedelta(seconds=seconds)
    assert certs.parse_duration(certs.format_duration(value)) == value


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


def test_an_overlap_longer_than_the_lifetime_exits_2_and_names_both(capsys, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        """
        {apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],
         clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}],
         contexts: [{name: c, context: {cluster: k, user: u}}]}
        """
    )
    assert main(["certs", "rotate", "--ca-lifetime=100d", f"--kubeconfig={path}"]) == 2
    assert "an overlap of 30 d is longer than a sixth of the CA's validity of 100 d" in capsys.readouterr().err


# --- retries of the rotator ------------------------------------------------------


@pytest.mark.parametrize(("failed", "seconds"), [(0, 3.0), (1, 6.0), (4, 30.0), (100, 30.0), (5000, 30.0)])
def test_pauses_grow_to_half_a_minute_and_never_overflow(failed, seconds):
    assert watching.compute_pause(3.0, failed) == seconds
