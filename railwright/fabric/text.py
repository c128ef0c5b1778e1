"""Formats counts and lists for messages. The caller chooses the items and how many of them a message names."""

import functools
import re
from collections.abc import Iterable

_MAX_LIST = 60  # characters of a list in a message: a warning has 256, and must also state the fix
_MAX_QUOTED = 100  # characters of a user's value in a message
_IRREGULAR = {
    "leaf": "leaves",
    "policy": "policies",
    "entry": "entries",
    "container or claim": "containers and claims",
    "has": "have",
    "is": "are",
    "was": "were",
    "does": "do",
    "matches": "match",
}


def format_count(count: int, noun: str, verb: str = "", *, part: int | None = None) -> str:
    """Return the count with the noun in singular or plural, such as `1 leaf` or `3 pods`.

    `part` of them: `1 of 3 pods`. The verb, if any, is given in the singular and agrees with the number that it is
    about: `1 pod has`, `1 of 3 pods has`, `3 pods have`. The last word of a noun phrase gets the plural.
    """
    start = f"{count}" if part is None else f"{part} of {count}"
    words = f"{start} {noun if count == 1 else pluralize(noun)}"
    return f"{words} {verb if (count if part is None else part) == 1 else _pluralize_verb(verb)}" if verb else words


def pluralize(noun: str) -> str:
    """Return the plural of a noun phrase: `leaf`, `training pod`."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    *first, last = noun.split(" ")
    return " ".join([*first, _IRREGULAR.get(last, f"{last}s")])


def _pluralize_verb(verb: str) -> str:
    """Return the plural of a verb in the third person: `have` for has, `remain` for remains."""
    first, *more = verb.split(" ")
    return " ".join([_IRREGULAR.get(first, first.removesuffix("s")), *more])


def join_first(items: Iterable[str], limit: int) -> str:
    """Join the first `limit` distinct items with commas, and add the number of the others."""
    distinct = list(dict.fromkeys(items))
    more = len(distinct) - limit
    return ", ".join(distinct[:limit]) + (f" and {more} more" if more > 0 else "")


def truncate(text: str, max_length: int) -> str:
    """Return the first `max_length` characters; `...` replaces the last ones of a longer text."""
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def quote(text: str) -> str:
    """Return a user's value for a message: quoted, escaped and truncated."""
    return repr(truncate(text, _MAX_QUOTED))


def limit_message(text: str, max_length: int) -> str:
    """Return a message with at most `max_length` characters and without control characters."""
    shown = truncate(text, max_length)
    if shown.isprintable():
        return shown
    escaped = "".join([character if character.isprintable() else ascii(character)[1:-1] for character in shown])
    return truncate(escaped, max_length)


def limit_warning(text: str, max_length: int) -> str:
    """Return a warning of at most `max_length` characters that keeps its fix, the part after the last semicolon.

    The middle is left out, because the beginning names the problem.
    """
    if len(text) <= max_length:
        return limit_message(text, max_length)
    problem, separator, remedy = text.rpartition("; ")
    room = max_length - len(separator) - len(remedy)
    if not separator or room < max_length // 3:
        return limit_message(text, max_length)
    return limit_message(f"{truncate(problem, room)}{separator}{remedy}", max_length)


def join_fitting(items: Iterable[str], max_length: int = _MAX_LIST) -> str:
    """Return the first items, each once, in about `max_length` characters, and the number of the others."""
    distinct = list(dict.fromkeys(items))
    shown, count = truncate(distinct[0], max_length), 1
    while count < len(distinct) and len(shown) + len(distinct[count]) <= max_length:
        shown = f"{shown}, {distinct[count]}"
        count += 1
    return shown if count == len(distinct) else f"{shown} and {len(distinct) - count} more"


_DIGITS = re.compile(r"(\d+)")
_MAX_DIGITS = 18  # only this many final digits are compared as a number; longer runs are identifiers, not counts

NaturalKey = tuple[tuple[int, str], ...]


@functools.lru_cache(maxsize=65536)  # the names of a cluster are sorted at every refresh
def build_natural_key(name: str) -> NaturalKey:
    """Return a sort key that compares runs of digits as numbers."""
    return tuple(
        (int(part[-_MAX_DIGITS:]), part) if part.isascii() and part.isdigit() else (-1, part)
        for part in _DIGITS.split(name)
    )
