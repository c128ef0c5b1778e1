"""Output whose reader has gone, or whose disk is full: real processes, one sentence at most, and never a traceback."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
COMMANDS = (
    ("lint", "--rules"),
    ("policy", "schema"),
    ("simulate", "--shapes"),
    ("completion", "bash"),
)


def run(command, stdout):
    return subprocess.run(
        [sys.executable, "-m", "railwright.cli", *command],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_a_command_silently_and_as_shells_count_it(command):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(command, writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + 13, "")


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_sentence_and_exit_code_two(command):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = run(command, full)
    said = "railwright: cannot write the output: No space left on device; free disk space\n"
    assert (done.returncode, done.stderr) == (2, said)
