"""Catalogue of the NCCL_* variables: allowed values, default and status of each, and look-ups by name.

The variables, in `variables.json` in this folder, are those of NVIDIA/nccl 2.30.7, its 62 release tags and later
binaries, and those that only plugins, frameworks or other programs read. Rules about values in a workload are in
`fabric/lint`.
"""

import difflib
import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Literal

import msgspec

PREFIX = "NCCL_"
INTEGER_PARSERS = frozenset({"strtoll-base0", "strtol-base0"})
OVERFLOW = 1 << 63  # NCCL reads signed 64-bit numbers (src/misc/param.cc) and keeps the default for larger ones
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,20})", re.ASCII)
MAX_NAME_LENGTH = 80  # characters; no variable has a longer name, so none is similar
_MIN_SIMILARITY = 0.75  # ratio of difflib; suggestions below it are guesses


class Enumeration(msgspec.Struct, frozen=True, tag_field="kind", tag="enum"):
    """A fixed list of words."""

    values: tuple[str, ...]
    case_sensitive: bool = True

    def allows(self, text: str) -> bool:
        """True if the list contains `text`."""
        return text in self.values or (not self.case_sensitive and text.upper() in map(str.upper, self.values))

    @property
    def is_numeric(self) -> bool:
        """True if every word is a number."""
        return all(_DECIMAL.fullmatch(value) for value in self.values)

    @property
    def words(self) -> str:
        """The allowed values as text for messages."""
        return " ".join(self.values)


class Range(msgspec.Struct, frozen=True, tag_field="kind", tag="range"):
    """A range of decimal numbers, both ends included. Without `max`, it ends at the largest number that NCCL reads."""

    min: int
    max: int | None = None

    def allows(self, text: str) -> bool:
        """True if `text` is a decimal number in the range."""
        if not _DECIMAL.fullmatch(text):
            return False
        return self.min <= int(text) <= (OVERFLOW - 1 if self.max is None else self.max)

    @property
    def words(self) -> str:
        """The allowed values as text for messages."""
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"


class Pattern(msgspec.Struct, frozen=True, tag_field="kind", tag="pattern"):
    """A regular expression for the entire value."""

    regex: str

    def allows(self, text: str) -> bool:
        """True if the expression matches the entire value."""
        return re.fullmatch(self.regex, text) is not None

    @property
    def words(self) -> str:
        """The allowed values as text for messages."""
        return self.regex


Status = Literal[
    "active",  # read
    "deprecated",  # read, but another variable replaces it
    "unused",  # declared, but never read
    "build",  # read when NCCL is compiled, not when it runs
    "plugin",  # read by an external plugin only
    "newer",  # read only by binaries later than the released sources
    "removed",  # no longer read
    "framework",  # renamed: PyTorch reads the TORCH_NCCL_ form
    "foreign",  # read by another program
    "unknown",  # never read by any release
]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the catalogue, with those fields of `variables.json` that railwright reads."""

    name: str
    status: Status
    default: str | int | bool | None  # None: unset, or chosen at run time
    allowed: Enumeration | Range | Pattern | None  # often stricter than NCCL, which may not check (`on_invalid`)
    introduced: str | None  # release that first reads it, or the first later binary with its name
    deprecated_by: str | None
    parser: str | None
    on_invalid: str | None
    last_seen: str | None

    @property
    def is_numeric(self) -> bool:
        """True if only a number is valid."""
        by_values = isinstance(self.allowed, Range) or (
            isinstance(self.allowed, Enumeration) and self.allowed.is_numeric
        )
        return self.parser in INTEGER_PARSERS or by_values

    @property
    def default_text(self) -> str | None:
        """The default as a user would write it."""
        if isinstance(self.default, bool):
            return str(self.default).upper() if self.parser == "typed" else str(int(self.default))
        return None if self.default is None else str(self.default)

    @property
    def words(self) -> str:
        """The allowed values as text for messages; "" if any value is allowed."""
        return "" if self.allowed is None else self.allowed.words

    def allows(self, text: str) -> bool:
        """True if the variable may have the value `text`. The default is always allowed: setting it changes nothing."""
        if text == self.default_text:
            return True
        if self.allowed is not None:
            return self.allowed.allows(text)
        return not self.is_numeric or Range(-OVERFLOW).allows(text)


def list_variables() -> tuple[Variable, ...]:
    """Return all variables of the catalogue, sorted by name."""
    return tuple(_read_catalogue().values())


def find_variable(name: str) -> Variable | None:
    """Return the variable of this name, or None if the catalogue lacks it."""
    return _read_catalogue().get(name)


def get_variable(name: str) -> Variable:
    """Return the variable of this name. Raises KeyError if the catalogue lacks it."""
    return _read_catalogue()[name]


def suggest_name(name: str) -> str | None:
    """Return the active variable with the most similar name, or None if no name is similar enough."""
    return _find_similar_name(name) if len(PREFIX) < len(name) <= MAX_NAME_LENGTH else None


@functools.lru_cache(maxsize=1024)
def _find_similar_name(name: str) -> str | None:
    # Comparing all names would let 64 variables of a pod delay others by 50 ms. Authors most often leave out the first
    # word, as in NCCL_GID_INDEX, or mistype a letter: one of the ends of the name is right.
    first, last = name[: len(PREFIX) + 1], f"_{name.rpartition('_')[2]}"
    active = [row.name for row in list_variables() if row.status == "active"]
    candidates = [candidate for candidate in active if candidate.startswith(first) or candidate.endswith(last)]
    return next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=_MIN_SIMILARITY)), None)


@functools.cache
def _read_catalogue() -> Mapping[str, Variable]:
    data = resources.files("railwright.fabric.nccl").joinpath("variables.json").read_bytes()
    return {row.name: row for row in msgspec.json.decode(data, type=tuple[Variable, ...])}
