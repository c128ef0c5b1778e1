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
    assert getattr(command.build_schedule(parse(f"--{field}=26d")), field) == dt.timedelta(days=26)


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


def test_an_overlap_that_is_too_long_exits_2_and_names_the_limit(capsys, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        """
        {apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],
         clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}],
         contexts: [{name: c, context: {cluster: k, user: u}}]}
        """
    )
    assert main(["certs", "rotate", "--overlap=400d", f"--kubeconfig={path}"]) == 2
    assert (
        "an overlap of 400 d is longer than a sixth of the CA's validity of 1825 d; shorten it"
        in capsys.readouterr().err
    )


# --- retries of the rotator ------------------------------------------------------


@pytest.mark.parametrize(("failed", "seconds"), [(0, 3.0), (1, 6.0), (4, 30.0), (100, 30.0), (5000, 30.0)])
def test_pauses_grow_to_half_a_minute_and_never_overflow(failed, seconds):
    assert watching.compute_pause(3.0, failed) == seconds
