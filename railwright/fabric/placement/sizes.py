"""Gang sizes as declared by cluster objects, with the precedence of docs/interface.md 7.1.

Stores the reported sizes by source object. `size_kinds` reads them from the objects; `fleet` counts existing pods.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views, workload, workload_views

MOST_PODS = 150_000  # limit for declared sizes: pods of a cluster (Kubernetes, "Considerations for large clusters")

Told = Mapping[workload.GangKey, int]
"""Gang -> number of pods, as reported by one object."""


class Source(enum.IntEnum):
    """The sources of gang sizes in order of precedence."""

    VOLCANO = 0  # PodGroups by API group: PodGroups of the same name in two API groups are different objects
    PLUGINS = 1
    IN_TREE = 2
    POD = 3  # annotation of the pods
    OWNER = 4


class Kind(msgspec.Struct, frozen=True):
    """A kind of object that declares gang sizes. `name` is that of its watch; each API version is a kind of its own."""

    name: str
    source: Source
    told: Callable[[Any], Told]


Sized = views.PodGroup | workload_views.Workload
PODS = Kind("pods", Source.POD, lambda _: {})  # keyed by gang, not by pod: all pods of a gang report the same size


class Sizes:
    """All reported sizes. An object is identified by kind and namespace/name."""

    def __init__(self) -> None:
        self._told: dict[Source, dict[workload.GangKey, tuple[tuple[str, int], ...]]] = {each: {} for each in Source}
        self._keys: dict[str, dict[str, tuple[workload.GangKey, ...]]] = {}

    def least(self, key: workload.GangKey) -> int:
        """Return the size of a gang by the first source that reports it, or 0."""
        for told in self._told.values():
            found = told.get(key) or told.get(workload.group_of(key))
            if found:
                return max(size for _, size in found)
        return 0

    def put(self, kind: Kind, obj: Any) -> bool:
        """Store the sizes of an added or changed object; return True if they changed."""
        return self.file(kind, holder_of(obj.metadata), kind.told(obj))

    def file(self, kind: Kind, holder: str, told: Told) -> bool:
        """Replace the sizes reported by `holder`; return True if they changed."""
        held, holders = self._told[kind.source], self._keys.setdefault(kind.name, {})
        label = f"{kind.name} {holder}"
        before = {key: dict(held[key])[label] for key in holders.pop(holder, ())}
        sizes = {key: min(size, MOST_PODS) for key, size in told.items() if size > 0}
        if sizes:
            holders[holder] = tuple(sizes)
        if sizes == before:
            return False
        for key in {*before, *sizes}:
            others = tuple(row for row in held.pop(key, ()) if row[0] != label)
            mine = ((label, sizes[key]),) if key in sizes else ()
            if others or mine:
                held[key] = (*others, *mine)
        return True

    def replace(self, kind: Kind, objects: Sequence[Any]) -> bool:
        """Replace the objects of a kind by a full list; return True if a size changed."""
        listed = {holder_of(obj.metadata) for obj in objects}
        gone = [holder for holder in self._keys.get(kind.name, ()) if holder not in listed]
        changes = [self.file(kind, holder, {}) for holder in gone]
        return any([*changes, *(self.put(kind, obj) for obj in objects)])


def holder_of(metadata: views.ObjectMeta | workload_views.Identity) -> str:
    """Return namespace/name of an object."""
    return f"{metadata.namespace}/{metadata.name}"


def told_by_pod(pod: views.Pod) -> int:
    """Return the gang size in the pod's annotation, or 0. LeaderWorkerSet writes it on every pod of a group."""
    text = pod.metadata.annotations.get(names.LEADER_WORKER_SIZE, "")
    return int(text[:6]) if text.isascii() and text.isdigit() else 0  # truncated: parsing a long number costs time
