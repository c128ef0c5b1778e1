"""How much memory bodies may still take: large ones are refused before the kernel ends the process for them.

Owns the reading of the container's own limit and use (cgroup v2) and the bytes promised to bodies under way. Where
there is no limit, or no cgroup to read, there is always room. Knows no request.
"""

import pathlib

CGROUP = pathlib.Path("/sys/fs/cgroup")  # as a container sees its own
SMALL = 64 * 1024  # bytes; a body up to here is always taken: refusing costs as much as answering, and pods are smaller
SHARE = 0.9  # of the limit; the rest is for what a decoded body takes, and for caches that grow meanwhile


class Memory:
    """One process's container. What is promised is not seen as used before its bytes have come."""

    def __init__(self, folder: pathlib.Path = CGROUP) -> None:
        self._folder = folder
        self.promised = 0

    def has_room(self, length: int) -> bool:
        """True where a body of `length` bytes may be taken."""
        if length <= SMALL:
            return True
        limit = _number(self._folder / "memory.max")  # "max" where there is none
        used = _number(self._folder / "memory.current")
        if limit is None or used is None:
            return True
        return used - self._reclaimable() + self.promised + length <= limit * SHARE

    def _reclaimable(self) -> int:
        """Bytes of files that the kernel drops before it ends anybody; kubelet's working set leaves them out too."""
        try:
            text = (self._folder / "memory.stat").read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return 0
        found = [line.split()[1] for line in text.splitlines() if line.startswith("inactive_file ")]
        return int(found[0]) if found and found[0].isdecimal() else 0


def _number(path: pathlib.Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None
