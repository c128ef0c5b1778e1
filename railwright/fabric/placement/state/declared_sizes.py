"""Gang sizes as declared by cluster objects, with the precedence of docs/interface.md 7.1.

Stores the reported sizes by source object. `workloads.gang_sizes` reads them from the objects; `cluster_state` counts
existing pods.
"""

from collections.abc import Sequence
from typing import Any

from railwright.fabric import pod_group_views, views
from railwright.fabric.workloads import kinds, membership, objects

MAX_SIZE = 150_000  # limit for declared sizes: pods of a cluster (Kubernetes, "Considerations for large clusters")

SizedObject = pod_group_views.PodGroup | objects.Workload


class Sizes:
    """All reported sizes. An object is identified by kind and namespace/name."""

    def __init__(self) -> None:
        # source -> gang -> (kind and name of the reporting object, number of pods)
        self._reported: dict[kinds.SizeSource, dict[kinds.GangKey, tuple[tuple[str, int], ...]]] = {
            source: {} for source in kinds.SizeSource
        }
        # kind -> reporting object -> its gangs
        self._keys: dict[str, dict[str, tuple[kinds.GangKey, ...]]] = {}

    def get_declared(self, key: kinds.GangKey) -> int:
        """Return the size of a gang by the first source that reports it, or 0."""
        for reported in self._reported.values():
            rows = reported.get(key) or reported.get(membership.find_pod_group(key))
            if rows:
                return max(size for _, size in rows)
        return 0

    def upsert(self, kind: kinds.SizeKind, obj: Any) -> bool:
        """Store the sizes of an added or changed object; return True if they changed."""
        return self.set_report(kind, get_source_object(obj.metadata), kind.read_sizes(obj))

    def set_report(self, kind: kinds.SizeKind, source_object: str, report: kinds.SizeReport) -> bool:
        """Replace the sizes reported by `source_object`; return True if they changed."""
        reported, keys = self._reported[kind.source], self._keys.setdefault(kind.name, {})
        label = f"{kind.name} {source_object}"
        before = {key: dict(reported[key])[label] for key in keys.pop(source_object, ())}
        sizes = {key: min(size, MAX_SIZE) for key, size in report.items() if size > 0}
        if sizes:
            keys[source_object] = tuple(sizes)
        if sizes == before:
            return False
        for key in {*before, *sizes}:
            others = tuple(row for row in reported.pop(key, ()) if row[0] != label)
            own = ((label, sizes[key]),) if key in sizes else ()
            if others or own:
                reported[key] = (*others, *own)
        return True

    def replace(self, kind: kinds.SizeKind, objects: Sequence[Any]) -> bool:
        """Replace the objects of a kind by a full list; return True if a size changed."""
        listed = {get_source_object(obj.metadata) for obj in objects}
        removed = [source for source in self._keys.get(kind.name, ()) if source not in listed]
        changes = [self.set_report(kind, source, {}) for source in removed]
        return any([*changes, *(self.upsert(kind, obj) for obj in objects)])


def get_source_object(metadata: views.ObjectMeta | views.Identity) -> str:
    """Return namespace/name of an object."""
    return f"{metadata.namespace}/{metadata.name}"
