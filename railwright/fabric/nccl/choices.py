"""The grammar of NCCL_ALGO and NCCL_PROTO since NCCL 2.24: what is left of all algorithms or protocols.

Owns parsing as NVIDIA/nccl src/graph/tuning.cc (parseList) does it, and which algorithms a function has there.
Refuses to know whether a choice is a good one.
"""

import functools
from collections.abc import Mapping

SINCE = (2, 24)  # older releases take one list for all functions and keep Ring for those that have nothing else
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
# Which algorithms carry a function at all (tuning.cc, ncclTopoTuneModel).
CARRIERS: Mapping[str, frozenset[str]] = {
    "Broadcast": frozenset({"Ring"}),
    "Reduce": frozenset({"Ring"}),
    "AllGather": frozenset({"Ring", "PAT", "NVLS", "CollNetDirect"}),
    "ReduceScatter": frozenset({"Ring", "PAT", "NVLS", "CollNetDirect"}),
    "AllReduce": frozenset(ALGORITHMS) - {"PAT"},
}
_SHOWN = 40  # characters of a wrong word that an error repeats


class InvalidChoiceError(ValueError):
    """NCCL stops at the value; the text says at what."""


@functools.lru_cache(maxsize=256)
def read(value: str, words: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Function -> the words that stay. Empty entries count for nothing. Raises InvalidChoiceError."""
    chosen = dict.fromkeys(CARRIERS, frozenset(words))
    entries = [entry for entry in value.split(";") if entry]
    for position, entry in enumerate(entries):
        function, listed = _parts(entry, first=position == 0 and not value.startswith(";"))
        chosen.update(dict.fromkeys([function] if function else CARRIERS, _words(listed, words)))
    return chosen


def _parts(entry: str, *, first: bool) -> tuple[str | None, str]:
    """The function of an entry, None for all of them, and its list."""
    parts = [part for part in entry.split(":") if part]
    if len(parts) > 2:
        raise InvalidChoiceError(f"{_shown(entry)} has more than one colon")
    if len(parts) == 2:
        return _named(parts[0], tuple(CARRIERS), "function"), parts[1]
    if not first:
        raise InvalidChoiceError(f"{_shown(entry)} names no function, and only the first entry may lack it")
    if not parts:
        raise InvalidChoiceError(f"{_shown(entry)} names nothing")
    return None, parts[0]


def _words(listed: str, words: tuple[str, ...]) -> frozenset[str]:
    inverted = listed.startswith("^")
    named = frozenset(_named(word, words, "word") for word in listed.removeprefix("^").split(",") if word)
    return frozenset(words) - named if inverted else named


def _named(text: str, known: tuple[str, ...], what: str) -> str:
    """The known word that is meant, in any letter case."""
    for word in known:
        if word.casefold() == text.casefold():
            return word
    raise InvalidChoiceError(f"there is no {what} {_shown(text)}; there are {', '.join(known)}")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
