"""Formats counts and lists for messages.

Strings only: the caller decides what is listed and how many items a message names.
"""

from collections.abc import Iterable

_IRREGULAR = {"leaf": "leaves"}


def plural(count: int, noun: str) -> str:
    """Return the count with the noun in singular or plural, such as `1 leaf` or `3 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {_IRREGULAR.get(noun, noun + 's')}"


def join_some(items: Iterable[str], more: int = 0) -> str:
    """Join distinct items with commas, and add the number of those that are not named."""
    return ", ".join(dict.fromkeys(items)) + (f" and {more} more" if more > 0 else "")


def join_first(items: Iterable[str], limit: int) -> str:
    """Join the first `limit` distinct items with commas, and add the number of the others."""
    distinct = list(dict.fromkeys(items))
    return join_some(distinct[:limit], len(distinct) - limit)


def truncate(text: str, max_length: int) -> str:
    """Return the first `max_length` characters; `...` replaces the last ones of a longer text."""
    return text if len(text) <= max_length else text[: max_length - 3] + "..."
