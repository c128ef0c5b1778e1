"""Reads logs line by line from files or standard input; bytes that are not UTF-8 are replaced.

A last line without a line break is dropped: it was truncated, and the rest could be misread.
"""

import sys
from collections.abc import Iterator
from typing import BinaryIO

from railwright.cli import output


def lines(path: str) -> Iterator[str]:
    """Yield the complete lines of a log, `-` for standard input. Raise UnreadableError."""
    if path == "-":
        yield from _read_lines(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would change the path in messages
            yield from _read_lines(file)
    except OSError as error:
        raise output.UnreadableError(f"{path}: {error.strerror or error}") from None


def _read_lines(file: BinaryIO) -> Iterator[str]:
    for line in file:
        if line.endswith(b"\n"):
            yield line.decode(errors="replace")
