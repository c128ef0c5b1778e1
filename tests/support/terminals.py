"""Runs a command on a real terminal with a given number of columns."""

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

ROOT = pathlib.Path(__file__).parents[2]


def run(arguments: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Return exit code and what stays on the screen of `railwright ARGUMENTS`; stdout and stderr are the terminal."""
    code, received = capture(arguments, columns, **environment)
    return code, settle(received)


def capture(arguments: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Return exit code and all that the terminal received, with what was erased again."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    started = subprocess.Popen(
        [sys.executable, "-m", "railwright.cli", *arguments],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux' word for: the other side is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    return started.wait(), b"".join(parts).decode().replace("\r\n", "\n")


def settle(shown: str) -> str:
    """Return what remains on the screen, without erased lines."""
    return re.sub(r"\r\x1b\[K(?:[^\r\n]*(?=\r\x1b\[K))?", "", shown)
