"""Changes -> RFC 6902 operations, built directly: no document is diffed.

Owns pointers, escaping, and that every parent exists before its child: a patch that does not apply is an error to the
user whatever failurePolicy says. The same changes give the same bytes. Refuses to know why a change is made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from railwright.fabric import quantity, views
from railwright.fabric.injection import model

Operation = dict[str, Any]


def operations(pod: views.Pod, changes: Sequence[model.AnyChange], base: str = "") -> list[Operation]:
    """The operations that make the changes to the pod, in their order; [] for none. `base` is the pod's own pointer."""
    builder = _Builder(pod, base)
    for change in changes:
        builder.make(change)
    return builder.operations


def by_change(pod: views.Pod, changes: Sequence[model.AnyChange]) -> list[tuple[model.AnyChange, list[Operation]]]:
    """The same operations, each change with its own; one after the other they are the patch."""
    builder = _Builder(pod)
    grouped = []
    for change in changes:
        before = len(builder.operations)
        builder.make(change)
        grouped.append((change, builder.operations[before:]))
    return grouped


def annotate(annotations: Mapping[str, str] | None, added: Mapping[str, str]) -> list[Operation]:
    """The operations that set annotations on an object that has these (None: it has no such map)."""
    parent = [_add("/metadata/annotations", {})] if annotations is None and added else []
    return parent + [_add(f"/metadata/annotations/{escaped(key)}", value) for key, value in added.items()]


def escaped(key: str) -> str:
    """A key as a segment of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class _Builder:
    """Collects operations and remembers which parents it has made."""

    def __init__(self, pod: views.Pod, base: str = "") -> None:
        self.operations: list[Operation] = []
        self._pod = pod
        self._base = base
        self._made: set[str] = set()

    def make(self, change: model.AnyChange) -> None:
        """Add the operations of one change."""
        _MAKERS[type(change)](self, change)

    def annotation(self, change: model.SetAnnotation) -> None:
        parent = self._parent("/metadata/annotations", self._pod.metadata.annotations_or_none, {})
        self._add(f"{parent}/{escaped(change.key)}", change.value)

    def label(self, change: model.SetLabel) -> None:
        parent = self._parent("/metadata/labels", self._pod.metadata.labels_or_none, {})
        self._add(f"{parent}/{escaped(change.key)}", change.value)

    def volume(self, change: model.AddVolume) -> None:
        self._append("/spec/volumes", self._pod.spec.volumes_or_none, change.volume)

    def init_container(self, change: model.AddInitContainer) -> None:
        self._append("/spec/initContainers", self._pod.spec.init_containers, change.init_container)

    def mount(self, change: model.AddMount) -> None:
        there = self._container(change.container).volume_mounts_or_none
        self._append(f"{_at(change.container)}/volumeMounts", there, change.mount)

    def capability(self, change: model.AddCapability) -> None:
        context = self._context(change.container)
        there = context.capabilities if context else None
        parent = self._parent(f"{_at(change.container)}/securityContext/capabilities", there, {})
        self._append(f"{parent}/add", there.add if there else None, change.capability)

    def privileged(self, change: model.SetPrivileged) -> None:
        self._context(change.container)
        self._add(f"{_at(change.container)}/securityContext/privileged", True)

    def env(self, change: model.SetEnv) -> None:
        entry = {"name": change.name, "value": change.value}
        path = f"{_at(change.container)}/env"
        if change.index is None:
            self._append(path, self._container(change.container).env_or_none, entry)
        else:  # `add` to an index of a list would insert before it
            self.operations.append({"op": "replace", "path": f"{self._base}{path}/{change.index}", "value": entry})

    def unset_env(self, change: model.UnsetEnv) -> None:
        path = f"{self._base}{_at(change.container)}/env/{change.index}"
        self.operations.append({"op": "remove", "path": path})

    def resource(self, change: model.AddResource) -> None:
        resources = self._container(change.container).resources
        base = self._parent(f"{_at(change.container)}/resources", resources, {})
        requests = resources.requests_or_none if resources else None
        limits = resources.limits_or_none if resources else None
        key, amount = escaped(change.resource), str(change.quantity)
        for part, there in (("limits", limits), ("requests", requests)):
            if there is None or not _equals(there.get(change.resource), change.quantity):
                self._add(f"{self._parent(f'{base}/{part}', there, {})}/{key}", amount)

    def _context(self, index: int) -> views.SecurityContext | None:
        context = self._container(index).security_context
        self._parent(f"{_at(index)}/securityContext", context, {})
        return context

    def _append(self, path: str, there: object, value: object) -> None:
        self._add(f"{self._parent(path, there, [])}/-", value)

    def _parent(self, path: str, there: object, empty: object) -> str:
        """The path of a map or list that exists by now."""
        if there is None and path not in self._made:
            self._made.add(path)
            self._add(path, empty)
        return path

    def _add(self, path: str, value: object) -> None:
        self.operations.append({"op": "add", "path": f"{self._base}{path}", "value": value})

    def _container(self, index: int) -> views.Container:
        return self._pod.spec.containers[index]


_MAKERS: Mapping[type, Callable[[_Builder, Any], None]] = {
    model.SetAnnotation: _Builder.annotation,
    model.SetLabel: _Builder.label,
    model.AddVolume: _Builder.volume,
    model.AddMount: _Builder.mount,
    model.AddResource: _Builder.resource,
    model.AddCapability: _Builder.capability,
    model.SetPrivileged: _Builder.privileged,
    model.SetEnv: _Builder.env,
    model.UnsetEnv: _Builder.unset_env,
    model.AddInitContainer: _Builder.init_container,
}


def _at(index: int) -> str:
    return f"/spec/containers/{index}"


def _equals(written: views.Written | None, amount: int) -> bool:
    try:
        return written is not None and quantity.parse(written) == amount
    except quantity.InvalidQuantityError:
        return False


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
