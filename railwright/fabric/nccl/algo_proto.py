"""Parses NCCL_ALGO and NCCL_PROTO as NCCL 2.24 and newer does (NVIDIA/nccl src/graph/tuning.cc, parseList).

A value restricts the algorithms or protocols of each collective function.
"""

import functools
from collections.abc import Mapping

from railwright.fabric import text as texts

SINCE = (2, 24)  # older releases read one list for all functions, and keep Ring where no other algorithm remains
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
# Algorithms that implement each function (tuning.cc, ncclTopoTuneModel).
ALGORITHMS_BY_FUNCTION: Mapping[str, frozenset[str]] = {
    "Broadcast": frozenset({"Ring"}),
    "Reduce": frozenset({"Ring"}),
    "AllGather": frozenset({"Ring", "PAT", "NVLS", "CollNetDirect"}),
    "ReduceScatter": frozenset({"Ring", "PAT", "NVLS", "CollNetDirect"}),
    "AllReduce": frozenset(ALGORITHMS) - {"PAT"},
}
_MAX_QUOTED = 40  # characters of an invalid word in an error message


class InvalidChoiceError(ValueError):
    """The value makes NCCL abort. The message names the invalid part."""


@functools.lru_cache(maxsize=256)
def parse(value: str, words: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Return the words (ALGORITHMS or PROTOCOLS) that `value` allows, by function.

    Empty entries are ignored. Raises InvalidChoiceError.
    """
    allowed = dict.fromkeys(ALGORITHMS_BY_FUNCTION, frozenset(words))
    entries = [entry for entry in value.split(";") if entry]
    for position, entry in enumerate(entries):
        function, word_list = _split_entry(entry, first=position == 0 and not value.startswith(";"))
        allowed.update(
            dict.fromkeys([function] if function else ALGORITHMS_BY_FUNCTION, _parse_words(word_list, words))
        )
    return allowed


def _split_entry(entry: str, *, first: bool) -> tuple[str | None, str]:
    """Return the function of an entry (None for all functions) and its list of words."""
    parts = [part for part in entry.split(":") if part]
    if len(parts) > 2:
        raise InvalidChoiceError(f"{_quote(entry)} has more than one colon")
    if len(parts) == 2:
        return _match_word(parts[0], tuple(ALGORITHMS_BY_FUNCTION), "function"), parts[1]
    if not first:
        raise InvalidChoiceError(f"{_quote(entry)} names no function, and only the first entry may lack it")
    if not parts:
        raise InvalidChoiceError(f"{_quote(entry)} names nothing")
    return None, parts[0]


def _parse_words(word_list: str, words: tuple[str, ...]) -> frozenset[str]:
    is_inverted = word_list.startswith("^")
    items = word_list.removeprefix("^").split(",")
    listed_words = frozenset(_match_word(item, words, "word") for item in items if item)
    return frozenset(words) - listed_words if is_inverted else listed_words


def _match_word(text: str, words: tuple[str, ...], noun: str) -> str:
    """Return the word that equals `text` in any letter case. Raises InvalidChoiceError."""
    for word in words:
        if word.casefold() == text.casefold():
            return word
    raise InvalidChoiceError(f"there is no {noun} {_quote(text)}; there are {', '.join(words)}")


def _quote(text: str) -> str:
    return ascii(texts.abbreviate(text, _MAX_QUOTED))
