"""Output into closed pipes and full disks: real processes print at most one sentence and never a traceback."""

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
def test_a_closed_pipe_ends_a_command_silently_with_141(command):
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


@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("lint nccl.conf", ">&-", 0),
        ("policy schema", "<&- >&- 2>&-", 0),
        ("lint -", "<&-", 2),
        ("lint /nowhere", "2>&-", 2),
        ("lint /nowhere", "<&- >&- 2>&-", 2),
    ],
)
def test_a_closed_output_stream_does_not_change_the_exit_code(command, closed, code, tmp_path):
    (tmp_path / "nccl.conf").write_text("NCCL_DEBUG=WARN\n")
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


def test_a_file_that_cannot_be_written_is_named_with_the_reason_alone(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(("certs", "issue", "--out", str(tmp_path / "file" / "out")), subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, f"railwright: certs: {tmp_path}/file/out/ca.crt: Not a directory\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_terminal_cannot_encode_are_replaced(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "railwright.cli", "check", "--explain", "api-reachable"],
        cwd=ROOT,
        capture_output=True,
        encoding=encoding,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\xd7 API server answers".encode(encoding, "replace").decode(encoding) in done.stdout


def test_a_picture_that_cannot_be_written_is_named_with_the_reason_and_the_fix(tmp_path):
    (tmp_path / "pod.yaml").write_text("kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n")
    picture = tmp_path / "missing" / "picture.svg"
    policy = ROOT / "railwright" / "cli" / "demo" / "policy.yaml"
    command = ("explain", str(tmp_path / "pod.yaml"), "--policy", str(policy), "--svg", str(picture))
    done = run(command, subprocess.DEVNULL)
    expected = f"railwright: --svg {picture}: No such file or directory; give a file that you may write\n"
    assert (done.returncode, done.stderr) == (2, expected)
