"""How many pods a gang has, by the objects that say so: ruling 19's order of who is asked.

Owns the numbers that were told, by whom, and who is believed. What an object tells is `size_kinds`; the pods seen
are `fleet`'s.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, views, workload, workload_views

MOST_PODS = 150_000  # of a cluster (Kubernetes' "Considerations for large clusters"): a number someone wrote is no size

Told = Mapping[workload.GangKey, int]
"""Pods of each gang that one object speaks of."""


class Source(enum.IntEnum):
    """Who may know a gang's size, in the order they are asked; the first that knows it is believed."""

    VOLCANO = 0  # PodGroups, by API group: two of one name are two
    PLUGINS = 1
    IN_TREE = 2
    POD = 3  # the pods' own annotation
    OWNER = 4


class Kind(msgspec.Struct, frozen=True):
    """A kind of object that tells sizes. `name` is that of its watch: two versions of an API are two rows."""

    name: str
    source: Source
    told: Callable[[Any], Told]


Sized = views.PodGroup | workload_views.Workload
PODS = Kind("pods", Source.POD, lambda _: {})  # filed by gang: of a hundred thousand pods, a gang's all say one thing


class Sizes:
    """What every object has told. Objects are named namespace/name within their kind."""

    def __init__(self) -> None:
        self._told: dict[Source, dict[workload.GangKey, tuple[tuple[str, int], ...]]] = {each: {} for each in Source}
        self._keys: dict[str, dict[str, tuple[workload.GangKey, ...]]] = {}

    def least(self, key: workload.GangKey) -> int:
        """The size of a gang by the first source that knows it; 0 where none does."""
        for told in self._told.values():
            found = told.get(key) or told.get(workload.group_of(key))
            if found:
                return max(size for _, size in found)
        return 0

    def put(self, kind: Kind, obj: Any) -> bool:
        """An object appeared or changed; True if that makes a difference."""
        return self.file(kind, holder_of(obj.metadata), kind.told(obj))

    def file(self, kind: Kind, holder: str, told: Told) -> bool:
        """All that `holder` tells from now on; True if it told something else before."""
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
        """The full list of a kind; True if that makes a difference."""
        listed = {holder_of(obj.metadata) for obj in objects}
        gone = [holder for holder in self._keys.get(kind.name, ()) if holder not in listed]
        changes = [self.file(kind, holder, {}) for holder in gone]
        return any([*changes, *(self.put(kind, obj) for obj in objects)])


def holder_of(metadata: views.ObjectMeta | workload_views.Identity) -> str:
    """The name of an object within its kind."""
    return f"{metadata.namespace}/{metadata.name}"


def told_by_pod(pod: views.Pod) -> int:
    """The size a pod itself names: LeaderWorkerSet writes it on every pod of a group; 0 where there is none."""
    text = pod.metadata.annotations.get(names.LEADER_WORKER_SIZE, "")
    return int(text[:6]) if text.isascii() and text.isdigit() else 0  # a forged endless number must not cost time
