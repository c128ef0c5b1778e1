"""Logs as text of any kind: files, standard input, bytes that are no text. Line by line, however long they are.

Owns opening and decoding. A last line without its end was cut in the middle, and what is left of it may lie.
"""

import sys
from collections.abc import Iterator
from typing import BinaryIO

from railwright.cli import output


def lines(path: str) -> Iterator[str]:
    """The whole lines of a log, `-` for standard input. Raises UnreadableError."""
    if path == "-":
        yield from _whole(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path is shown as the user wrote it
            yield from _whole(file)
    except OSError as error:
        raise output.UnreadableError(f"{path}: {error.strerror or error}") from None


def _whole(file: BinaryIO) -> Iterator[str]:
    for line in file:
        if line.endswith(b"\n"):
            yield line.decode(errors="replace")
