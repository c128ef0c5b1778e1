"""Retries of the rotator after errors, and the state that it keeps."""

import argparse

import pytest

from certs import installation, schedules
from railwright.cli import certificate_watching as watching


@pytest.mark.parametrize(("failed", "seconds"), [(0, 3.0), (1, 6.0), (4, 30.0), (100, 30.0), (5000, 30.0)])
def test_pauses_grow_to_half_a_minute_and_never_overflow(failed, seconds):
    assert watching.compute_pause(3.0, failed) == seconds


def test_a_former_leader_keeps_no_private_key():
    turning = installation.Rotator(None, "prod", [], schedule=schedules.Schedule(), clock=lambda: 0.0)
    watcher = watching.Watcher(argparse.Namespace(namespace="prod", lease="l", identity="a"), None, turning)
    turning.state = installation.ClusterState("prod", {}, {}, ())  # the last look holds the authority's
    watcher._set_leading(True)
    assert turning.state is not None
    watcher._set_leading(False)
    assert turning.state is None
