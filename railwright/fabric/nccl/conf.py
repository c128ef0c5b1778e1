"""The format of nccl.conf, exactly as NCCL reads it (NVIDIA/nccl src/misc/param.cc).

Owns one NAME=VALUE a line: nothing is trimmed or quoted, the name ends at the first '=', '#' counts in the first
column only, name and value hold at most 1023 characters. Refuses to know what the names mean.
"""

from collections.abc import Iterable, Mapping

MAX_LENGTH = 1023  # characters of a name and of a value; NCCL cuts the rest off
# Names whose readers run before NCCL loads the file, or never look at what it loaded, cannot travel in it.
_CARRIED = ("NCCL_", "FI_")
_TOO_EARLY = "NCCL_CONF_FILE"  # read to find the file itself


def carries(name: str) -> bool:
    """True when a variable set in the file reaches its reader: NCCL itself and the libfabric plugin it loads."""
    return name.startswith(_CARRIED) and name != _TOO_EARLY


def fits(name: str, value: str) -> bool:
    """True when the line is read back as it was written."""
    return (
        bool(name)
        and name[0] != "#"
        and not any(mark in name for mark in "=\n\r\0")
        and not any(mark in value for mark in "\n\r\0")
        and len(name.encode()) <= MAX_LENGTH
        and len(value.encode()) <= MAX_LENGTH
    )


def emit(values: Iterable[tuple[str, str]]) -> str:
    """The text of the file. Raises ValueError for a line NCCL would not read back."""
    lines = []
    for name, value in values:
        if not fits(name, value):
            raise ValueError(f"{name[:80]!r} does not fit into a line of nccl.conf")
        lines.append(f"{name}={value}\n")
    return "".join(lines)


def parse(text: str) -> Mapping[str, str]:
    """What NCCL takes from a text: the first setting of a name wins, lines without '=' are nothing."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, mark, value = line.partition("=")
        if mark and name and not line.startswith("#"):
            found.setdefault(name[:MAX_LENGTH], value[:MAX_LENGTH])
    return found
