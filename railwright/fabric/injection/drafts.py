"""The draft of a pod. A mutator reads it and edits it by verbs.

Each verb changes the view of the pod and records the JSON Patch operations for the API server, with the entry of the
record that they belong to and the reason. The answer to the API server is the list of these operations. Beside them a
draft collects what the record and the user are told.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from railwright.fabric import names, quantity, text, views
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.nccl import derive
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import VariableCode
from railwright.fabric.workloads import frameworks

POD, DEVICES, ADDITIONS, SECURITY, ENVIRONMENT, REMOVALS, FIRST = range(7)  # order of changes
_NO_SECURITY = views.SecurityContext()
_NO_RESOURCES = views.ResourceRequirements()

Operation = dict[str, Any]


class Why(Protocol):
    """The entry of a change in the record's `added` ("" = not listed), and the reason of the change."""

    @property
    def entry(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


class Cause(NamedTuple):
    """An entry and a reason."""

    entry: str
    reason: str


class Change(msgspec.Struct, frozen=True):
    """What one verb recorded. `title` names it for people."""

    title: str
    entry: str
    reason: str
    order: int  # among the changes of a pod
    operations: tuple[Operation, ...]


class AppliedPod(views.Pod, frozen=True):
    """The view of a pod after all edits so far."""

    networks: tuple[network_selection.Selection, ...] = ()  # of its networks annotation

    @property
    def host_network(self) -> bool:
        """True if the pod uses the host's network namespace."""
        return bool(self.spec.host_network)

    @property
    def attached(self) -> tuple[network_selection.Selection, ...]:
        """Return the networks that Multus attaches. It ignores pods on the host network."""
        return () if self.spec.host_network else self.networks

    def container(self, index: int) -> views.Container:
        """Return an app container."""
        return self.spec.containers[index]

    def runs_as_root(self, index: int) -> bool:
        """True unless the pod or the container sets another user. The user of the image is unknown and ignored."""
        pod_context = self.spec.security_context or _NO_SECURITY
        container_context = self.container(index).security_context or _NO_SECURITY
        user = pod_context.run_as_user if container_context.run_as_user is None else container_context.run_as_user
        must_not_be_root = (
            pod_context.run_as_non_root
            if container_context.run_as_non_root is None
            else container_context.run_as_non_root
        )
        return not user and not must_not_be_root


def read(pod: views.Pod, namespace: str) -> AppliedPod:
    """Return a pod before any edit. Raises RefusedError for an invalid networks annotation."""
    value = pod.metadata.annotations.get(names.NETWORKS, "")
    try:
        networks = annotation.parse(value, namespace)
    except network_selection.InvalidNetworksError as error:
        raise refuse_networks(value, error) from None
    return AppliedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status, networks=networks)


def refuse_networks(user_value: str, error: network_selection.InvalidNetworksError) -> reasons.RefusedError:
    """Return the refusal of a pod with an invalid networks annotation, or with one that rails cannot be added to."""
    where = f"annotation {names.NETWORKS} {text.quote(user_value)}: " if user_value else ""
    return reasons.RefusedError("annotation", f"{where}{error}")


# --- the draft ------------------------------------------------------------------------------------------------


class Draft:
    """A pod that is being edited, and the record of the edits.

    `entries` name everything that the pod then has as the policy requires, whether it existed before or is added now. A
    second plan of an injected pod therefore has the same record. `written` is the object to which the operations apply;
    it differs from the pod if the pod is that of a template, with additions of its controller.
    """

    def __init__(self, pod: views.Pod, written: views.Pod | None = None) -> None:
        self._pod = (
            pod if isinstance(pod, AppliedPod) else AppliedPod(metadata=pod.metadata, spec=pod.spec, status=pod.status)
        )
        self.written = written or pod
        self.changes: list[Change] = []
        self.annotation_keys: list[str] = []  # that were set
        self.entries: dict[str, None] = {}
        self.codes: dict[str, VariableCode] = {}  # of the entries that are variables
        self.warnings: dict[reasons.Reason, None] = {}
        self.user_values: dict[str, tuple[str, ...]] = {}  # container -> variables that keep the user's own value
        self.rank_settings: tuple[derive.Variable, ...] = ()  # what the policy says of the ranks' environment
        self.skipped: dict[str, reasons.Reason] = {}  # mutator or entry -> reason for leaving it out
        self._created: set[str] = set()
        self._networks = self._pod.networks
        self._keys: dict[str, dict[str, str]] = {}  # changed maps of metadata
        self._spec = Part(self, "/spec", "", self._pod.spec, self.written.spec)
        self._containers: dict[tuple[bool, int], Part] = {}
        self._is_stale = False

    @property
    def pod(self) -> AppliedPod:
        """Return the pod after the edits so far."""
        if self._is_stale:
            self._pod = self._build()
            self._spec = Part(self, "/spec", "", self._pod.spec, self.written.spec)
            self._keys, self._containers, self._is_stale = {}, {}, False
        return self._pod

    def _build(self) -> AppliedPod:
        for (init, index), part in self._containers.items():
            if part.edited:
                containers = self._spec.edit_list("init_containers" if init else "containers_or_none")
                containers[index] = msgspec.structs.replace(containers[index], **part.edited)
        metadata, spec = self._pod.metadata, self._pod.spec
        return AppliedPod(
            metadata=msgspec.structs.replace(metadata, **self._keys) if self._keys else metadata,
            spec=msgspec.structs.replace(spec, **self._spec.edited) if self._spec.edited else spec,
            status=self._pod.status,
            networks=self._networks,
        )

    @property
    def spec(self) -> "Part":
        """Return the spec, to edit it."""
        return self._spec

    def container(self, index: int, *, init: bool = False) -> "Part":
        """Return an app container or an init container, to edit it."""
        part = self._containers.get((init, index))
        if part is None:
            view = self._pod.spec.get_container(index, init=init)
            written = self.written.spec.get_container(index, init=init)
            path = f"/spec/{'initContainers' if init else 'containers'}/{index}"
            part = self._containers[init, index] = Part(self, path, f"{view.name}: ", view, written)
        return part

    # --- verbs for metadata and claims ---

    def set_annotation(self, key: str, value: str, why: Why) -> None:
        """Set an annotation, whether it exists or not."""
        self.annotation_keys.append(key)
        self._set_key("annotations", f"annotation {key}", key, value, why)

    def set_label(self, key: str, value: str, why: Why) -> None:
        """Set a label. Only templates of workloads get one."""
        self._set_key("labels", f"label {key}", key, value, why)

    def set_networks(self, value: str, selections: tuple[network_selection.Selection, ...], why: Why) -> None:
        """Set the networks annotation. `selections` are all attachments in it."""
        self.set_annotation(names.NETWORKS, value, why)
        self._networks = selections

    def _set_key(self, field: str, title: str, key: str, value: str, why: Why) -> None:
        self._edit_keys(field)[key] = value
        operations = self.create(f"/metadata/{field}", getattr(self.written.metadata, f"{field}_or_none"), {})
        operations.append(_add(f"/metadata/{field}/{frameworks.escape(key)}", value))
        self.record(title, why, POD, operations)

    def _edit_keys(self, field: str) -> dict[str, str]:
        return self._keys.setdefault(f"{field}_or_none", {**getattr(self._pod.metadata, field)})

    def remove_claims(self, claims: Collection[str], why: Why) -> None:
        """Remove entries of spec.resourceClaims by name, also from the containers."""
        spec = self._pod.spec
        operations = self.spec.remove_claims(claims)
        for init, containers in ((False, spec.containers), (True, spec.init_containers or ())):
            for index in range(len(containers)):
                operations += self.container(index, init=init).release_claims(claims)
        self.record(f"claims {', '.join(claims)} (removed)", why, REMOVALS, operations)

    # --- what is told ---

    def add_entry(self, entry: str) -> None:
        """Record that the pod has something as the policy requires."""
        self.entries[entry] = None

    def add_setting(self, setting: derive.Variable) -> None:
        """Record that the pod has a variable as the policy requires, and why."""
        self.entries[setting.entry] = None
        self.codes[setting.entry] = setting.code

    def warn(self, *warnings: reasons.Reason) -> None:
        """Warn the user, once for equal warnings."""
        self.warnings.update(dict.fromkeys(warnings))

    def skip(self, entry: str, why: reasons.Reason) -> None:
        """Record why something is left out."""
        self.skipped[entry] = why

    def keep(self, container: str, variables: Collection[str]) -> None:
        """Record the variables of a container that keep the user's own value."""
        if variables:
            self.user_values[container] = (*self.user_values.get(container, ()), *variables)

    # --- for the verbs ---

    def create(self, path: str, existing: object, empty: object) -> list[Operation]:
        """Return the operation that creates a map or list, none if the object or an earlier operation has it."""
        # `add` fails without a parent (RFC 6902 4.1), and would replace one that an earlier operation has filled
        if existing is not None or path in self._created:
            return []
        self._created.add(path)
        return [_add(path, empty)]

    def record(self, title: str, why: Why, order: int, operations: list[Operation]) -> None:
        """Record the operations of an edit."""
        self._is_stale = True
        self.changes.append(Change(title, why.entry, why.reason, order, tuple(operations)))


# --- its spec and containers ------------------------------------------------------------------------------------


class _List(NamedTuple):
    """A list of the spec or of a container that gets elements."""

    field: str  # in the view
    view: type[views.View]  # of an element
    order: int
    title: str


_LISTS = {
    "volumes": _List("volumes_or_none", views.Volume, ADDITIONS, "volume {name}"),
    "initContainers": _List("init_containers", views.Container, ADDITIONS, "init container {name}"),
    "resourceClaims": _List(
        "resource_claims", views.PodResourceClaim, DEVICES, "claim {name} from template {resourceClaimTemplateName}"
    ),
    "volumeMounts": _List("volume_mounts_or_none", views.VolumeMount, ADDITIONS, "mount {mountPath}"),
    "env": _List("env_or_none", views.EnvVar, ENVIRONMENT, "env {name}"),
}
_FIELDS = {
    "schedulerName": ("scheduler_name", POD),
    "hostNetwork": ("host_network", POD),
    "dnsPolicy": ("dns_policy", POD),
    "command": ("command", ADDITIONS),
}


class Part:
    """The spec or a container of a draft. Fields that an edit changes are copied at most once."""

    def __init__(self, draft: Draft, path: str, name: str, view: Any, written: Any) -> None:
        self._draft, self._path, self._name, self._view, self._written = draft, path, name, view, written
        self.edited: dict[str, Any] = {}  # fields of the view

    def append(self, name: str, element: Mapping[str, Any], why: Why) -> None:
        """Append an element to a list."""
        self._put(name, None, element, why)

    def put_first(self, name: str, element: Mapping[str, Any], why: Why) -> None:
        """Insert an element at the start of a list, after every other edit: they count without it."""
        row, path = _LISTS[name], f"{self._path}/{name}"
        operations = self._draft.create(path, getattr(self._written, row.field), [])
        operations.append(_add(f"{path}/0", element))
        self.edit_list(row.field).insert(0, msgspec.convert(element, row.view))
        self._record(row.title.format_map(element), why, FIRST, operations)

    def move_first(self, name: str, index: int, why: Why) -> None:
        """Move an element to the start of a list, after every other edit."""
        row, path = _LISTS[name], f"{self._path}/{name}"
        elements = self.edit_list(row.field)
        element = elements.pop(index)
        elements.insert(0, element)
        operations = [{"op": "move", "from": f"{path}/{index}", "path": f"{path}/0"}]
        self._record(f"{row.title.format(name=element.name)} (first)", why, FIRST, operations)

    def replace(self, name: str, index: int, element: Mapping[str, Any], why: Why) -> None:
        """Replace an element of a list."""
        self._put(name, index, element, why)

    def set_env(self, name: str, value: str, why: Why, index: int | None = None) -> None:
        """Set a variable to a literal. `index` is the entry to replace, None for a new entry."""
        self._put("env", index, {"name": name, "value": value}, why, "" if index is None else " (replaced)")

    def remove_env(self, variables: Collection[str], why: Why) -> None:
        """Remove variables. Edits after this one count without them."""
        entries = self.edit_list("env_or_none")
        operations = _remove_named(f"{self._path}/env", entries, variables)
        entries[:] = [entry for entry in entries if entry.name not in variables]
        self._record(f"env {', '.join(sorted(variables))} (removed)", why, ENVIRONMENT, operations)

    def set_field(self, name: str, value: Any, why: Why, title: str) -> None:
        """Set a field, whether it exists or not."""
        field, order = _FIELDS[name]
        self.edited[field] = value
        self._record(title, why, order, [_add(f"{self._path}/{name}", value)])

    def request(self, resource: str, amount: int | str, why: Why) -> None:
        """Set request and limit of a resource. One that is equal keeps its spelling."""
        current, value = self._get("resources") or _NO_RESOURCES, str(amount)
        operations = self._create("resources", {})
        changed = {}
        for kind in ("limits", "requests"):
            amounts = getattr(current, f"{kind}_or_none")
            if amounts is None:
                operations += self._draft.create(f"{self._path}/resources/{kind}", None, {})
            elif (existing := amounts.get(resource)) is not None and _equals(existing, amount):
                continue
            operations.append(_add(f"{self._path}/resources/{kind}/{frameworks.escape(resource)}", value))
            changed[f"{kind}_or_none"] = {**(amounts or {}), resource: value}
        self.edited["resources"] = msgspec.structs.replace(current, **changed)
        self._record(f"{resource} = {amount}", why, DEVICES, operations)

    def remove_request(self, resource: str, why: Why) -> None:
        """Remove request and limit of a resource."""
        current = self._get("resources") or _NO_RESOURCES
        operations, changed = [], {}
        for kind in ("limits", "requests"):
            amounts = getattr(current, kind)
            if resource in amounts:
                operations.append(_remove(f"{self._path}/resources/{kind}/{frameworks.escape(resource)}"))
                changed[f"{kind}_or_none"] = {name: amounts[name] for name in amounts if name != resource}
        self.edited["resources"] = msgspec.structs.replace(current, **changed)
        self._record(f"{resource} (removed)", why, DEVICES, operations)

    def use_claim(self, claim: str, why: Why) -> None:
        """Give a container the devices of an entry of spec.resourceClaims."""
        current = self._get("resources") or _NO_RESOURCES
        path = f"{self._path}/resources/claims"
        operations = self._create("resources", {})
        operations += self._draft.create(path, current.claims_or_none, [])
        operations.append(_add(f"{path}/-", {"name": claim}))
        claims = [*current.claims, views.ContainerClaim(name=claim)]
        self.edited["resources"] = msgspec.structs.replace(current, claims_or_none=claims)
        self._record(f"claim {claim}", why, DEVICES, operations)

    def add_capability(self, capability: str, why: Why) -> None:
        """Add a capability to a container."""
        current = self._get("security_context") or _NO_SECURITY
        capabilities = current.capabilities or views.Capabilities()
        path = f"{self._path}/securityContext/capabilities"
        operations = self._create("securityContext", {})
        operations += self._draft.create(path, current.capabilities, {})
        operations += self._draft.create(f"{path}/add", capabilities.add, [])
        operations.append(_add(f"{path}/add/-", capability))
        extended = msgspec.structs.replace(capabilities, add=[*(capabilities.add or ()), capability])
        self.edited["security_context"] = msgspec.structs.replace(current, capabilities=extended)
        self._record(f"capability {capability}", why, SECURITY, operations)

    def set_privileged(self, why: Why) -> None:
        """Make a container privileged."""
        current = self._get("security_context") or _NO_SECURITY
        operations = self._create("securityContext", {})
        operations.append(_add(f"{self._path}/securityContext/privileged", value=True))
        self.edited["security_context"] = msgspec.structs.replace(current, privileged=True)
        self._record("privileged", why, SECURITY, operations)

    # --- for the verbs and the draft ---

    def remove_claims(self, claims: Collection[str]) -> list[Operation]:
        """Remove entries of the spec's claims."""
        entries = self.edit_list("resource_claims")
        operations = _remove_named(f"{self._path}/resourceClaims", entries, claims)
        entries[:] = [entry for entry in entries if entry.name not in claims]
        return operations

    def release_claims(self, claims: Collection[str]) -> list[Operation]:
        """Remove the claims that a container uses."""
        current = self._get("resources") or _NO_RESOURCES
        operations = _remove_named(f"{self._path}/resources/claims", current.claims, claims)
        if operations:
            remaining = [claim for claim in current.claims if claim.name not in claims]
            self.edited["resources"] = msgspec.structs.replace(current, claims_or_none=remaining)
        return operations

    def edit_list(self, field: str) -> list[Any]:
        """Return the draft's own copy of a list, which the caller changes."""
        if field not in self.edited:
            self.edited[field] = [*(getattr(self._view, field) or ())]
        own: list[Any] = self.edited[field]
        return own

    def _put(self, name: str, index: int | None, element: Mapping[str, Any], why: Why, suffix: str = "") -> None:
        row, path = _LISTS[name], f"{self._path}/{name}"
        elements, view = self.edit_list(row.field), msgspec.convert(element, row.view)
        if index is None:
            operations = self._draft.create(path, getattr(self._written, row.field), [])
            operations.append(_add(f"{path}/-", element))
            elements.append(view)
        else:  # `add` with an index would insert an element
            operations = [{"op": "replace", "path": f"{path}/{index}", "value": element}]
            elements[index] = view
        self._record(row.title.format_map(element) + suffix, why, row.order, operations)

    def _get(self, field: str) -> Any:
        return self.edited[field] if field in self.edited else getattr(self._view, field)

    def _create(self, name: str, empty: object) -> list[Operation]:
        """Return the operation that creates `resources` or `securityContext`, none if the container has it."""
        field = "resources" if name == "resources" else "security_context"
        return self._draft.create(f"{self._path}/{name}", getattr(self._written, field), empty)

    def _record(self, title: str, why: Why, order: int, operations: list[Operation]) -> None:
        self._draft.record(f"{self._name}{title}", why, order, operations)


def _add(path: str, value: object) -> Operation:
    """Set the member of a map, or insert an element into a list."""
    return {"op": "add", "path": path, "value": value}


def _remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def _remove_named(path: str, entries: Collection[Any], names: Collection[str]) -> list[Operation]:
    """Remove entries of a list, the last one first: a removal changes the indexes of those after it."""
    indexes = [index for index, entry in enumerate(entries) if entry.name in names]
    return [_remove(f"{path}/{index}") for index in reversed(indexes)]


def _equals(raw_quantity: views.RawQuantity, amount: int | str) -> bool:
    try:
        return quantity.parse(raw_quantity) == quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return False
