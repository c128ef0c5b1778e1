"""Lists the labels and annotations of pods that railwright reads: its own and those of frameworks."""

import re
from collections.abc import Iterator
from typing import Any

import cost_budget
import msgspec

from railwright.fabric import names
from railwright.fabric.workloads import registry

_is_key = re.compile(r"[a-z0-9.-]+\.[a-z]+/[\w.-]+").fullmatch


def list_keys() -> list[str]:
    """Return railwright's labels and annotations, and those of frameworks."""
    own = [value for name, value in vars(names).items() if name.isupper()]
    return sorted(set(filter(_is_key, [*_list_texts(own), *_list_texts(registry.FRAMEWORKS)])))


def list_pods(base: cost_budget.Tree, keys: list[str]) -> Iterator[cost_budget.Row]:
    """Yield pods in which one of these labels or annotations has a long or ambiguous value."""
    for place in ("annotations", "labels"):
        for key in keys:
            field = cost_budget.Field(("metadata", place, key), "text")
            # the API server limits all annotations of an object to 256 KiB
            for title, build in cost_budget.list_values(field, cost_budget.Size(255 * 1024)):
                yield cost_budget.Row(f"{place} {key} {title}", lambda p=field.path, b=build: _put(base, p, b()))


def _put(base: cost_budget.Tree, path: cost_budget.Path, value: Any) -> cost_budget.Tree:
    return cost_budget.set_value(base, path, value if isinstance(value, str) else str(value))


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, msgspec.Struct):
        yield from _list_texts(list(msgspec.structs.asdict(value).values()))
    elif isinstance(value, dict):
        yield from _list_texts([*value, *value.values()])
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from _list_texts(part)
