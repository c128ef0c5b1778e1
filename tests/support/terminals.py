"""Runs a command on a real terminal with a given number of columns."""

import contextlib
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from fcntl import ioctl
from unittest import mock

from railwright.cli import __main__ as command_line

ROOT = pathlib.Path(__file__).parents[2]


def run(arguments: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Return exit code and final screen of `railwright ARGUMENTS`, run in this process."""
    ours, theirs = open_terminal(columns)
    with (
        mock.patch.dict(os.environ, prepare_environment(environment), clear=True),
        os.fdopen(theirs, "w") as terminal,
        contextlib.redirect_stdout(terminal),
        contextlib.redirect_stderr(terminal),
    ):
        code = command_line.main(arguments)
    return code, re.sub(r"\r\x1b\[K(?:[^\r\n]*(?=\r\x1b\[K))?", "", read_all(ours))  # without erased lines


def capture(arguments: Sequence[str], columns: int) -> tuple[int, str]:
    """Return exit code and all output of a process to the terminal, including erased text."""
    ours, theirs = open_terminal(columns)
    command = [sys.executable, "-m", "railwright.cli", *arguments]
    environment = prepare_environment({"PYTHONPATH": str(ROOT)})
    started = subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    received = read_all(ours)
    return started.wait(), received


def open_terminal(columns: int) -> tuple[int, int]:
    """Return the file descriptors of the test's side and of the program's."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    return ours, theirs


def prepare_environment(environment: dict[str, str]) -> dict[str, str]:
    left_out = ("COLUMNS", "NO_COLOR")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**inherited, "TERM": "xterm-256color", **environment}


def read_all(descriptor: int) -> str:
    parts = []
    with contextlib.suppress(OSError):  # Linux' word for: the other side is closed
        while part := os.read(descriptor, 65536):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode().replace("\r\n", "\n")
