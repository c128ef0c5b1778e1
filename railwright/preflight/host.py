"""Reads the files of a host as a container sees them, below a root directory.

A file that cannot be read counts as absent and is never an error: the kernel returns EINVAL for an empty GID entry,
and a runtime may hide or replace any of these files.
"""

import os
import re
from pathlib import Path

_NUMBER = re.compile(r"(\d+)", re.ASCII)  # ASCII only, because a name may contain other digits, such as net\u00b2
_MOST_DIGITS = 20  # maximum digits of a 64-bit number


class Host:
    """The file tree below `root`: / in production, another directory in tests and for a recorded tree."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)

    def resolve(self, path: str) -> Path:
        """Return the path on this host of an absolute path in the container."""
        return self._root / path.lstrip("/")

    def read_text(self, path: str) -> str | None:
        """Return a file's content, stripped; None if it cannot be read."""
        try:
            return self.resolve(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def head(self, path: str, size: int) -> str | None:
        """Return the first `size` bytes of a file, stripped; None if it cannot be read."""
        try:
            with self.resolve(path).open("rb") as file:
                return file.read(size).decode(errors="replace").strip()
        except OSError:
            return None

    def list_names(self, path: str) -> list[str]:
        """Return the entries of a directory in natural order (mlx5_2 before mlx5_10); [] if it cannot be read."""
        try:
            return sorted(os.listdir(self.resolve(path)), key=build_sort_key)  # noqa: PTH208 - names, not paths
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """True if the path exists."""
        return self.resolve(path).exists()

    def find_open_error(self, path: str) -> str:
        """Return the error of opening a device file for reading and writing, or "" if it opens."""
        try:
            os.close(os.open(self.resolve(path), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror or str(error)
        return ""


def build_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value."""
    return [(int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in _NUMBER.split(name) if part]


def parse_number(text: str | None, base: int = 10) -> int | None:
    """Parse an unsigned number as the kernel writes it; None for anything else."""
    if not text or len(text) > _MOST_DIGITS or not (text.isascii() and text.isalnum()):
        return None
    try:
        return int(text, base)
    except ValueError:
        return None
