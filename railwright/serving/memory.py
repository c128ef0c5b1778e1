"""Memory headroom of the container: large bodies are rejected before the kernel kills the process.

Reads the container's limit and usage (cgroup v2), and counts bytes reserved for bodies in transit. Without a limit or
a readable cgroup there is always room.
"""

import pathlib

CGROUP = pathlib.Path("/sys/fs/cgroup")  # as seen from inside the container
SMALL = 64 * 1024  # bytes; smaller bodies are always accepted, because rejecting costs as much as answering
SHARE = 0.9  # of the limit; the rest is for decoded bodies and for growing caches


class Memory:
    """Memory headroom of the container. Reserved bytes do not show in memory.current until they arrive."""

    def __init__(self, folder: pathlib.Path = CGROUP) -> None:
        self._folder = folder
        self.reserved_bytes = 0

    def has_room(self, length: int) -> bool:
        """True if a body of `length` bytes may be accepted."""
        if length <= SMALL:
            return True
        limit = _read_number(self._folder / "memory.max")  # "max" if there is no limit
        used = _read_number(self._folder / "memory.current")
        if limit is None or used is None:
            return True
        return used - self._read_reclaimable() + self.reserved_bytes + length <= limit * SHARE

    def _read_reclaimable(self) -> int:
        """Return the bytes of page cache that the kernel drops before it kills a process; kubelet ignores them too."""
        try:
            text = (self._folder / "memory.stat").read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return 0
        matches = [line.split()[1] for line in text.splitlines() if line.startswith("inactive_file ")]
        return int(matches[0]) if matches and matches[0].isdecimal() else 0


def _read_number(path: pathlib.Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None
