"""Gang sizes as declared by cluster objects, with the precedence of docs/interface.md 7.1.

Stores what each source object declares, and which PodGroups exist. `workloads.membership` reads the sizes from the
objects; `cluster_state` counts existing pods.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

MAX_SIZE = 150_000  # limit for declared sizes: pods of a cluster (Kubernetes, "Considerations for large clusters")

SizedObject = views.PodGroup | frameworks.Workload


class _Declaration(msgspec.Struct, frozen=True):
    """The gang sizes that one object declares, and its properties if it is a PodGroup."""

    kind: frameworks.SizeKind
    sizes: frameworks.SizeReport  # at most MAX_SIZE
    is_confined: bool = False  # a PodGroup with a constraint to HyperNodes
    uid: str = ""  # of a PodGroup


class PodGroupReference(NamedTuple):
    """Identifies the PodGroup of a gang, whose namespace and name are the gang's key."""

    api_version: str
    uid: str


class DeclaredSizes:
    """The gang sizes that objects declare. An object is identified by kind and namespace/name."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change."""
        self._on_change = on_change
        self._objects: dict[str, dict[str, _Declaration]] = {}  # kind -> object -> what it declares
        # gang -> (kind, object) -> the declaration, of those that have its size
        self._by_gang: dict[frameworks.GangKey, dict[tuple[str, str], _Declaration]] = {}

    def get_declared(self, key: frameworks.GangKey, *, ended: int = 0) -> int:
        """Return the size of a gang that the first source declares, minus its ended pods; 0 if no source declares one.

        Sizes of one kind of object are added, such as the Jobs of a JobSet. Objects of several kinds declare the same
        pods, such as an MPIJob and its launcher's Job.
        """
        declarations = self._by_gang.get(key, {})
        source = min([declaration.kind.source for declaration in declarations.values()], default=None)
        sizes: dict[str, int] = {}  # by kind
        for (kind, _), declaration in declarations.items():
            if declaration.kind.source == source:
                done = 0 if declaration.kind.excludes_ended else ended
                sizes[kind] = sizes.get(kind, -done) + declaration.sizes[key]
        return min(max([0, *sizes.values()]), MAX_SIZE)

    def is_confined(self, key: frameworks.GangKey) -> bool:
        """True if Volcano offers this gang the nodes of one HyperNode at a time."""
        return any(objects[key].is_confined for objects in self._objects.values() if key in objects)

    def find_pod_group(self, key: frameworks.GangKey) -> PodGroupReference | None:
        """Return the PodGroup of a gang by the first source that has one, or None."""
        declarations = [objects[key] for objects in self._objects.values() if key in objects and objects[key].uid]
        if not declarations:
            return None
        group = min(declarations, key=lambda declaration: declaration.kind.source)
        return PodGroupReference(f"{group.kind.group}/{group.kind.version}", group.uid)

    def upsert(self, kind: frameworks.SizeKind, obj: SizedObject) -> None:
        """Add or update an object that declares sizes. Most updates change only its status, and have no effect."""
        declaration = _Declaration(kind, _limit_sizes(kind.read_sizes(obj)))
        if isinstance(obj, views.PodGroup):
            declaration = msgspec.structs.replace(declaration, is_confined=obj.spec.is_confined, uid=obj.metadata.uid)
        self._store(obj.metadata.full_name, declaration)

    def set_sizes(self, kind: frameworks.SizeKind, source_object: str, sizes: frameworks.SizeReport) -> None:
        """Replace the sizes that `source_object` declares."""
        self._store(source_object, _Declaration(kind, _limit_sizes(sizes)))

    def remove(self, kind: frameworks.SizeKind, obj: SizedObject) -> None:
        """Remove an object that declares sizes."""
        self.set_sizes(kind, obj.metadata.full_name, {})

    def replace(self, kind: frameworks.SizeKind, objects: Sequence[SizedObject]) -> None:
        """Replace all objects of a kind that declares sizes."""
        for source in self._objects.get(kind.name, {}).keys() - {obj.metadata.full_name for obj in objects}:
            self.set_sizes(kind, source, {})
        for obj in objects:
            self.upsert(kind, obj)

    def _store(self, source_object: str, declaration: _Declaration) -> None:
        """Store a declaration, or remove the object if it is empty."""
        kind = declaration.kind
        objects = self._objects.setdefault(kind.name, {})
        before = objects.pop(source_object, _Declaration(kind, {}))
        label = kind.name, source_object
        for key in before.sizes:
            del self._by_gang[key][label]
            if not self._by_gang[key]:
                del self._by_gang[key]
        for key in declaration.sizes:
            self._by_gang.setdefault(key, {})[label] = declaration
        if declaration != _Declaration(kind, {}):
            objects[source_object] = declaration
        if declaration != before:
            self._on_change()


def _limit_sizes(sizes: frameworks.SizeReport) -> frameworks.SizeReport:
    return {key: min(size, MAX_SIZE) for key, size in sizes.items() if size > 0}
