"""Mutates inputs of parsers as bytes, or as the tree of their JSON. Equal seeds give equal inputs.

A changed byte mostly makes JSON invalid, so half of the mutations of an input that is JSON change its tree.
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 1e308, 0.5, "", " ", "\x00", "\ud800", "\u2028", "/~1", "a" * 300, "é" * 8),
    *([], {}, [None], [[]], {"": None}, [{}] * 3),
)
MAX_LENGTH = 32 * 1024


def generate_inputs(corpus: Sequence[bytes], tokens: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` inputs, each an input of the corpus after some mutations."""
    chance = random.Random(seed)  # noqa: S311 - the same inputs each time are wanted
    for _ in range(count):
        data = chance.choice(corpus)
        for _ in range(chance.choice((1, 1, 2, 4))):
            data = mutate(data, corpus, tokens, chance)
        yield data


def mutate(data: bytes, corpus: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """Return one mutation."""
    if chance.random() < 0.5 and (tree := _tree(data)) is not None:
        return json.dumps(_change(tree, tokens, chance)).encode()[:MAX_LENGTH]
    return chance.choice(_BYTES)(data, corpus, tokens, chance)[:MAX_LENGTH]


def _tree(data: bytes) -> Any:
    try:
        return json.loads(data) if data[:1] in (b"{", b"[") else None
    except (ValueError, RecursionError):
        return None


def _change(tree: Any, tokens: Sequence[bytes], chance: random.Random) -> Any:
    """Return the tree with one value replaced, removed, repeated or added."""
    parent, key = chance.choice([*_places(tree), (None, None)])
    if parent is None:
        return [tree] if chance.random() < 0.5 else chance.choice(ODD)
    what = chance.randrange(4)
    if what == 0:
        del parent[key]
    elif what == 1 and isinstance(parent, list):
        parent.insert(key, parent[key])
    elif what == 2 and isinstance(parent, dict):
        parent[_word(tokens, chance)] = parent[key]
    else:
        parent[key] = _word(tokens, chance) if chance.random() < 0.5 else chance.choice(ODD)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def _word(tokens: Sequence[bytes], chance: random.Random) -> str:
    return chance.choice(tokens).decode("utf-8", "replace")


def _flip(data: bytes, _: Sequence[bytes], __: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, _: Sequence[bytes], __: Sequence[bytes], chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:]


def _repeat(data: bytes, _: Sequence[bytes], __: Sequence[bytes], chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:last] * chance.choice((1, 2, 50)) + data[last:]


def _token(data: bytes, _: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(tokens) + data[at + chance.choice((0, 0, 1, 4)) :]


def _splice(data: bytes, corpus: Sequence[bytes], __: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(corpus)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


_BYTES = (_flip, _cut, _repeat, _token, _splice)
