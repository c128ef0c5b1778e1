"""The changes of a pod, and the results of injection that contain them: values with reasons.

A kind of change is one class: what it changes, how it is applied here and by the API server, its order and its name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from railwright.fabric import quantity, views
from railwright.fabric.injection import applied_pod, env_tables
from railwright.fabric.multus import network_selection
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import frameworks

_Entry = TypeVar("_Entry")
POD, DEVICES, ADDITIONS, SECURITY, ENVIRONMENT, REMOVALS = range(6)  # order of changes: the pod, then its containers


Operation = dict[str, Any]
FieldValue = str | bool


class PodPatch:
    """The operations so far. `pod` is the pod before any of them."""

    def __init__(self, pod: views.Pod) -> None:
        self.operations: list[Operation] = []
        self.pod = pod
        self._created: set[str] = set()

    def add(self, path: str, value: object) -> None:
        """Set the member of a map, or insert an element into a list."""
        self.operations.append({"op": "add", "path": path, "value": value})

    def remove(self, path: str) -> None:
        """Remove an existing value."""
        self.operations.append({"op": "remove", "path": path})

    def put(self, path: str, existing: object, index: int | None, value: object) -> None:
        """Replace the element of a list, or append one. `existing` is the list in the pod, None if it has none."""
        if index is None:
            self.add(f"{self.ensure(path, existing, [])}/-", value)
        else:  # `add` with an index would insert an element
            self.operations.append({"op": "replace", "path": f"{path}/{index}", "value": value})

    def ensure(self, path: str, existing: object, empty: object) -> str:
        """Create a map or list unless the pod or an earlier operation has it, and return its path."""
        # `add` fails without a parent (RFC 6902 4.1), and would replace one that an earlier operation has filled
        if existing is None and path not in self._created:
            self._created.add(path)
            self.add(path, empty)
        return path


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a pod. `entry` is its name in the record's `added` ("" = not listed), `reason` explains it.

    A kind has its `order` among the changes of a plan, and these methods. `title` names it, with its fields in braces.
    """

    order: ClassVar[int]
    title: ClassVar[str]
    entry: str
    reason: str

    def apply(self, draft: applied_pod.Draft) -> None:
        """Change a draft."""
        raise NotImplementedError

    def patch(self, patch: PodPatch) -> None:
        """Add the JSON Patch operations for the API server."""
        raise NotImplementedError

    def describe(self, _: views.Pod, /) -> str:
        """Name the change for people."""
        return self.title.format_map(msgspec.structs.asdict(self))


class _SetKey(Change, frozen=True):
    """Sets a key of metadata, whether it exists or not."""

    order: ClassVar[int] = POD
    field: ClassVar[str]
    key: str
    value: str

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.edit_keys(self.field)[self.key] = self.value

    def patch(self, patch: PodPatch) -> None:
        existing = getattr(patch.pod.metadata, f"{self.field}_or_none")
        parent = patch.ensure(f"/metadata/{self.field}", existing, {})
        patch.add(f"{parent}/{frameworks.escape(self.key)}", self.value)


class SetLabel(_SetKey, frozen=True):
    """Sets metadata.labels[key]. Only templates of workloads get one."""

    field: ClassVar[str] = "labels"
    title: ClassVar[str] = "label {key}"


class SetAnnotation(_SetKey, frozen=True):
    """Sets metadata.annotations[key]."""

    field: ClassVar[str] = "annotations"
    title: ClassVar[str] = "annotation {key}"


class SetNetworks(SetAnnotation, frozen=True):
    """Sets the networks annotation. `selections` are all attachments in the new value."""

    selections: tuple[network_selection.Selection, ...]

    def apply(self, draft: applied_pod.Draft) -> None:
        super().apply(draft)
        draft.networks = self.selections


FIELDS = {"host_network": "hostNetwork", "dns_policy": "dnsPolicy", "runtime_class_name": "runtimeClassName"}
"""Fields of spec that are set as a whole: the name in the view, and in JSON."""


class SetField(Change, frozen=True):
    """Sets a field of spec, one of FIELDS."""

    order: ClassVar[int] = POD
    name: str
    value: FieldValue

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.set_field(self.name, self.value)

    def patch(self, patch: PodPatch) -> None:
        patch.add(f"/spec/{FIELDS[self.name]}", self.value)

    def describe(self, _: views.Pod, /) -> str:
        value = "true" if self.value is True else self.value
        return f"{FIELDS[self.name]} {value}"


class _AddEntry(Change, frozen=True):
    """Appends an element to a list of spec, as JSON."""

    path: ClassVar[str]
    field: ClassVar[str]  # the list in the view
    view: ClassVar[type[views.View]]  # of an element
    added: Mapping[str, Any]

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.edit_list(self.field).append(msgspec.convert(self.added, self.view))

    def patch(self, patch: PodPatch) -> None:
        patch.put(self.path, getattr(patch.pod.spec, self.field), None, self.added)


class AddToleration(_AddEntry, frozen=True):
    """Adds a toleration."""

    order: ClassVar[int] = POD
    path: ClassVar[str] = "/spec/tolerations"
    field: ClassVar[str] = "tolerations"
    view: ClassVar[type[views.View]] = views.Toleration
    title: ClassVar[str] = "toleration of {added[key]}"


class AddVolume(_AddEntry, frozen=True):
    """Adds a volume."""

    order: ClassVar[int] = ADDITIONS
    path: ClassVar[str] = "/spec/volumes"
    field: ClassVar[str] = "volumes_or_none"
    view: ClassVar[type[views.View]] = views.Volume
    title: ClassVar[str] = "volume {added[name]}"


class AddInitContainer(_AddEntry, frozen=True):
    """Appends an init container."""

    order: ClassVar[int] = ADDITIONS
    path: ClassVar[str] = "/spec/initContainers"
    field: ClassVar[str] = "init_containers"
    view: ClassVar[type[views.View]] = views.Container
    title: ClassVar[str] = "init container {added[name]}"


class SetClaim(Change, frozen=True):
    """Sets an entry of spec.resourceClaims to a template. `index` is the entry to replace, None for a new entry."""

    order: ClassVar[int] = DEVICES
    title: ClassVar[str] = "claim {name} from template {template}"
    name: str
    template: str
    index: int | None = None

    def apply(self, draft: applied_pod.Draft) -> None:
        entry = views.PodResourceClaim(name=self.name, resource_claim_template_name=self.template)
        _put(draft.edit_list("resource_claims"), self.index, entry)

    def patch(self, patch: PodPatch) -> None:
        entry = {"name": self.name, "resourceClaimTemplateName": self.template}
        patch.put("/spec/resourceClaims", patch.pod.spec.resource_claims, self.index, entry)


class RemoveClaims(Change, frozen=True):
    """Removes entries of spec.resourceClaims by name, also from the containers."""

    order: ClassVar[int] = REMOVALS
    claims: tuple[str, ...]

    def apply(self, draft: applied_pod.Draft) -> None:
        pod_claims = draft.edit_list("resource_claims")
        pod_claims[:] = [claim for claim in pod_claims if claim.name not in self.claims]
        for key, _ in _list_containers(draft.pod):
            draft.set_claims(key, [claim for claim in draft.get_resources(key).claims if claim.name not in self.claims])

    def patch(self, patch: PodPatch) -> None:
        self._remove(patch, "/spec/resourceClaims", patch.pod.spec.resource_claims or ())
        for (init, index), container in _list_containers(patch.pod):
            used = container.resources.claims if container.resources else ()
            containers = "initContainers" if init else "containers"
            self._remove(patch, f"/spec/{containers}/{index}/resources/claims", used)

    def _remove(
        self, patch: PodPatch, path: str, entries: Sequence[views.PodResourceClaim | views.ContainerClaim]
    ) -> None:
        """Remove entries of a list, the last one first: a removal changes the indexes of those after it."""
        for index in reversed([index for index, entry in enumerate(entries) if entry.name in self.claims]):
            patch.remove(f"{path}/{index}")

    def describe(self, _: views.Pod, /) -> str:
        return f"claims {', '.join(self.claims)} (removed)"


# --- changes of a container -------------------------------------------------------------------------------


class _ContainerChange(Change, frozen=True):
    """A change of the container with this index in spec.containers, or in spec.initContainers if `init`."""

    container: int
    init: bool = False

    @property
    def key(self) -> applied_pod.ContainerKey:
        """Return the key of the container in a draft."""
        return (self.init, self.container)

    @property
    def path(self) -> str:
        """Return the JSON pointer of the container."""
        return f"/spec/{'initContainers' if self.init else 'containers'}/{self.container}"

    def find(self, pod: views.Pod) -> views.Container:
        """Return the container."""
        return pod.spec.get_container(self.container, init=self.init)

    def describe(self, pod: views.Pod, /) -> str:
        return f"{self.find(pod).name}: {super().describe(pod)}"


class AddResource(_ContainerChange, frozen=True, kw_only=True):
    """Sets request and limit of a resource in a container to `quantity`: a number of devices, or any quantity."""

    order: ClassVar[int] = DEVICES
    title: ClassVar[str] = "{resource} = {quantity}"
    resource: str
    quantity: int | str

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.set_amount(self.key, self.resource, str(self.quantity))

    def patch(self, patch: PodPatch) -> None:
        resources = self.find(patch.pod).resources
        base = patch.ensure(f"{self.path}/resources", resources, {})
        limits, requests = (resources.limits_or_none, resources.requests_or_none) if resources else (None, None)
        key, amount = frameworks.escape(self.resource), str(self.quantity)
        for path, existing in ((f"{base}/limits", limits), (f"{base}/requests", requests)):
            if existing is None:
                patch.ensure(path, existing, {})
            elif (current := existing.get(self.resource)) is not None and _equals(current, self.quantity):
                continue
            patch.add(f"{path}/{key}", amount)


class RemoveResource(_ContainerChange, frozen=True, kw_only=True):
    """Removes request and limit of a resource from a container."""

    order: ClassVar[int] = DEVICES
    title: ClassVar[str] = "{resource} (removed)"
    resource: str

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.set_amount(self.key, self.resource, None)

    def patch(self, patch: PodPatch) -> None:
        resources = self.find(patch.pod).resources
        maps = {"limits": resources.limits, "requests": resources.requests} if resources else {}
        for field, amounts in maps.items():
            if self.resource in amounts:
                patch.remove(f"{self.path}/resources/{field}/{frameworks.escape(self.resource)}")


class UseClaim(_ContainerChange, frozen=True, kw_only=True):
    """Gives a container the devices of an entry of spec.resourceClaims."""

    order: ClassVar[int] = DEVICES
    title: ClassVar[str] = "claim {claim}"
    claim: str

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.set_claims(self.key, [*draft.get_resources(self.key).claims, views.ContainerClaim(name=self.claim)])

    def patch(self, patch: PodPatch) -> None:
        resources = self.find(patch.pod).resources
        base = patch.ensure(f"{self.path}/resources", resources, {})
        patch.put(f"{base}/claims", resources.claims_or_none if resources else None, None, {"name": self.claim})


class AddMount(_ContainerChange, frozen=True, kw_only=True):
    """Adds a mount to a container, as JSON."""

    order: ClassVar[int] = ADDITIONS
    title: ClassVar[str] = "mount {mount[mountPath]}"
    mount: Mapping[str, Any]

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.edit_list("volume_mounts_or_none", self.key).append(msgspec.convert(self.mount, views.VolumeMount))

    def patch(self, patch: PodPatch) -> None:
        patch.put(f"{self.path}/volumeMounts", self.find(patch.pod).volume_mounts_or_none, None, self.mount)


class SetCommand(_ContainerChange, frozen=True, kw_only=True):
    """Replaces the command of a container that has one."""

    order: ClassVar[int] = ADDITIONS
    command: tuple[str, ...]

    def apply(self, draft: applied_pod.Draft) -> None:
        draft.set_field("command", [*self.command], self.key)

    def patch(self, patch: PodPatch) -> None:
        patch.add(f"{self.path}/command", self.command)  # replaces it

    def describe(self, pod: views.Pod, /) -> str:
        return f"{self.find(pod).name}: command after {self.command[2].split()[1]}"


class AddCapability(_ContainerChange, frozen=True, kw_only=True):
    """Adds a capability to a container."""

    order: ClassVar[int] = SECURITY
    title: ClassVar[str] = "capability {capability}"
    capability: str

    def apply(self, draft: applied_pod.Draft) -> None:
        security = draft.get_field("security_context", self.key) or views.SecurityContext()
        capabilities = security.capabilities or views.Capabilities()
        extended = msgspec.structs.replace(capabilities, add=[*(capabilities.add or ()), self.capability])
        draft.set_field("security_context", msgspec.structs.replace(security, capabilities=extended), self.key)

    def patch(self, patch: PodPatch) -> None:
        security = self.find(patch.pod).security_context
        existing = security.capabilities if security else None
        base = patch.ensure(f"{self.path}/securityContext", security, {})
        parent = patch.ensure(f"{base}/capabilities", existing, {})
        patch.put(f"{parent}/add", existing.add if existing else None, None, self.capability)


class SetPrivileged(_ContainerChange, frozen=True, kw_only=True):
    """Makes a container privileged."""

    order: ClassVar[int] = SECURITY
    title: ClassVar[str] = "privileged"

    def apply(self, draft: applied_pod.Draft) -> None:
        security = draft.get_field("security_context", self.key) or views.SecurityContext()
        draft.set_field("security_context", msgspec.structs.replace(security, privileged=True), self.key)

    def patch(self, patch: PodPatch) -> None:
        base = patch.ensure(f"{self.path}/securityContext", self.find(patch.pod).security_context, {})
        patch.add(f"{base}/privileged", True)


class SetEnv(_ContainerChange, frozen=True, kw_only=True):
    """Sets a variable of a container to a literal, or to the field of the pod at `field_path`.

    `index` is the entry to replace, None for a new entry.
    """

    order: ClassVar[int] = ENVIRONMENT
    name: str
    value: str
    index: int | None = None
    field_path: str = ""

    @property
    def source(self) -> dict[str, Any] | None:
        """Return valueFrom of the entry, None for a literal."""
        return {"fieldRef": {"fieldPath": self.field_path}} if self.field_path else None

    def apply(self, draft: applied_pod.Draft) -> None:
        value = None if self.field_path else self.value
        entry = views.EnvVar(name=self.name, value=value, value_from=self.source)
        _put(draft.edit_list("env_or_none", self.key), self.index, entry)

    def patch(self, patch: PodPatch) -> None:
        source = self.source
        entry = {"name": self.name} | ({"valueFrom": source} if source else {"value": self.value})
        patch.put(f"{self.path}/env", self.find(patch.pod).env_or_none, self.index, entry)

    def describe(self, pod: views.Pod, /) -> str:
        suffix = "" if self.index is None else " (replaced)"
        return f"{self.find(pod).name}: env {self.name}{suffix}"


class UnsetEnv(_ContainerChange, frozen=True, kw_only=True):
    """Removes the entry at `index` of a container's environment."""

    order: ClassVar[int] = REMOVALS  # last, because it changes the indexes of the entries after it
    index: int

    def apply(self, draft: applied_pod.Draft) -> None:
        del draft.edit_list("env_or_none", self.key)[self.index]

    def patch(self, patch: PodPatch) -> None:
        patch.remove(f"{self.path}/env/{self.index}")

    def describe(self, pod: views.Pod, /) -> str:
        return f"{self.find(pod).name}: env {self.find(pod).env[self.index].name} (removed)"


def _list_containers(pod: views.Pod) -> Iterator[tuple[applied_pod.ContainerKey, views.Container]]:
    """Yield the app containers and the init containers with their keys."""
    for init, containers in ((False, pod.spec.containers), (True, pod.spec.init_containers or ())):
        for index, container in enumerate(containers):
            yield (init, index), container


def _put(entries: list[_Entry], index: int | None, entry: _Entry) -> None:
    """Replace the entry at `index`, or append one."""
    if index is None:
        entries.append(entry)
    else:
        entries[index] = entry


def _equals(raw_quantity: views.RawQuantity, amount: int | str) -> bool:
    try:
        return quantity.parse(raw_quantity) == quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return False


def apply(pod: applied_pod.AppliedPod, changes: Iterable[Change]) -> applied_pod.AppliedPod:
    """Return the pod after the changes, applied in order."""
    draft = applied_pod.Draft(pod)
    for change in changes:
        change.apply(draft)
    return draft.build()


class Contribution(msgspec.Struct, frozen=True):
    """The result of one mutator.

    `entries` name everything that the pod then has as the policy requires, whether it existed before or is added now. A
    second plan of an injected pod therefore has the same record.
    """

    changes: tuple[Change, ...] = ()
    entries: tuple[str, ...] = ()
    warnings: tuple[reasons.Reason, ...] = ()
    user_values: Mapping[str, tuple[str, ...]] = {}  # container -> variables that keep the user's own value
    skipped: Mapping[str, reasons.Reason] = {}  # mutator or record entry -> reason for leaving it out
    recorded: tuple[env_tables.RecordedReasons, ...] = ()  # of `entries`


EMPTY = Contribution()


def merge(contributions: Iterable[Contribution]) -> Contribution:
    """Merge the results of several mutators. Entries and warnings appear once, in order."""
    nonempty = [contribution for contribution in contributions if contribution is not EMPTY]
    if len(nonempty) == 1:
        return nonempty[0]
    changes: list[Change] = []
    entries: dict[str, None] = {}
    warnings: dict[reasons.Reason, None] = {}
    user_values: dict[str, tuple[str, ...]] = {}
    skipped: dict[str, reasons.Reason] = {}
    recorded: list[env_tables.RecordedReasons] = []
    for contribution in nonempty:
        changes += contribution.changes
        for entry in contribution.entries:
            entries[entry] = None
        for warning in contribution.warnings:
            warnings[warning] = None
        skipped.update(contribution.skipped)
        recorded += [table for table in contribution.recorded if table not in recorded]
        for container, variables in contribution.user_values.items():
            user_values[container] = user_values.get(container, ()) + variables
    return Contribution(tuple(changes), tuple(entries), tuple(warnings), user_values, skipped, tuple(recorded))


class Injection(msgspec.Struct, frozen=True):
    """The outcome for a pod that opted in. There are no changes if the pod already has all of it."""

    fabric: str
    role: str
    containers: tuple[str, ...]
    rails: tuple[str, ...]
    changes: tuple[Change, ...]
    warnings: tuple[rendering.Message, ...]
    pod: views.Pod  # after all changes
    networks: tuple[network_selection.Selection, ...]  # of its networks annotation
    targets: tuple[int, ...]  # indexes of the containers that the fabric is for, also of a pod without rails
    has_rails: bool  # False for a role without rails
    resources: frozenset[str]  # of the rails


class Refusal(msgspec.Struct, frozen=True):
    """The outcome for a pod that is rejected. The message names object, key, value, cause and fix."""

    fabric: str  # "" if the fabric is unknown
    reason: str  # one of rejections.RejectionCode
    message: str
    role: str = ""  # "" if unknown
    problem: str = ""  # the message without the pod's name; "" if the message names no pod


class NotOptedIn(msgspec.Struct, frozen=True):
    """The outcome for a pod that did not opt in. It is not changed. `warnings` name keys that have no effect."""

    warnings: tuple[rendering.Message, ...] = ()
