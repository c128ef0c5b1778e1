"""What a check reports, and the words all checks share.

Owns the shape of a finding and how values appear in its sentence. Knows no rule of its own but the one of
extended resources, which two keys share.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator

Path = tuple[str | int, ...]

_MAX_SHOWN = 80  # characters of a value in a sentence: enough to find it, too few to flood a log
_MAX_LISTED = 20  # names in an enumeration, for the same reason


@dataclasses.dataclass(frozen=True)
class Finding:
    """One violated rule: where, a sentence with the fix, and which other parts it was judged by.

    In `rests_on`, "*" stands for any one key or index; a reader that had to replace such a part because
    it was unreadable drops the finding, which would only repeat the real error.
    """

    path: Path
    message: str
    rests_on: tuple[Path, ...] = ()


def extended_resource(path: Path, resource: str) -> Iterator[Finding]:
    """Kubernetes' own resources: apimachinery's IsExtendedResourceName refuses kubernetes.io and requests.*."""
    domain = resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or resource.startswith("requests."):
        yield Finding(
            path,
            f"{quoted(resource)} is reserved by Kubernetes; name the resource of a device plugin, "
            "such as nvidia.com/mlx5_0",
        )


def repeated(values: Iterable[str | int]) -> Iterator[int]:
    """Indexes of the values that have occurred before."""
    seen: set[str | int] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)


def quoted(value: object) -> str:
    """A value inside a sentence: escaped, and no longer than a sentence bears."""
    text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def listed(values: Iterable[str]) -> str:
    """Names inside a sentence, the first of them where they are many."""
    first = [*itertools.islice(values, _MAX_LISTED + 1)]
    shown = [value if value.isascii() and value.isprintable() else quoted(value) for value in first[:_MAX_LISTED]]
    return ", ".join([*shown, "..."] if len(first) > _MAX_LISTED else shown) or "(none)"
