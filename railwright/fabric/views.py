"""Frozen, partial views of Kubernetes objects, decoded by msgspec. Those of nodes are in `node_views`.

Views have only the fields that railwright reads; others are skipped while decoding. A JSON `null` counts as absent, as
for the API server. Field names are Kubernetes' own in snake case. Properties of map and list fields are never None, so
that callers need no null checks. `*_or_none` fields show whether the key is present, which a JSON Patch must know.
"""

import functools
import posixpath
from collections.abc import Mapping
from typing import Any

import msgspec

RawQuantity = str | int | float  # a quantity as written in a manifest
Source = dict[str, Any] | None  # a value or volume source, of which only the presence is read
EMPTY: Mapping[str, Any] = {}
_PATH_MAX = 4096  # bytes (Linux, include/uapi/linux/limits.h)


class View(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """Base of all views. JSON keys are in camelCase, and unknown fields are ignored.

    Views are trees without cycles, so the garbage collector need not visit them. It has to visit a view with cached
    properties (`dict`).
    """


class OwnerReference(View, frozen=True):
    """An entry of metadata.ownerReferences."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Identity(View, frozen=True):
    """The fields of metadata that identify an object and its version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


class BriefMeta(Identity, frozen=True):
    """metadata of an object whose owners are not read."""

    generate_name: str = ""
    creation_timestamp: str | None = None  # RFC 3339; null in a template
    deletion_timestamp: str | None = None
    labels_or_none: dict[str, str] | None = msgspec.field(default=None, name="labels")
    annotations_or_none: dict[str, str] | None = msgspec.field(default=None, name="annotations")

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels; empty if absent."""
        return self.labels_or_none or EMPTY

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations; empty if absent."""
        return self.annotations_or_none or EMPTY

    @property
    def identity(self) -> str:
        """The uid; namespace/name if there is no uid, as in a hand-written snapshot."""
        return self.uid or self.full_name


class ObjectMeta(BriefMeta, frozen=True):
    """metadata of an object."""

    owner_references_or_none: list[OwnerReference] | None = msgspec.field(default=None, name="ownerReferences")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls this object, if any."""
        for owner in self.owner_references_or_none or ():
            if owner.controller:
                return owner
        return None


class EnvVar(View, frozen=True):
    """An environment variable. `value_from` is plain data."""

    name: str = ""
    value: str | None = None
    value_from: Source = None


class ContainerClaim(View, frozen=True):
    """An entry of resources.claims of a container: the name of an entry of the pod's spec.resourceClaims."""

    name: str = ""


class ResourceRequirements(View, frozen=True):
    """resources of a container, with quantities as written."""

    requests_or_none: dict[str, RawQuantity] | None = msgspec.field(default=None, name="requests")
    limits_or_none: dict[str, RawQuantity] | None = msgspec.field(default=None, name="limits")
    claims_or_none: list[ContainerClaim] | None = msgspec.field(default=None, name="claims")

    @property
    def requests(self) -> Mapping[str, RawQuantity]:
        """Requests; empty if absent."""
        return self.requests_or_none or EMPTY

    @property
    def limits(self) -> Mapping[str, RawQuantity]:
        """Limits; empty if absent."""
        return self.limits_or_none or EMPTY

    @property
    def claims(self) -> list[ContainerClaim]:
        """Claims; empty if absent."""
        return self.claims_or_none or []


def clean_path(path: str) -> str:
    """Normalize a path in a container as runtimes do: absolute, without "//", "." and "..".

    A path that is longer than Linux allows is returned as it is: nothing can be mounted there.
    """
    # Nearly all paths are written in this form, and several rules ask for each.
    is_normal = path.startswith("/") and not path.endswith("/") and "//" not in path and "/." not in path
    if is_normal or len(path) > _PATH_MAX:
        return path
    return posixpath.normpath(f"/{path.lstrip('/')}")  # normpath keeps two leading slashes, runtimes do not


class VolumeMount(View, frozen=True):
    """A volume mount of a container."""

    name: str = ""
    mount_path: str = ""

    @property
    def path(self) -> str:
        """The normalized mount path."""
        return clean_path(self.mount_path)


class VolumeDevice(View, frozen=True):
    """A block device of a container."""

    name: str = ""
    device_path: str = ""

    @property
    def path(self) -> str:
        """The normalized device path."""
        return clean_path(self.device_path)


class Capabilities(View, frozen=True):
    """Linux capabilities added and dropped."""

    add: list[str] | None = None
    drop: list[str] | None = None


class SecurityContext(View, frozen=True):
    """securityContext of a container or pod. Of a pod's, only the user is read."""

    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    run_as_user: int | None = None
    run_as_non_root: bool | None = None
    capabilities: Capabilities | None = None


class Container(View, frozen=True, dict=True, gc=True):
    """A container or init container."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env_or_none: list[EnvVar] | None = msgspec.field(default=None, name="env")
    env_from: list[Source] | None = None
    resources: ResourceRequirements | None = None
    volume_mounts_or_none: list[VolumeMount] | None = msgspec.field(default=None, name="volumeMounts")
    volume_devices: list[VolumeDevice] | None = None
    security_context: SecurityContext | None = None
    restart_policy: str | None = None

    @property
    def env(self) -> list[EnvVar]:
        """Environment; empty if absent."""
        return self.env_or_none or []

    @property
    def volume_mounts(self) -> list[VolumeMount]:
        """Mounts; empty if absent."""
        return self.volume_mounts_or_none or []

    @functools.cached_property
    def env_by_name(self) -> Mapping[str, tuple[int, EnvVar]]:
        """Index and entry of each variable. Of entries with the same name Kubernetes uses the last."""
        return {entry.name: (index, entry) for index, entry in enumerate(self.env)}

    @functools.cached_property
    def volume_by_path(self) -> Mapping[str, str]:
        """Name of the volume at each path, mounted or as a block device. A path can have only one of the two."""
        volumes: dict[str, str] = {}
        for mount in (*self.volume_mounts, *(self.volume_devices or ())):
            volumes.setdefault(mount.path, mount.name)
        return volumes

    @property
    def requests(self) -> Mapping[str, RawQuantity]:
        """Requests with Kubernetes' default: a limit without a request is also the request."""
        if self.resources is None:
            return EMPTY
        return {**self.resources.limits, **self.resources.requests}


class Volume(View, frozen=True):
    """A volume, with its name and the sources that railwright reads."""

    name: str = ""
    secret: Source = None
    host_path: Source = None
    empty_dir: Source = None
    downward_api: Source = msgspec.field(default=None, name="downwardAPI")
    config_map: Source = None


class Toleration(View, frozen=True):
    """A toleration with Kubernetes' defaults."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(View, frozen=True):
    """A match expression of a label or node selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(View, frozen=True):
    """A term of a required node affinity. All its expressions must match."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(View, frozen=True):
    """Terms of a node selector. At least one must match."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(View, frozen=True):
    """The required part of a node affinity."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(View, frozen=True):
    """The node part of a pod's affinity."""

    node_affinity: NodeAffinity | None = None


class SchedulingGroup(View, frozen=True):
    """spec.schedulingGroup."""

    pod_group_name: str = ""


class PodResourceClaim(View, frozen=True):
    """An entry of spec.resourceClaims: a claim by name, or a template from which one is generated for the pod."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(View, frozen=True):
    """spec of a pod."""

    containers_or_none: list[Container] | None = msgspec.field(default=None, name="containers")
    init_containers: list[Container] | None = None
    volumes_or_none: list[Volume] | None = msgspec.field(default=None, name="volumes")
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    host_network: bool | None = None
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    dns_policy: str = ""
    security_context: SecurityContext | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    host_users: bool | None = None  # False: the pod has its own user namespace
    overhead: dict[str, RawQuantity] | None = None  # of the RuntimeClass, set by the API server
    resources: ResourceRequirements | None = None  # of the pod as a whole: cpu, memory and huge pages

    @property
    def containers(self) -> list[Container]:
        """App containers; empty if null, because the API server calls webhooks before it checks that there are some."""
        return self.containers_or_none or []

    @property
    def volumes(self) -> list[Volume]:
        """Volumes; empty if absent."""
        return self.volumes_or_none or []


class PodCondition(View, frozen=True):
    """A condition of a pod, with the time of its last change (RFC 3339, in seconds)."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None  # the API server writes a zero time as null


_ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class PodStatus(View, frozen=True):
    """status of a pod."""

    phase: str = ""
    conditions: list[PodCondition] | None = None

    @property
    def has_ended(self) -> bool:
        """True for a pod whose containers have ended and are not started again."""
        return self.phase in _ENDED_PHASES

    @property
    def bound_at(self) -> str:
        """Time of the pod's binding, RFC 3339 in seconds; "" if unknown."""
        for condition in self.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "True":
                return condition.last_transition_time or ""
        return ""


class Pod(View, frozen=True):
    """A pod or pod template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Namespace(View, frozen=True):
    """A namespace. Its labels opt in pods and set the pod-security level."""

    metadata: BriefMeta = BriefMeta()


class ConfigMap(View, frozen=True):
    """A ConfigMap. The policy is in its data."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class NetworkSpec(View, frozen=True):
    """The CNI configuration of a Multus network, as JSON."""

    config: str | None = None


class NetworkAttachmentDefinition(View, frozen=True):
    """A Multus network. Its resourceName annotation names the device plugin's resource."""

    metadata: BriefMeta = BriefMeta()
    spec: NetworkSpec | None = None


class ObjectReference(View, frozen=True):
    """Object that an Event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(View, frozen=True):
    """An Event (core/v1). Times are RFC 3339; writers leave those that they do not use null."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None


class PodGroupSpec(View, frozen=True):
    """spec of a PodGroup."""

    min_member: int = 0
    network_topology: Source = None  # Volcano's constraint to HyperNodes
    sub_group_policy: list[Source] | None = None  # parts of the gang with constraints of their own

    @property
    def is_confined(self) -> bool:
        """True if Volcano offers the nodes of one HyperNode at a time, because of networkTopology or subgroups."""
        return self.network_topology is not None or bool(self.sub_group_policy)


class PodGroup(View, frozen=True):
    """A PodGroup of Volcano or scheduler-plugins, which states the gang's minimum number of pods."""

    metadata: Identity = Identity()
    spec: PodGroupSpec = PodGroupSpec()
