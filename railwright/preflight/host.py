"""The files of a host as a container sees them, read below a root.

Owns reading: what cannot be read is absent, never an error, because the kernel answers EINVAL for an empty GID entry
and a runtime may hide any of these files, or write its own. Knows no meaning.
"""

import os
import re
from pathlib import Path

_NUMBER = re.compile(r"(\d+)", re.ASCII)  # a name may hold other digits: an interface can be called net\u00b2
_MOST_DIGITS = 20  # of a number of the kernel: 64 bits


class Host:
    """The file tree below `root`, which is / but for tests and for a recorded tree."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)

    def path(self, path: str) -> Path:
        """Where an absolute path of the container is."""
        return self._root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """What a file holds, without the blanks around it; None where it cannot be read."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """The entries of a folder in natural order (mlx5_2 before mlx5_10); none where it cannot be read."""
        try:
            return sorted(os.listdir(self.path(path)), key=natural)  # noqa: PTH208 - names, not paths, are wanted
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """True where there is something."""
        return self.path(path).exists()

    def opening(self, path: str) -> str:
        """Why a device file cannot be opened for reading and writing, "" where it can."""
        try:
            os.close(os.open(self.path(path), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror or str(error)
        return ""


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by value."""
    return [(int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in _NUMBER.split(name) if part]


def whole(written: str | None, base: int = 10) -> int | None:
    """A number without a sign, as the kernel writes it; None for anything else."""
    if not written or len(written) > _MOST_DIGITS or not (written.isascii() and written.isalnum()):
        return None
    try:
        return int(written, base)
    except ValueError:
        return None
