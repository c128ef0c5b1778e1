"""Gang sizes as declared by cluster objects, with the precedence of docs/interface.md 7.1.

Stores the reported sizes by source object. `workloads.membership` reads them from the objects; `cluster_state` counts
existing pods. Of Volcano's PodGroups it also stores which have a constraint to HyperNodes.
"""

from collections.abc import Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

MAX_SIZE = 150_000  # limit for declared sizes: pods of a cluster (Kubernetes, "Considerations for large clusters")

SizedObject = views.PodGroup | frameworks.Workload


class Sizes:
    """All reported sizes. An object is identified by kind and namespace/name."""

    def __init__(self) -> None:
        # source -> gang -> (kind and name of the reporting object, number of pods)
        self._reported: dict[frameworks.SizeSource, dict[frameworks.GangKey, tuple[tuple[str, int], ...]]] = {
            source: {} for source in frameworks.SizeSource
        }
        # kind -> reporting object -> its gangs
        self._keys: dict[str, dict[str, tuple[frameworks.GangKey, ...]]] = {}
        # kind -> PodGroup that is controlled by another object -> the kind (KIND.GROUP) and name of that object
        self._owners: dict[str, dict[str, tuple[str, str]]] = {}
        self._confined: dict[str, set[str]] = {}  # kind -> PodGroups with a constraint to HyperNodes
        self._names: dict[str, dict[str, None]] = {}  # KIND.GROUP -> the names under which its kinds are reported
        self._excluding_ended: set[str] = set()  # names of kinds

    def get_declared(self, key: frameworks.GangKey, *, ended: int = 0) -> int:
        """Return the size of a gang by the first source that reports it, or 0; less its pods that have ended.

        Objects of one kind add up, such as the Jobs of a JobSet. Those of several kinds report the same pods: an MPIJob
        has those of its launcher's Job. A PodGroup without a number has the size of the object that controls it.
        """
        for reported in self._reported.values():
            if rows := reported.get(key):
                sizes: dict[str, int] = {}
                for label, size in rows:
                    kind = label.partition(" ")[0]
                    sizes[kind] = sizes.get(kind, 0) + size
                return max(self._subtract(kind, size, ended) for kind, size in sizes.items())
        owned = (self._get_size_of(*owners[key], ended=ended) for owners in self._owners.values() if key in owners)
        return max(owned, default=0)

    def _subtract(self, kind: str, size: int, ended: int) -> int:
        return min(size if kind in self._excluding_ended else max(0, size - ended), MAX_SIZE)

    def is_confined(self, key: frameworks.GangKey) -> bool:
        """True if Volcano offers this gang the nodes of one HyperNode at a time."""
        return any(key in groups for groups in self._confined.values())

    def upsert(self, kind: frameworks.SizeKind, obj: Any) -> bool:
        """Store the sizes of an added or changed object; return True if they changed."""
        source_object = obj.metadata.full_name
        has_changed = False
        if isinstance(obj, views.PodGroup):
            has_changed = self._set_owner(kind, source_object, obj.metadata.controller)
            has_changed |= self._set_confined(kind, source_object, is_confined=obj.spec.is_confined)
        self._names.setdefault(kind.snapshot_kind, {})[kind.name] = None
        if kind.excludes_ended:
            self._excluding_ended.add(kind.name)
        return self.set_report(kind, source_object, kind.read_sizes(obj)) or has_changed

    def remove(self, kind: frameworks.SizeKind, source_object: str) -> bool:
        """Remove what an object reports; return True if a size changed."""
        has_changed = self._set_owner(kind, source_object, None)
        has_changed |= self._set_confined(kind, source_object, is_confined=False)
        return self.set_report(kind, source_object, {}) or has_changed

    def set_report(self, kind: frameworks.SizeKind, source_object: str, report: frameworks.SizeReport) -> bool:
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

    def replace(self, kind: frameworks.SizeKind, objects: Sequence[Any]) -> bool:
        """Replace the objects of a kind by a full list; return True if a size changed."""
        listed = {obj.metadata.full_name for obj in objects}
        known = {*self._keys.get(kind.name, ()), *self._owners.get(kind.name, ()), *self._confined.get(kind.name, ())}
        changes = [self.remove(kind, source) for source in known - listed]
        return any([*changes, *(self.upsert(kind, obj) for obj in objects)])

    def _set_owner(self, kind: frameworks.SizeKind, pod_group: str, owner: views.OwnerReference | None) -> bool:
        """Store which object controls a PodGroup; return True if that changed."""
        owners = self._owners.setdefault(kind.name, {})
        before = owners.pop(pod_group, None)
        if owner is None:
            return before is not None
        group = owner.api_version.rpartition("/")[0]
        owners[pod_group] = f"{owner.kind}.{group}", f"{pod_group.partition('/')[0]}/{owner.name}"
        return owners[pod_group] != before

    def _set_confined(self, kind: frameworks.SizeKind, pod_group: str, *, is_confined: bool) -> bool:
        """Store whether a PodGroup has a constraint to HyperNodes; return True if that changed."""
        groups = self._confined.setdefault(kind.name, set())
        has_changed = is_confined != (pod_group in groups)
        (groups.add if is_confined else groups.discard)(pod_group)
        return has_changed

    def _get_size_of(self, display_kind: str, source_object: str, *, ended: int) -> int:
        """Return the size that an object reports, or 0. A controller's releases differ in the keys, not in the size."""
        labels = [(name, f"{name} {source_object}") for name in self._names.get(display_kind, ())]
        sizes = [
            self._subtract(name, size, ended)
            for name, label in labels
            for key in self._keys.get(name, {}).get(source_object, ())
            for reported in self._reported.values()
            for reporter, size in reported.get(key, ())
            if reporter == label
        ]
        return max(sizes, default=0)
