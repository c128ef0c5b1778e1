"""A line of a log -> who said what: pod, host, process and NCCL's text, whatever was put in front of it.

Owns prefixes: colours, kubectl's and mpirun's tags, timestamps, several processes on one line. Knows no text of NCCL's.
The form is HOST:PID:TID [DEVICE] (FILE:LINE) NCCL LEVEL TEXT (NVIDIA/nccl src/debug.cc).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_KUBECTL = re.compile(r"\[pod/([^/\]\s]+)/[^\]\s]+\]")  # kubectl logs --prefix
_MPIRUN = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:out|err)>:")  # mpirun --tag-output: [job,rank]
_SAID = re.compile(
    r"(?:(?P<host>[\w][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] (?:[^\[]{0,200}?))?"
    r"\bNCCL (?P<level>INFO|WARN|ATTN|TRACE|ABORT|CALL) "
)


class Said(NamedTuple):
    """What one process said. Empty and -1: not told. A line without a process is text of the program itself."""

    tag: str  # the pod that kubectl names
    host: str
    pid: int
    rank: int  # that mpirun names
    level: str  # "" for the program's own text
    text: str


def read(line: str) -> Iterator[Said]:
    """All that a line holds: lines of several processes are run together where they write at once."""
    plain = _COLOURS.sub("", line)
    tag = found.group(1) if (found := _KUBECTL.search(plain)) else ""
    rank = int(found.group(1)) if (found := _MPIRUN.search(plain)) else -1
    heads = list(_SAID.finditer(plain)) if "NCCL " in plain else []
    if not heads:
        yield Said(tag, "", -1, rank, "", plain.strip())
    for at, head in enumerate(heads):
        end = heads[at + 1].start() if at + 1 < len(heads) else len(plain)
        host, pid = head["host"] or "", int(head["pid"] or -1)
        yield Said(tag, host, pid, rank if len(heads) == 1 else -1, head["level"], plain[head.end() : end].strip())
