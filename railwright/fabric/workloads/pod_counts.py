"""Counts the pods that a workload creates from each of its pod templates, from the object as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.fabric.workloads import frameworks, registry

_REPLICA_FIELDS = tuple(dict.fromkeys(field for row in registry.FRAMEWORKS for field in row.replica_fields))


def count_pods(
    count_own: frameworks.CountPods | None, path: Sequence[str | int], above: Sequence[Any], root: Mapping[str, Any]
) -> int | None:
    """Return the number of pods of the template at a path; None if the object does not state it.

    `count_own` is the rule of the kind. Without one, the number is the product of the replica fields in the objects
    around the template, which are `above`.
    """
    if count_own is not None:
        return count_own(path, root)
    count = 1
    for node in above:
        for key in _REPLICA_FIELDS:
            value = node.get(key) if isinstance(node, dict) else None
            if isinstance(value, int) and not isinstance(value, bool):
                count *= value
    return count


def count_pods_at(kind: frameworks.WorkloadKind, pointer: str, root: Any) -> int | None:
    """Return the number of pods of the template at a JSON pointer; None if the object does not state it."""
    path: list[str | int] = []
    above: list[Any] = []
    node = root
    for step in pointer.split("/")[1:]:
        above.append(node)
        path.append(int(step) if isinstance(node, list) else step.replace("~1", "/").replace("~0", "~"))
        node = node[path[-1]]
    return count_pods(kind.count_pods, path, above, root)
