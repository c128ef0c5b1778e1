"""Output into closed pipes and full disks: a command prints at most one sentence and never a traceback."""

import io
import os
import pathlib
import subprocess
import sys

import pytest
import varied_clusters

from railwright.cli.__main__ import main

ROOT = pathlib.Path(__file__).parents[3]
SCHEMA = ("policy", "schema")


def run(command, stdout):
    return subprocess.run(
        [sys.executable, "-m", "railwright.cli", *command],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [("check", "--explain"), SCHEMA, ("dashboard", "--snapshot", "snapshot.json", "--policy", "policy.yaml")],
    ids=lambda command: command[0],
)
def test_a_closed_pipe_ends_a_command_without_output_and_with_exit_code_141(command, tmp_path):
    varied_clusters.Vista(1, 1, 1).write(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run([str(tmp_path / word) if "." in word else word for word in command], writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + 13, "")


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="this system has no /dev/full")
def test_a_full_disk_gives_one_sentence_and_exit_code_two():
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = run(SCHEMA, full)
    said = "railwright: cannot write the output: No space left on device; free disk space\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("policy schema", ">&-", 0),
        ("policy validate -", "<&-", 1),
        ("policy validate /nowhere", "<&- >&- 2>&-", 2),
    ],
)
def test_a_closed_stream_does_not_change_the_exit_code(command, closed, code, tmp_path):
    done = subprocess.run(  # the shell closes what Python would open
        ["/bin/sh", "-c", f"exec {sys.executable} -m railwright.cli {command} {closed}"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_terminal_cannot_encode_are_replaced(encoding, monkeypatch, tmp_path):
    (tmp_path / "\xd7.yaml").touch()
    stdout = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", stdout)
    assert main(["policy", "validate", str(tmp_path / "\xd7.yaml")]) == 1
    stdout.flush()
    assert "/\xd7.yaml:1: ".encode(encoding, "replace") in stdout.buffer.getvalue()
