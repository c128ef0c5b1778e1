"""Converts changes of a pod into RFC 6902 operations, without comparing documents.

Builds the pointers, and creates each parent before its child: a patch that cannot be applied is an error to the user,
whatever `failurePolicy` is. Equal changes give equal bytes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from railwright.fabric import quantity, views
from railwright.fabric.injection import pod_changes

Operation = dict[str, Any]
_Named = views.PodResourceClaim | views.ContainerClaim


def build_operations(pod: views.Pod, changes: Sequence[pod_changes.AnyChange], base: str = "") -> list[Operation]:
    """Return the operations of the changes, in their order. `base` is the JSON pointer of the pod."""
    builder = _Builder(pod, base)
    for change in changes:
        builder.apply(change)
    return builder.operations


def group_by_change(
    pod: views.Pod, changes: Sequence[pod_changes.AnyChange]
) -> list[tuple[pod_changes.AnyChange, list[Operation]]]:
    """Return each change with its operations. Concatenated, the operations are the patch."""
    builder = _Builder(pod)
    grouped = []
    for change in changes:
        before = len(builder.operations)
        builder.apply(change)
        grouped.append((change, builder.operations[before:]))
    return grouped


def build_annotations(annotations: Mapping[str, str] | None, added: Mapping[str, str]) -> list[Operation]:
    """Return the operations that add annotations. `annotations` are those of the object, None if it has no map."""
    parent = [_add("/metadata/annotations", {})] if annotations is None and added else []
    return parent + [_add(f"/metadata/annotations/{escape(key)}", value) for key, value in added.items()]


def escape(key: str) -> str:
    """Escape a key for use in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


class _Builder:
    """Collects operations, and tracks which parents they create."""

    def __init__(self, pod: views.Pod, base: str = "") -> None:
        self.operations: list[Operation] = []
        self._pod = pod
        self._base = base
        self._created: set[str] = set()

    def apply(self, change: pod_changes.AnyChange) -> None:
        """Add the operations of one change."""
        _METHODS[type(change)](self, change)

    def set_annotation(self, change: pod_changes.SetAnnotation) -> None:
        parent = self._ensure_parent("/metadata/annotations", self._pod.metadata.annotations_or_none, {})
        self._add(f"{parent}/{escape(change.key)}", change.value)

    def set_label(self, change: pod_changes.SetLabel) -> None:
        parent = self._ensure_parent("/metadata/labels", self._pod.metadata.labels_or_none, {})
        self._add(f"{parent}/{escape(change.key)}", change.value)

    def add_volume(self, change: pod_changes.AddVolume) -> None:
        self._append("/spec/volumes", self._pod.spec.volumes_or_none, change.volume)

    def add_init_container(self, change: pod_changes.AddInitContainer) -> None:
        self._append("/spec/initContainers", self._pod.spec.init_containers, change.init_container)

    def add_mount(self, change: pod_changes.AddMount) -> None:
        existing = self._find_container(change.container).volume_mounts_or_none
        self._append(f"{_format_container_path(change.container)}/volumeMounts", existing, change.mount)

    def add_capability(self, change: pod_changes.AddCapability) -> None:
        context = self._find_context(change.container)
        existing = context.capabilities if context else None
        parent = self._ensure_parent(
            f"{_format_container_path(change.container)}/securityContext/capabilities", existing, {}
        )
        self._append(f"{parent}/add", existing.add if existing else None, change.capability)

    def set_privileged(self, change: pod_changes.SetPrivileged) -> None:
        self._find_context(change.container)
        self._add(f"{_format_container_path(change.container)}/securityContext/privileged", True)

    def set_env(self, change: pod_changes.SetEnv) -> None:
        source = change.source
        entry = {"name": change.name} | ({"valueFrom": source} if source else {"value": change.value})
        path = f"{_format_container_path(change.container)}/env"
        if change.index is None:
            self._append(path, self._find_container(change.container).env_or_none, entry)
        else:  # `add` with an index would insert an entry instead of replacing one
            self.operations.append({"op": "replace", "path": f"{self._base}{path}/{change.index}", "value": entry})

    def unset_env(self, change: pod_changes.UnsetEnv) -> None:
        self._remove(f"{_format_container_path(change.container)}/env/{change.index}")

    def add_resource(self, change: pod_changes.AddResource) -> None:
        resources = self._find_container(change.container, init=change.init).resources
        path = _format_container_path(change.container, init=change.init)
        base = self._ensure_parent(f"{path}/resources", resources, {})
        limits, requests = (resources.limits_or_none, resources.requests_or_none) if resources else (None, None)
        key, amount = escape(change.resource), str(change.quantity)
        for path, existing in ((f"{base}/limits", limits), (f"{base}/requests", requests)):
            if existing is None:
                self._ensure_parent(path, existing, {})
            elif (current := existing.get(change.resource)) is not None and _equals(current, change.quantity):
                continue
            self._add(f"{path}/{key}", amount)

    def remove_resource(self, change: pod_changes.RemoveResource) -> None:
        resources = self._find_container(change.container, init=change.init).resources
        path = _format_container_path(change.container, init=change.init)
        maps = {"limits": resources.limits, "requests": resources.requests} if resources else {}
        for field, amounts in maps.items():
            if change.resource in amounts:
                self._remove(f"{path}/resources/{field}/{escape(change.resource)}")

    def set_claim(self, change: pod_changes.SetClaim) -> None:
        entry = {"name": change.name, "resourceClaimTemplateName": change.template}
        path = "/spec/resourceClaims"
        if change.index is None:
            self._append(path, self._pod.spec.resource_claims, entry)
        else:
            self.operations.append({"op": "replace", "path": f"{self._base}{path}/{change.index}", "value": entry})

    def use_claim(self, change: pod_changes.UseClaim) -> None:
        resources = self._find_container(change.container, init=change.init).resources
        path = _format_container_path(change.container, init=change.init)
        base = self._ensure_parent(f"{path}/resources", resources, {})
        self._append(f"{base}/claims", resources.claims_or_none if resources else None, {"name": change.claim})

    def remove_claims(self, change: pod_changes.RemoveClaims) -> None:
        self._remove_named("/spec/resourceClaims", self._pod.spec.resource_claims or (), change.claims)
        spec = self._pod.spec
        for init, containers in ((False, spec.containers), (True, spec.init_containers or ())):
            for index, container in enumerate(containers):
                claims = container.resources.claims if container.resources else ()
                path = _format_container_path(index, init=init)
                self._remove_named(f"{path}/resources/claims", claims, change.claims)

    def _remove_named(self, path: str, entries: Sequence[_Named], names: Collection[str]) -> None:
        """Remove entries of a list, the last one first: a removal changes the indexes of those after it."""
        for index in reversed([index for index, entry in enumerate(entries) if entry.name in names]):
            self._remove(f"{path}/{index}")

    def _remove(self, path: str) -> None:
        self.operations.append({"op": "remove", "path": f"{self._base}{path}"})

    def _find_context(self, index: int) -> views.SecurityContext | None:
        context = self._find_container(index).security_context
        self._ensure_parent(f"{_format_container_path(index)}/securityContext", context, {})
        return context

    def _append(self, path: str, existing: object, value: object) -> None:
        self._add(f"{self._ensure_parent(path, existing, [])}/-", value)

    def _ensure_parent(self, path: str, existing: object, empty: object) -> str:
        """Create a map or list unless it exists, and return its path."""
        if existing is None and path not in self._created:
            self._created.add(path)
            self._add(path, empty)
        return path

    def _add(self, path: str, value: object) -> None:
        self.operations.append({"op": "add", "path": f"{self._base}{path}", "value": value})

    def _find_container(self, index: int, *, init: bool = False) -> views.Container:
        return self._pod.spec.get_container(index, init=init)


_METHODS: Mapping[type, Callable[[_Builder, Any], None]] = {
    pod_changes.SetAnnotation: _Builder.set_annotation,
    pod_changes.SetNetworks: _Builder.set_annotation,
    pod_changes.SetLabel: _Builder.set_label,
    pod_changes.AddVolume: _Builder.add_volume,
    pod_changes.AddMount: _Builder.add_mount,
    pod_changes.AddResource: _Builder.add_resource,
    pod_changes.RemoveResource: _Builder.remove_resource,
    pod_changes.SetClaim: _Builder.set_claim,
    pod_changes.UseClaim: _Builder.use_claim,
    pod_changes.RemoveClaims: _Builder.remove_claims,
    pod_changes.AddCapability: _Builder.add_capability,
    pod_changes.SetPrivileged: _Builder.set_privileged,
    pod_changes.SetEnv: _Builder.set_env,
    pod_changes.UnsetEnv: _Builder.unset_env,
    pod_changes.AddInitContainer: _Builder.add_init_container,
}


def _format_container_path(index: int, *, init: bool = False) -> str:
    return f"/spec/{'initContainers' if init else 'containers'}/{index}"


def _equals(raw_quantity: views.RawQuantity, amount: int) -> bool:
    try:
        return quantity.parse(raw_quantity) == amount
    except quantity.InvalidQuantityError:
        return False


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}
