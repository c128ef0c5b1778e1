"""Changes -> RFC 6902 operations, built directly: no document is diffed.

Owns pointers, escaping, and that every parent exists before its child: a patch that does not apply is an error to the
user whatever failurePolicy says. The same changes give the same bytes. Refuses to know why a change is made.
"""

from collections.abc import Sequence
from typing import Any

from fabric import quantity, views
from fabric.injection import model

Operation = dict[str, Any]
_CONTAINER = "/spec/containers/"


def operations(pod: views.Pod, changes: Sequence[model.AnyChange]) -> list[Operation]:
    """The operations that make the changes to the pod, in their order; [] for none."""
    return _Builder(pod).build(changes) if changes else []


def annotate(annotations: dict[str, str] | None, added: dict[str, str]) -> list[Operation]:
    """The operations that set annotations on an object that has these (None: it has no such map)."""
    if annotations is None:
        return [_add("/metadata/annotations", added)] if added else []
    return [_add(f"/metadata/annotations/{escaped(key)}", value) for key, value in added.items()]


def escaped(key: str) -> str:
    """A key as a segment of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class _Builder:
    """Remembers which parents exist. A parent that is missing is added with its first child in it."""

    def __init__(self, pod: views.Pod) -> None:
        self._pod = pod
        self._made: dict[str, Any] = {}  # path -> the value of our own `add`, which later children join

    def build(self, changes: Sequence[model.AnyChange]) -> list[Operation]:
        operations: list[Operation] = []
        for change in changes:
            operations += self._operations(change)
        return operations

    def _operations(self, change: model.AnyChange) -> list[Operation]:
        match change:
            case model.SetAnnotation(key=key, value=value):
                there = self._pod.metadata.annotations_or_none is not None
                return self._put("/metadata/annotations", {key: value}, there)
            case model.AddVolume(volume=volume):
                return self._put("/spec/volumes", [volume], self._pod.spec.volumes_or_none is not None)
            case model.SetEnv(container=index, name=name, value=value, index=None):
                there = self._container(index).env_or_none is not None
                return self._put(f"{_CONTAINER}{index}/env", [{"name": name, "value": value}], there)
            case model.SetEnv(container=index, name=name, value=value, index=entry):
                value = {"name": name, "value": value}
                return [{"op": "replace", "path": f"{_CONTAINER}{index}/env/{entry}", "value": value}]
            case model.AddMount(container=index, mount=mount):
                there = self._container(index).volume_mounts_or_none is not None
                return self._put(f"{_CONTAINER}{index}/volumeMounts", [mount], there)
            case model.AddResource():
                return self._resource(change)
            case model.AddCapability(container=index, capability=capability):
                return self._capability(index, capability)
            case model.SetPrivileged(container=index):
                context = self._container(index).security_context
                return self._put(f"{_CONTAINER}{index}/securityContext", {"privileged": True}, context is not None)

    def _resource(self, change: model.AddResource) -> list[Operation]:
        resources = self._container(change.container).resources
        base = f"{_CONTAINER}{change.container}/resources"
        amount = {change.resource: str(change.quantity)}
        if resources is None:
            return self._put_deep(base, {"requests": amount, "limits": amount})
        there = {"requests": resources.requests_or_none, "limits": resources.limits_or_none}
        written: list[Operation] = []
        for part, present in there.items():
            if present is None or not _equals(present.get(change.resource), change.quantity):
                written += self._put(f"{base}/{part}", dict(amount), present is not None)
        return written

    def _capability(self, index: int, capability: str) -> list[Operation]:
        base = f"{_CONTAINER}{index}/securityContext"
        context = self._container(index).security_context
        if context is None:
            return self._put_deep(base, {"capabilities": {"add": [capability]}})
        if context.capabilities is None:
            made = self._made.get(f"{base}/capabilities")
            if made is not None:
                made["add"].append(capability)
                return []
            return self._put(f"{base}/capabilities", {"add": [capability]}, there=False)
        return self._put(f"{base}/capabilities/add", [capability], context.capabilities.add is not None)

    def _put(self, path: str, value: Any, there: bool) -> list[Operation]:  # noqa: FBT001 - the third fact of a put
        """Add a one-entry map or list to the one at `path`, which is made if it is not there."""
        if there:
            if isinstance(value, dict):
                return [_add(f"{path}/{escaped(key)}", each) for key, each in value.items()]
            return [_add(f"{path}/-", each) for each in value]
        made = self._made.get(path)
        if made is None:
            self._made[path] = value
            return [_add(path, value)]
        made.update(value) if isinstance(made, dict) else made.extend(value)
        return []

    def _put_deep(self, path: str, value: dict[str, Any]) -> list[Operation]:
        """The same for a parent whose children are maps or lists themselves."""
        made = self._made.get(path)
        if made is None:
            self._made[path] = {
                key: {inner: dict(each) if isinstance(each, dict) else list(each) for inner, each in child.items()}
                if key == "capabilities"
                else dict(child)
                for key, child in value.items()
            }
            return [_add(path, self._made[path])]
        for key, child in value.items():
            _grow(made, key, child)
        return []

    def _container(self, index: int) -> views.Container:
        return self._pod.spec.containers[index]


def _grow(made: dict[str, Any], key: str, child: Any) -> None:
    there = made.setdefault(key, type(child)())
    if isinstance(child, list):
        there.extend(child)
        return
    for inner, each in child.items():
        if isinstance(each, list):
            _grow(there, inner, each)
        else:
            there[inner] = each


def _equals(written: views.Written | None, amount: int) -> bool:
    try:
        return written is not None and quantity.parse(written) == amount
    except quantity.InvalidQuantityError:
        return False


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
