"""The draft of a pod, which mutators read and edit.

Each edit changes the view of the pod and adds JSON Patch operations, with the entry of the injection record that
explains them. The answer to the API server is the list of these operations, in the order of the edits. A draft also
collects the injection record and the warnings for the user.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import names, quantity, text, views
from railwright.fabric.injection import rank_settings
from railwright.fabric.multus import network_selection
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import VariableCode
from railwright.fabric.workloads import frameworks

_NO_SECURITY = views.SecurityContext()
_NO_RESOURCES = views.ResourceRequirements()

Operation = dict[str, Any]


class Change(msgspec.Struct, frozen=True):
    """An edit of the pod. `entry` is its entry in `added` of the injection record, "" if it is not recorded."""

    entry: str
    operations: Sequence[Operation]


def list_operations(changes: Iterable[Change]) -> list[Operation]:
    """Return the JSON Patch operations of changes, in their order."""
    return [operation for change in changes for operation in change.operations]


class EditedPod(views.Pod, frozen=True):
    """The view of a pod after all edits so far."""

    networks: tuple[network_selection.Selection, ...] = ()  # of its networks annotation

    @property
    def attached(self) -> tuple[network_selection.Selection, ...]:
        """Return the networks that Multus attaches. Multus ignores pods on the host network."""
        return () if self.spec.host_network else self.networks

    def runs_as_root(self, index: int) -> bool:
        """True unless the pod or the container sets another user. The user of the image is unknown and ignored."""
        pod_context = self.spec.security_context or _NO_SECURITY
        container_context = self.spec.containers[index].security_context or _NO_SECURITY
        user = pod_context.run_as_user if container_context.run_as_user is None else container_context.run_as_user
        must_not_be_root = (
            pod_context.run_as_non_root
            if container_context.run_as_non_root is None
            else container_context.run_as_non_root
        )
        return not user and not must_not_be_root


def read_pod(pod: views.Pod, namespace: str) -> EditedPod:
    """Return a pod with its networks annotation parsed, before any edit. Raises RefusedError if that is invalid."""
    value = pod.metadata.annotations.get(names.NETWORKS, "")
    try:
        networks = network_selection.parse_networks(value, namespace)
    except network_selection.InvalidNetworksError as error:
        raise build_networks_refusal(value, error) from None
    return EditedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status, networks=networks)


def build_networks_refusal(user_value: str, error: network_selection.InvalidNetworksError) -> reasons.RefusedError:
    """Return the refusal of a pod whose networks annotation is invalid or cannot take the rails."""
    where = f"annotation {names.NETWORKS} {text.quote(user_value)}: " if user_value else ""
    return reasons.RefusedError("annotation", f"{where}{error}")


# --- the draft ------------------------------------------------------------------------------------------------


class Draft:
    """A pod that is being edited, and the record of the edits.

    `entries` name all settings of the pod that the policy requires, both existing and added ones. A second plan of an
    injected pod therefore has the same record. `written` is the object to which the operations apply: the pod, or a
    pod template. In the second case `pod` also has the additions of the template's controller.
    """

    def __init__(self, pod: views.Pod, written: views.Pod | None = None) -> None:
        self.pod = (
            pod if isinstance(pod, EditedPod) else EditedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status)
        )
        self.written = written or pod
        self.changes: list[Change] = []
        self.annotation_keys: list[str] = []  # that were set
        self.entries: dict[str, VariableCode | None] = {}  # the code is the reason of a variable
        self.warnings: dict[reasons.Reason, None] = {}
        self.user_values: dict[str, tuple[str, ...]] = {}  # container -> variables that keep the user's own value
        self.settings = rank_settings.Settings()  # what the policy says of the ranks' environment
        self.skipped: dict[str, reasons.Reason] = {}  # mutator or entry -> reason for leaving it out
        self._created: set[str] = set()
        self.spec = DraftPart(self, "/spec", self.written.spec)

    def edit_container(self, index: int) -> "DraftPart":
        """Return the part of the draft that edits an app container."""
        return DraftPart(self, f"/spec/containers/{index}", self.written.spec.containers[index], index)

    # --- metadata ---

    def set_annotation(self, key: str, value: str, entry: str) -> None:
        """Set an annotation, whether it exists or not."""
        self.annotation_keys.append(key)
        self._set_metadata_key("annotations", key, value, entry)

    def set_label(self, key: str, value: str, entry: str) -> None:
        """Set a label. Only templates of workloads get one."""
        self._set_metadata_key("labels", key, value, entry)

    def set_networks(self, value: str, selections: tuple[network_selection.Selection, ...], entry: str) -> None:
        """Set the networks annotation. `selections` are all attachments in it."""
        self.set_annotation(names.NETWORKS, value, entry)
        self.pod = msgspec.structs.replace(self.pod, networks=selections)

    def _set_metadata_key(self, field: str, key: str, value: str, entry: str) -> None:
        operations = self.build_parent_add(f"/metadata/{field}", getattr(self.written.metadata, f"{field}_or_none"), {})
        operations.append(_build_add(f"/metadata/{field}/{frameworks.escape_key(key)}", value))
        keys = {**getattr(self.pod.metadata, field), key: value}
        metadata = msgspec.structs.replace(self.pod.metadata, **{f"{field}_or_none": keys})
        self.pod = msgspec.structs.replace(self.pod, metadata=metadata)
        self.changes.append(Change(entry, operations))

    # --- the record and the warnings ---

    def add_entry(self, entry: str, code: VariableCode | None = None) -> None:
        """Record that the pod has a setting that the policy requires; for a variable, also the reason."""
        self.entries[entry] = code

    def warn(self, *warnings: reasons.Reason) -> None:
        """Warn the user, once for equal warnings."""
        self.warnings.update(dict.fromkeys(warnings))

    def record_skip(self, entry: str, why: reasons.Reason) -> None:
        """Record that a mutator, or a setting of the policy, is left out, and why."""
        self.skipped[entry] = why

    def record_skip_and_warn(self, entry: str, why: reasons.Reason) -> None:
        """Record that a setting of the policy is left out, and warn the user of it."""
        self.record_skip(entry, why)
        self.warn(why)

    def record_user_values(self, container: str, variables: Collection[str]) -> None:
        """Record that these variables of a container (or annotations) keep the user's value, unlike the policy's."""
        if variables:
            self.user_values[container] = (*self.user_values.get(container, ()), *variables)

    # --- operations ---

    def build_parent_add(self, path: str, existing: object, empty: object) -> list[Operation]:
        """Return the operation that adds the map or list at a path; [] if it exists after earlier operations."""
        # `add` fails without a parent (RFC 6902 4.1), and would replace one that an earlier operation has filled
        if existing is not None or path in self._created:
            return []
        self._created.add(path)
        return [_build_add(path, empty)]


# --- its spec and containers ------------------------------------------------------------------------------------


class _ListField(NamedTuple):
    """A list field of a spec or container, and the view of its elements."""

    field: str  # in the view
    view: type[views.View]  # of an element


_LISTS = {
    "volumes": _ListField("volumes_or_none", views.Volume),
    "initContainers": _ListField("init_containers", views.Container),
    "resourceClaims": _ListField("resource_claims", views.PodResourceClaim),
    "volumeMounts": _ListField("volume_mounts_or_none", views.VolumeMount),
    "env": _ListField("env_or_none", views.EnvVar),
}
_FIELDS = {
    "schedulerName": "scheduler_name",
    "hostNetwork": "host_network",
    "dnsPolicy": "dns_policy",
    "command": "command",
}


class DraftPart:
    """The spec of a draft, or its app container at `index`, with methods that edit it."""

    def __init__(self, draft: Draft, path: str, written: Any, index: int | None = None) -> None:
        self._draft, self._path, self._written, self._index = draft, path, written, index

    def append(self, name: str, element: Mapping[str, Any], entry: str) -> None:
        """Append an element to a list."""
        self.append_all(name, [(element, entry)])

    def append_all(self, name: str, rows: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        """Append elements to a list, each with its entry of the record."""
        row, path = _LISTS[name], f"{self._path}/{name}"
        operations = self._draft.build_parent_add(path, getattr(self._written, row.field), [])  # of the first element
        for element, entry in rows:
            operations.append(_build_add(f"{path}/-", element))
            self._draft.changes.append(Change(entry, operations))
            operations = []
        added = [msgspec.convert(element, row.view) for element, _ in rows]
        self._set_view(**{row.field: [*(getattr(self._view, row.field) or ()), *added]})

    def put_first(self, name: str, element: Mapping[str, Any], entry: str) -> None:
        """Insert an element at the start of a list. Call it after all edits that use indexes of this list."""
        row, path = _LISTS[name], f"{self._path}/{name}"
        operations = self._draft.build_parent_add(path, getattr(self._written, row.field), [])
        operations.append(_build_add(f"{path}/0", element))
        elements = [msgspec.convert(element, row.view), *(getattr(self._view, row.field) or ())]
        self._record_edit(entry, operations, **{row.field: elements})

    def move_first(self, name: str, index: int, entry: str) -> None:
        """Move an element to the start of a list. Call it after all edits that use indexes of this list."""
        row, path = _LISTS[name], f"{self._path}/{name}"
        elements = [*getattr(self._view, row.field)]
        element = elements.pop(index)
        operations = [{"op": "move", "from": f"{path}/{index}", "path": f"{path}/0"}]
        self._record_edit(entry, operations, **{row.field: [element, *elements]})

    def replace(self, name: str, index: int, element: Mapping[str, Any], entry: str) -> None:
        """Replace an element of a list."""
        row = _LISTS[name]
        elements = [*getattr(self._view, row.field)]
        elements[index] = msgspec.convert(element, row.view)
        operations = [{"op": "replace", "path": f"{self._path}/{name}/{index}", "value": element}]
        self._record_edit(entry, operations, **{row.field: elements})

    def remove_env(self, indexes: Sequence[int], entry: str) -> None:
        """Remove the variables at these indexes of `env`. Later edits use the indexes after the removal."""
        # the last one first, because a removal changes the indexes of those after it
        operations = [{"op": "remove", "path": f"{self._path}/env/{index}"} for index in sorted(indexes, reverse=True)]
        remaining = [entry for index, entry in enumerate(self._view.env) if index not in indexes]
        self._record_edit(entry, operations, env_or_none=remaining)

    def set_field(self, name: str, value: Any, entry: str) -> None:
        """Set a field, whether it exists or not."""
        self._record_edit(entry, [_build_add(f"{self._path}/{name}", value)], **{_FIELDS[name]: value})

    def request_resources(self, rows: Sequence[tuple[str, int | str, str]]) -> None:
        """Set request and limit of each resource to its amount. An amount that is already equal keeps its spelling."""
        current, path = self._view.resources or _NO_RESOURCES, f"{self._path}/resources"
        changed: dict[str, dict[str, views.RawQuantity]] = {}
        for resource, amount, entry in rows:
            operations: list[Operation] = []
            key = frameworks.escape_key(resource)
            for kind, present in (("limits", current.limits_or_none), ("requests", current.requests_or_none)):
                if present and (existing := present.get(resource)) is not None and _has_amount(existing, amount):
                    continue
                if kind not in changed:
                    operations += self._draft.build_parent_add(path, self._written.resources, {})
                    operations += self._draft.build_parent_add(f"{path}/{kind}", present, {})
                    changed[kind] = {**(present or {})}
                operations.append(_build_add(f"{path}/{kind}/{key}", str(amount)))
                changed[kind][resource] = str(amount)
            if operations:
                self._draft.changes.append(Change(entry, operations))
        if changed:
            fields = {f"{kind}_or_none": amounts for kind, amounts in changed.items()}
            self._set_view(resources=msgspec.structs.replace(current, **fields))

    def remove_request(self, resource: str, entry: str) -> None:
        """Remove request and limit of a resource."""
        current = self._view.resources or _NO_RESOURCES
        operations, changed = [], {}
        for kind in ("limits", "requests"):
            amounts = getattr(current, kind)
            if resource in amounts:
                path = f"{self._path}/resources/{kind}/{frameworks.escape_key(resource)}"
                operations.append({"op": "remove", "path": path})
                changed[f"{kind}_or_none"] = {name: amounts[name] for name in amounts if name != resource}
        resources = msgspec.structs.replace(current, **changed)
        self._record_edit(entry, operations, resources=resources)

    def use_claim(self, claim: str, entry: str) -> None:
        """Give a container the devices of an entry of spec.resourceClaims, unless it has them."""
        current, path = self._view.resources or _NO_RESOURCES, f"{self._path}/resources/claims"
        if any(used.name == claim for used in current.claims):
            return
        operations = self._draft.build_parent_add(f"{self._path}/resources", self._written.resources, {})
        operations += self._draft.build_parent_add(path, current.claims_or_none, [])
        operations.append(_build_add(f"{path}/-", {"name": claim}))
        claims = [*current.claims, views.ContainerClaim(name=claim)]
        resources = msgspec.structs.replace(current, claims_or_none=claims)
        self._record_edit(entry, operations, resources=resources)

    def add_capability(self, capability: str, entry: str) -> None:
        """Add a capability to a container."""
        current, path = self._view.security_context or _NO_SECURITY, f"{self._path}/securityContext"
        capabilities = current.capabilities or views.Capabilities()
        operations = self._draft.build_parent_add(path, self._written.security_context, {})
        operations += self._draft.build_parent_add(f"{path}/capabilities", current.capabilities, {})
        operations += self._draft.build_parent_add(f"{path}/capabilities/add", capabilities.add, [])
        operations.append(_build_add(f"{path}/capabilities/add/-", capability))
        extended = msgspec.structs.replace(capabilities, add=[*(capabilities.add or ()), capability])
        context = msgspec.structs.replace(current, capabilities=extended)
        self._record_edit(entry, operations, security_context=context)

    def set_privileged(self, entry: str) -> None:
        """Make a container privileged."""
        current, path = self._view.security_context or _NO_SECURITY, f"{self._path}/securityContext"
        operations = self._draft.build_parent_add(path, self._written.security_context, {})
        operations.append(_build_add(f"{path}/privileged", value=True))
        context = msgspec.structs.replace(current, privileged=True)
        self._record_edit(entry, operations, security_context=context)

    @property
    def _view(self) -> Any:
        spec = self._draft.pod.spec
        return spec if self._index is None else (spec.containers_or_none or ())[self._index]

    def _record_edit(self, entry: str, operations: list[Operation], **fields: Any) -> None:
        """Record the operations of an edit, and set the edited fields of the view."""
        self._set_view(**fields)
        self._draft.changes.append(Change(entry, operations))

    def _set_view(self, **fields: Any) -> None:
        """Set fields of the pod's view."""
        spec = self._draft.pod.spec
        if self._index is not None:
            containers = [*(spec.containers_or_none or ())]
            containers[self._index] = msgspec.structs.replace(containers[self._index], **fields)
            fields = {"containers_or_none": containers}
        self._draft.pod = msgspec.structs.replace(self._draft.pod, spec=msgspec.structs.replace(spec, **fields))


def _build_add(path: str, value: object) -> Operation:
    """Return the operation that sets a member of a map, or inserts an element into a list."""
    return {"op": "add", "path": path, "value": value}


def _has_amount(raw_quantity: views.RawQuantity, amount: int | str) -> bool:
    try:
        return quantity.parse(raw_quantity) == quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return False
