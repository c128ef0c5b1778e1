"""Findings of the policy checks, and helpers for their messages."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator

from railwright.fabric import text as texts

Path = tuple[str | int, ...]

_MAX_VALUE_LENGTH = 80  # characters of a value in a message: enough to find it, too few to flood a log
_MAX_NAMES = 20  # names in a list, for the same reason


@dataclasses.dataclass(frozen=True)
class Finding:
    """A violated rule: the path, a message with the fix, and the other paths that the rule reads.

    In `rests_on`, "*" stands for any one key or index. If one of these paths holds a placeholder for an unreadable
    value, the finding is dropped, because it would only repeat the error about that value.
    """

    path: Path
    message: str
    rests_on: tuple[Path, ...] = ()


def check_extended_resource(path: Path, resource: str) -> Iterator[Finding]:
    """Yield a finding for a resource that is not extended (Kubernetes' IsExtendedResourceName).

    Resources in kubernetes.io and those that start with `requests.` are Kubernetes' own.
    """
    domain = resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or resource.startswith("requests."):
        yield Finding(
            path,
            f"{quote(resource)} is reserved by Kubernetes; name the resource of a device plugin, "
            "such as nvidia.com/mlx5_0",
        )


def find_repeated(values: Iterable[str | int]) -> Iterator[int]:
    """Yield the index of each value that occurs earlier in `values`."""
    earlier: set[str | int] = set()
    for index, value in enumerate(values):
        if value in earlier:
            yield index
        earlier.add(value)


def quote(value: object) -> str:
    """Return a value as JSON, truncated, for a message."""
    text = json.dumps(value)
    return texts.abbreviate(text, _MAX_VALUE_LENGTH)


def join_names(values: Iterable[str]) -> str:
    """Return the first names as a comma-separated list for a message."""
    names = [*itertools.islice(values, _MAX_NAMES + 1)]
    texts = [name if name.isascii() and name.isprintable() else quote(name) for name in names[:_MAX_NAMES]]
    return ", ".join([*texts, "..."] if len(names) > _MAX_NAMES else texts) or "(none)"


def fits_64_bits(number: int) -> bool:
    """True if the API server can read an integer: as a signed one of 64 bits."""
    return -(2**63) <= number < 2**63


def describe_large_number(number: int) -> str:
    """Return the message about an integer that the API server cannot read."""
    return f"{number} needs more than 64 bits; write a smaller number, or quote it"
