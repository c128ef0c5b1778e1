"""Writes nccl.conf exactly as NCCL reads it (NVIDIA/nccl src/misc/param.cc).

Each line is NAME=VALUE. NCCL trims and unquotes nothing. The name ends at the first '='. A '#' starts a comment in the
first column only. Name and value have at most 1023 characters each.
"""

from collections.abc import Iterable

MAX_LENGTH = 1023  # characters of a name and of a value; NCCL truncates longer ones
# NCCL puts the file's variables into its own environment. Programs that read theirs earlier never see them.
_SUPPORTED_PREFIXES = ("NCCL_", "FI_")
_ENDS_OF_LINES = frozenset("\n\r\0")
_FILE_VARIABLE = "NCCL_CONF_FILE"  # names the file, so NCCL reads it before the file


def can_contain(name: str) -> bool:
    """True if NCCL reads the variable from nccl.conf: those of NCCL and its libfabric plugin, except NCCL_CONF_FILE."""
    return name.startswith(_SUPPORTED_PREFIXES) and name != _FILE_VARIABLE


def fits_line(name: str, value: str) -> bool:
    """True if NCCL reads name and value from a line of nccl.conf exactly as they are given."""
    return (
        bool(name)
        and name[0] != "#"
        and "=" not in name
        and _ENDS_OF_LINES.isdisjoint(name + value)
        and len(name.encode()) <= MAX_LENGTH
        and len(value.encode()) <= MAX_LENGTH
    )


def format_file(values: Iterable[tuple[str, str]]) -> str:
    """Return the text of the file. Raises ValueError for a variable that NCCL would not read back unchanged."""
    lines = []
    for name, value in values:
        if not fits_line(name, value):
            raise ValueError(f"{name[:80]!r} does not fit into a line of nccl.conf")
        lines.append(f"{name}={value}\n")
    return "".join(lines)
