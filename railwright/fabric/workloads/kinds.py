"""The records with which a framework's file describes its kinds of objects and the pods that its controller creates.

Framework files have the values, `registry` lists them, and every other table of workloads is derived from these.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NewType

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import objects

GangKey = NewType("GangKey", str)
"""namespace/PodGroup, or namespace/source/name for gangs without a PodGroup; "" for a single pod."""

EACH = "*"  # a step of a path that stands for every element of a list or map
Tree = dict[str, Any]


class TemplateContext(msgspec.Struct, frozen=True):
    """The position of a template: `name` and `index` of its task, replica or group.

    `spec` is the object's spec as the `spec_view` of its kind.
    """

    workload: str
    name: str
    index: int
    spec: Any


class ControllerVolume(msgspec.Struct, frozen=True):
    """A volume of a PersistentVolumeClaim that a controller adds to pods, in place of one of the same name."""

    name: str
    mount_path: str = ""  # in every container; "" if the template has the mounts


class ControllerMetadata(msgspec.Struct, frozen=True):
    """The metadata, settings and volumes that a controller adds to the pods of a template.

    Only those that decide a role, or may conflict with what railwright adds.
    """

    labels: Mapping[str, str] = {}
    env: Sequence[str] = ()  # names, in every container
    commands: Mapping[str, Sequence[str]] = {}  # by container
    volumes: Sequence[ControllerVolume] = ()


def list_claim_volumes(templates: Any) -> tuple[ControllerVolume, ...]:
    """Return the volumes of PersistentVolumeClaim templates, as plain data. Entries without a name are left out."""
    entries = templates if isinstance(templates, list) else []
    names = [get_mapping(entry, "metadata").get("name") for entry in entries]
    return tuple(ControllerVolume(name) for name in names if isinstance(name, str))


BuildMetadata = Callable[[TemplateContext], ControllerMetadata]


def build_no_metadata(_: TemplateContext) -> ControllerMetadata:
    """Return no metadata: the controller adds nothing that decides a role."""
    return ControllerMetadata()


class TemplatePath(msgspec.Struct, frozen=True):
    """The path from the object to its templates, and the field with the names of list entries."""

    path: tuple[str, ...]
    name_field: str = "name"
    build_metadata: BuildMetadata = build_no_metadata


# --- the pods that a controller creates, for `railwright explain` -----------------------------------------


class TemplateOrigin(msgspec.Struct, frozen=True):
    """A template in its object, as plain data. `ancestors`: the object first, the template last."""

    context: TemplateContext
    metadata: ControllerMetadata
    ancestors: Sequence[Any]

    @property
    def parent(self) -> Tree:
        """Return the object that contains the template: a spec, a task, a replica or a group."""
        parent: Tree = self.ancestors[-2]
        return parent


class CreatedPods(msgspec.Struct, frozen=True):
    """The pods that a controller creates from a template."""

    part: str = ""  # the template's name in the object, "" if the object has one template
    count: Any = 1  # number of pods as written in the object; not an int if the object does not state it
    name: str = ""  # suffix to the name of the object; ends with "-" if the rest of the pod's name is generated
    labels: Mapping[str, str] = {}  # in addition to ControllerMetadata
    annotations: Mapping[str, str] = {}
    ssh_volume: str = ""  # the volume with the keys of ranks that ssh starts


CreatePods = Callable[[TemplateOrigin], Iterator[CreatedPods]]


def create_pods(origin: TemplateOrigin) -> Iterator[CreatedPods]:
    """Yield the pods of a template that has `replicas` beside it, with generated names."""
    part = origin.context.name
    yield CreatedPods(part, origin.parent.get("replicas", 1), f"-{part}-" if part else "-")


# --- the size of a gang -----------------------------------------------------------------------------------


class SizeSource(enum.IntEnum):
    """The sources of gang sizes in order of precedence (docs/interface.md 7.1)."""

    VOLCANO = 0  # PodGroups by API group: PodGroups of the same name in two API groups are different objects
    PLUGINS = 1
    IN_TREE = 2
    POD = 3  # annotation of the pods
    OWNER = 4


SizeReport = Mapping[GangKey, int]
"""Gang -> number of pods, as reported by one object."""


class SizeKind(msgspec.Struct, frozen=True):
    """A kind of object that declares gang sizes. `name` is the name of its watch. Each API version is a separate kind.

    `optional`: its CRD may be absent. `snapshot_kind` is KIND.GROUP: a snapshot does not distinguish versions.
    """

    name: str
    source: SizeSource
    read_sizes: Callable[[Any], SizeReport]
    path: str = ""
    snapshot_kind: str = ""
    view: type[Any] = objects.Workload
    optional: bool = True


class PodMarks(msgspec.Struct, frozen=True):
    """The labels and annotations that a controller writes to its pods and that identify their gang."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


ListMarks = Callable[[views.Identity], Sequence[PodMarks]]
"""Lists the possible marks of an owner's pods. Releases of a controller differ, so a size is stored for each."""


def list_no_marks(_: views.Identity) -> Sequence[PodMarks]:
    """Return one element without marks: the pods are identified by their owner only."""
    return (PodMarks(),)


class SizeRule(msgspec.Struct, frozen=True):
    """How an owner's size is read: its view, its replicas with their templates, and the marks of its pods."""

    view: type[Any]
    list_replicas: Callable[[Any], Sequence[objects.Replicas]]
    list_marks: ListMarks = list_no_marks
    watch: str = ""  # name of the watch; "" for PLURAL.GROUP
    optional: bool = True


# --- a kind -----------------------------------------------------------------------------------------------

CountPods = Callable[[Sequence[str | int], Mapping[str, Any]], int | None]
"""Counts the pods of a template by its path and the object as plain data; None if the object does not state it."""


class WorkloadKind(msgspec.Struct, frozen=True):
    """A kind of object with pod templates.

    `is_injected`: admission mutates the templates. `is_frozen`: they are immutable once the object exists
    (docs/interface.md 3.5). `copies_label`: its controller copies a label of the object to its pods.
    """

    group: str
    versions: tuple[str, ...]
    name: str
    plural: str
    templates: tuple[TemplatePath, ...]
    is_injected: bool = True
    is_frozen: bool = False
    copies_label: bool = False
    spec_view: type[Any] | None = None  # view with the fields of the spec that `build_metadata` reads
    create_pods: CreatePods = create_pods
    count_pods: CountPods | None = None  # None: the product of the replica fields on the way to the template
    size: SizeRule | None = None

    @property
    def display_name(self) -> str:
        """Return the unambiguous name of the kind, such as Job.batch.volcano.sh."""
        return f"{self.name}.{self.group}"

    @property
    def passes_label(self) -> bool:
        """True if a label on the object reaches its pods: railwright or the controller copies it."""
        return self.is_injected or self.copies_label


def locate(build_metadata: BuildMetadata, *steps: str) -> tuple[TemplatePath, ...]:
    """Return the path of templates at spec.STEPS.template."""
    return (TemplatePath(("spec", *steps, "template"), build_metadata=build_metadata),)


def get_mapping(tree: Any, *path: str) -> Tree:
    """Return the object at a path of plain data, or {} if the path does not lead to an object."""
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}
