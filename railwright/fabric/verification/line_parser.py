"""Splits a line of a log into its source (pod, host, process, rank) and the text of NCCL or of the program.

Removes prefixes: colours, tags of kubectl and mpirun, timestamps. Separates messages of several processes on one line.
Does not interpret the text. NCCL writes HOST:PID:TID [DEVICE] (FILE:LINE) NCCL LEVEL TEXT (NVIDIA/nccl src/debug.cc).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_KUBECTL = re.compile(r"\[pod/([^/\]\s]+)/[^\]\s]+\]")  # kubectl logs --prefix
_MPIRUN = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:out|err)>:")  # mpirun --tag-output: [job,rank]
_NCCL_MESSAGE = re.compile(
    r"(?:(?P<host>[\w][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] (?:[^\[]{0,200}?))?"
    r"\bNCCL (?P<level>INFO|WARN|ATTN|TRACE|ABORT|CALL) "
)


class LogLine(NamedTuple):
    """One message of one process. Empty strings and -1 mean unknown."""

    tag: str  # pod name in the prefix of `kubectl logs --prefix`
    host: str
    pid: int
    rank: int  # in the tag of `mpirun --tag-output`
    level: str  # NCCL's log level; "" for text of the program itself
    text: str


def parse(line: str) -> Iterator[LogLine]:
    """Yield the messages of a line. Processes that write at the same moment can share one line."""
    plain = _COLOURS.sub("", line)
    tag = match.group(1) if (match := _KUBECTL.search(plain)) else ""
    rank = int(match.group(1)) if (match := _MPIRUN.search(plain)) else -1
    headers = list(_NCCL_MESSAGE.finditer(plain)) if "NCCL " in plain else []
    if not headers:
        yield LogLine(tag, "", -1, rank, "", plain.strip())
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(plain)
        host, pid = header["host"] or "", int(header["pid"] or -1)
        yield LogLine(
            tag, host, pid, rank if len(headers) == 1 else -1, header["level"], plain[header.end() : end].strip()
        )
