"""Every NCCL_* name that anybody ever read or wrote, as typed rows, and the look-ups over them.

Owns `variables.json` beside it (NVIDIA/nccl 2.30.7, its 62 release tags and later binaries) and what a row allows.
Refuses to know who set a variable and whether that is wise: that is `fabric/lint`'s.
"""

import difflib
import functools
import re
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from typing import Literal

import msgspec

PREFIX = "NCCL_"
INTEGER_PARSERS = frozenset({"strtoll-base0", "strtol-base0"})
OVERFLOW = 1 << 63  # NCCL reads signed 64-bit numbers (src/misc/param.cc); beyond them the default stays
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,20})", re.ASCII)
_LONGEST = 80  # characters: longer than any name, so nothing is near it
_CLOSE = 0.75  # of difflib's ratio: below it a suggestion is a guess
_CANDIDATES = 3  # names that are compared letter by letter


class Enumeration(msgspec.Struct, frozen=True, tag_field="kind", tag="enum"):
    """One of these words."""

    values: tuple[str, ...]
    case_sensitive: bool = True

    def allows(self, text: str) -> bool:
        """True for a word of the list."""
        return text in self.values or (not self.case_sensitive and text.upper() in map(str.upper, self.values))

    @property
    def numeric(self) -> bool:
        """True where every word is a number."""
        return all(_DECIMAL.fullmatch(value) for value in self.values)

    @property
    def words(self) -> str:
        """What is allowed, for messages."""
        return " ".join(self.values)


class Range(msgspec.Struct, frozen=True, tag_field="kind", tag="range"):
    """A decimal number, both ends included; no `max`: as large as fits."""

    min: int
    max: int | None = None

    def allows(self, text: str) -> bool:
        """True for a decimal number inside."""
        if not _DECIMAL.fullmatch(text):
            return False
        return self.min <= int(text) <= (OVERFLOW - 1 if self.max is None else self.max)

    @property
    def words(self) -> str:
        """What is allowed, for messages."""
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"


class Pattern(msgspec.Struct, frozen=True, tag_field="kind", tag="pattern"):
    """A grammar, as a regular expression over the whole value."""

    regex: str

    def allows(self, text: str) -> bool:
        """True where the whole value matches."""
        return _compiled(self.regex).fullmatch(text) is not None

    @property
    def words(self) -> str:
        """What is allowed, for messages."""
        return self.regex


class DefaultSince(msgspec.Struct, frozen=True):
    """A default and the release it came with."""

    since: str
    default: str | int | bool | None


Status = Literal[
    "active",  # read
    "deprecated",  # read, superseded
    "unused",  # declared, never consulted
    "build",  # of the build, not of a run
    "plugin",  # read by an external plugin only
    "newer",  # in a later binary only
    "removed",  # no longer read
    "framework",  # renamed: PyTorch reads the TORCH_NCCL_ form
    "foreign",  # of another program
    "unknown",  # nobody ever read it
]
Advice = Literal["static", "derive-node", "derive-pod", "derive-image", "avoid", "never"]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One row; the fields are those of the data and are explained there."""

    name: str
    status: Status
    default: str | int | bool | None  # None: unset, or decided at run time (`default_note`)
    type: Literal["bool", "int", "string", "enum", "size", "path", "list"]
    allowed: Enumeration | Range | Pattern | None  # often stricter than NCCL, which does not look (`on_invalid`)
    meaning: str
    introduced: str | None
    deprecated_by: str | None
    scope: str
    source: str
    component: str
    documented: bool
    parser: str | None
    log: str | None  # after "NCCL INFO ", when the value was taken
    introduced_basis: str | None
    default_note: str | None
    on_invalid: str | None
    default_history: tuple[DefaultSince, ...] | None
    last_seen: str | None
    owner: str
    inject: Advice | None
    note: str | None = None

    @property
    def numeric(self) -> bool:
        """True where only a number makes sense."""
        by_values = isinstance(self.allowed, Range) or (isinstance(self.allowed, Enumeration) and self.allowed.numeric)
        return self.parser in INTEGER_PARSERS or by_values

    @property
    def default_text(self) -> str | None:
        """The default as somebody would write it."""
        if isinstance(self.default, bool):
            return str(self.default).upper() if self.parser == "typed" else str(int(self.default))
        return None if self.default is None else str(self.default)

    @property
    def words(self) -> str:
        """What is allowed, for messages; "" where anything is."""
        return "" if self.allowed is None else self.allowed.words

    def allows(self, text: str) -> bool:
        """True for what the row allows, and for the default itself: writing it changes nothing."""
        if text == self.default_text:
            return True
        if self.allowed is not None:
            return self.allowed.allows(text)
        return not self.numeric or _fits(text)

    @property
    def since(self) -> tuple[int, ...] | None:
        """The first release that reads it; for a name seen only in a later binary, that one."""
        return version(self.introduced or self._binary)

    @property
    def until(self) -> tuple[int, ...] | None:
        """The last release that read it, where it was removed."""
        return version(self.last_seen)

    @property
    def _binary(self) -> str | None:
        basis = self.introduced_basis or ""
        return basis.rpartition(" ")[2] if basis.startswith("binary only") else None


def version(text: str | None) -> tuple[int, ...] | None:
    """2.21.5 -> (2, 21, 5); None where it is none. A tag's v and -1 are cut off."""
    parts = (text or "").strip().removeprefix("v").partition("-")[0].split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def every() -> tuple[Variable, ...]:
    """All rows, by name."""
    return _catalogue().rows


def find(name: str) -> Variable | None:
    """The row of a name."""
    return _catalogue().by_name.get(name)


@functools.lru_cache(maxsize=1024)
def nearest(name: str) -> str | None:
    """The name somebody probably meant: one that NCCL or a plugin of it reads; None where nothing is close."""
    if len(name) > _LONGEST:
        return None
    catalogue = _catalogue()
    shared: Counter[str] = Counter()
    for pair in _pairs(name):
        shared.update(catalogue.by_pair.get(pair, ()))
    candidates = sorted(shared, key=lambda each: (-shared[each] / (len(each) + len(name)), each))[:_CANDIDATES]
    rated = [(difflib.SequenceMatcher(None, name, each).ratio(), each) for each in candidates]
    best = max(rated, default=(0.0, ""))
    return best[1] if best[0] >= _CLOSE else None


class _Catalogue(msgspec.Struct, frozen=True):
    rows: tuple[Variable, ...]
    by_name: Mapping[str, Variable]
    by_pair: Mapping[str, tuple[str, ...]]  # two letters -> names that hold them and are worth proposing


@functools.cache
def _catalogue() -> _Catalogue:
    data = resources.files("railwright.fabric.nccl").joinpath("variables.json").read_bytes()
    rows = msgspec.json.decode(data, type=tuple[Variable, ...])
    by_pair: dict[str, list[str]] = {}
    for row in rows:
        if row.status == "active":
            for pair in _pairs(row.name):
                by_pair.setdefault(pair, []).append(row.name)
    return _Catalogue(rows, {row.name: row for row in rows}, {pair: tuple(names) for pair, names in by_pair.items()})


def _pairs(name: str) -> frozenset[str]:
    text = name.removeprefix(PREFIX)
    return frozenset(text[at : at + 2] for at in range(len(text) - 1))


def _fits(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and -OVERFLOW <= int(text) < OVERFLOW


@functools.cache  # as many as the data has patterns
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)
