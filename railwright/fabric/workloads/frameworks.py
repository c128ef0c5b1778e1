"""Defines the type Framework: the kinds of workloads of a framework, the pods that its controllers create, and the
labels of their gang, rank and role.

Each framework has a file with its value FRAMEWORK. `registry` lists them, and all other tables follow from these.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NewType

import msgspec

from railwright.fabric import text, views

GangKey = NewType("GangKey", str)
"""namespace/PodGroup, or namespace/source/name for gangs without a PodGroup; "" for a single pod."""

MAX_VALUES = 30_000  # commas of a workload that is read; of an update, those of both objects
MAX_ENTRIES = 1_000  # of lists and maps with pod templates; admission rejects a workload with more
MAX_TEMPLATES = 128  # read in one object; admission rejects an object with more that opt in
_MAX_TITLE = 256  # characters of a path in a message: its author chooses the names of replica types
EACH = "*"  # a step of a path that stands for every element of a list or map
Tree = dict[str, Any]


class TemplateContext(msgspec.Struct, frozen=True):
    """The position of a template: `name` and `index` of its task, replica or group.

    `spec` is the object's spec as plain data. The `uid` is unknown while the object is created.
    """

    workload: str
    name: str
    index: int
    spec: Any
    uid: str = ""


class ControllerVolume(msgspec.Struct, frozen=True):
    """A volume of a PersistentVolumeClaim that a controller adds to pods, in place of one of the same name."""

    name: str
    mount_path: str = ""  # in every container; "" if the template has the mounts


class ControllerMetadata(msgspec.Struct, frozen=True):
    """The metadata, settings and volumes that a controller adds to the pods of a template.

    Only what decides a role, or may conflict with railwright's own additions.
    """

    labels: Mapping[str, str] = {}
    env: Sequence[str] = ()  # names, in every container
    volumes: Sequence[ControllerVolume] = ()


def list_claim_volumes(templates: Any) -> tuple[ControllerVolume, ...]:
    """Return the volumes of PersistentVolumeClaim templates, as plain data. Entries without a name are left out."""
    entries = templates if isinstance(templates, list) else []
    names = [get_mapping(entry, "metadata").get("name") for entry in entries]
    return tuple(ControllerVolume(name) for name in names if isinstance(name, str))


BuildMetadata = Callable[[TemplateContext], ControllerMetadata]


def build_no_metadata(_: TemplateContext) -> ControllerMetadata:
    """Return empty metadata, for a controller that adds nothing that railwright reads."""
    return ControllerMetadata()


class TemplatePath(msgspec.Struct, frozen=True):
    """The path from the object to its templates, and the field with the names of list entries.

    `pod_spec` is the path of the pod's spec in a template whose own fields are the pod's labels and annotations.
    `pod_spec` is () for the usual template, with `metadata` and `spec`.
    """

    path: tuple[str, ...]
    name_field: str = "name"
    build_metadata: BuildMetadata = build_no_metadata
    pod_spec: tuple[str, ...] = ()

    def read_template(self, tree: Any) -> Tree:
        """Return a template with `metadata` and `spec`, whatever its form in the object. `tree` is plain data."""
        template = get_mapping(tree)
        if not self.pod_spec:
            return template
        metadata = {key: template[key] for key in ("labels", "annotations") if template.get(key) is not None}
        return {"metadata": metadata, "spec": get_mapping(template, *self.pod_spec)}

    def locate_field(self, pointer: str) -> str:
        """Return the JSON pointer, in a template as its author wrote it, of a field of the pod."""
        if not self.pod_spec:
            return pointer
        field, _, rest = pointer[1:].partition("/")
        return "/".join(("", *(self.pod_spec if field == "spec" else ()), rest))


# --- the pods that a controller creates -------------------------------------------------------------------


class TemplateOrigin(msgspec.Struct, frozen=True):
    """A template in its object, as plain data.

    `steps` is the path from the object to the template, `ancestors` are the values on it from object to template.
    """

    context: TemplateContext
    metadata: ControllerMetadata
    steps: tuple[str | int, ...]
    ancestors: Sequence[Any]
    path: TemplatePath

    @property
    def template(self) -> Tree:
        """Return the template, with `metadata` and `spec`."""
        return self.path.read_template(self.ancestors[-1])

    @property
    def parent(self) -> Tree:
        """Return the object that contains the template: a spec, a task, a replica or a group."""
        parent: Tree = self.ancestors[-2]
        return parent


class CreatedPods(msgspec.Struct, frozen=True):
    """The pods that a controller creates from a template."""

    part: str = ""  # the template's name in the object, "" if the object has one template
    count: Any = 1  # number of pods in each gang as written in the object; not an int if the object does not state it
    gangs: Any = 1  # number of gangs, likewise
    name: str = ""  # suffix to the name of the object; ends with "-" if the rest of the pod's name is generated
    labels: Mapping[str, str] = {}  # in addition to ControllerMetadata
    annotations: Mapping[str, str] = {}
    ssh_volume: str = ""  # the volume with the keys of ranks that ssh starts

    @property
    def total(self) -> int | None:
        """The number of pods in all gangs; None if the object does not state it."""
        return multiply(self.count, self.gangs)


def count_replicas(tree: Tree) -> Any:
    """Return `replicas` of a task or replica type as written, 1 if it is absent."""
    replicas = tree.get("replicas")
    return 1 if replicas is None else replicas


def multiply(one: Any, other: Any) -> int | None:
    """Return the product of two values of an object; None if one of them is not a whole number."""
    return one * other if isinstance(one, int) and isinstance(other, int) else None


ListCreatedPods = Callable[[TemplateOrigin], Iterator[CreatedPods]]


def list_created_pods(origin: TemplateOrigin) -> Iterator[CreatedPods]:
    """Yield the pods of a template that has `replicas` beside it, with generated names."""
    part = origin.context.name
    yield CreatedPods(part, count_replicas(origin.parent), name=f"-{part}-" if part else "-")


# --- the size of a gang -----------------------------------------------------------------------------------


class SizeSource(enum.IntEnum):
    """The sources of gang sizes in order of precedence (docs/interface.md 7.1)."""

    VOLCANO = 0  # PodGroups by API group: PodGroups of the same name in two API groups are different objects
    PLUGINS = 1
    POD = 2  # annotation of the pods
    OWNER = 3


SizeReport = Mapping[GangKey, int]
"""Gang -> number of pods, as reported by one object."""


class Workload(views.View, frozen=True):
    """An object that states the number of its pods."""

    metadata: views.Identity = views.Identity()
    spec: Tree | None = None
    status: Tree | None = None


class SizeKind(msgspec.Struct, frozen=True):
    """A kind of object that declares gang sizes. Each API version is a separate kind.

    `watch` is the name of its watch, "" for PLURAL.GROUP.
    """

    group: str
    version: str
    kind: str
    source: SizeSource
    view: type[Any]
    read_sizes: Callable[[Any], SizeReport]
    watch: str = ""
    excludes_ended: bool = False  # its numbers are those of pods that have not succeeded

    @property
    def name(self) -> str:
        """Return the name of the kind's watch."""
        return self.watch or f"{self.kind.lower()}s.{self.group}"

    @property
    def display_name(self) -> str:
        """Return KIND.GROUP, which all its versions share."""
        return f"{self.kind}.{self.group}"

    @property
    def path(self) -> str:
        """Return the path of the kind in the API server."""
        return f"/apis/{self.group}/{self.version}/{self.kind.lower()}s"


# --- a kind -----------------------------------------------------------------------------------------------


class WorkloadKind(msgspec.Struct, frozen=True):
    """A kind of object with pod templates, in one version of its API.

    `is_injected`: admission mutates the templates. `is_frozen`: they are immutable once the object exists
    (docs/interface.md 3.5). `copies_label`: its controller copies a label of the object to its pods. `states_size`: it
    states the number of pods of its gang, `watch` is the name of its watch, "" for PLURAL.GROUP.
    """

    group: str
    version: str
    name: str
    templates: tuple[TemplatePath, ...]
    is_injected: bool = True
    is_frozen: bool = False
    copies_label: bool = False
    list_created_pods: ListCreatedPods = list_created_pods
    states_size: bool = False
    watch: str = ""
    excludes_ended: bool = False  # the stated number leaves out pods that have succeeded

    @property
    def plural(self) -> str:
        """Return the name of the resource."""
        return f"{self.name.lower()}s"

    @property
    def display_name(self) -> str:
        """Return the unambiguous name of the kind, such as Job.batch.volcano.sh."""
        return f"{self.name}.{self.group}"

    @property
    def passes_label(self) -> bool:
        """True if a label on the object reaches its pods: railwright or the controller copies it."""
        return self.is_injected or self.copies_label


def locate_templates(*steps: str, build_metadata: BuildMetadata = build_no_metadata) -> tuple[TemplatePath, ...]:
    """Return the path of the templates at spec.STEPS.template, as the `templates` of a WorkloadKind."""
    return (TemplatePath(("spec", *steps, "template"), build_metadata=build_metadata),)


class UnreadableError(ValueError):
    """Raised for a workload that does not have the structure of its API. The text names the path."""


def list_origins(kind: WorkloadKind, tree: Tree, start: TemplateContext) -> Iterator[TemplateOrigin]:
    """Yield the pod templates of an object, which is plain data. A missing template is read as an empty one.

    Raises UnreadableError.
    """
    for site in kind.templates:
        yield from _find_templates(site, start, (), (tree,), site.path)


def _find_templates(
    site: TemplatePath,
    context: TemplateContext,
    steps: tuple[str | int, ...],
    ancestors: tuple[Any, ...],
    rest: tuple[str, ...],
) -> Iterator[TemplateOrigin]:
    value = ancestors[-1]
    has_entries = rest[:1] == (EACH,)
    if not isinstance(value, dict | list if has_entries else dict):
        title = "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps])
        wanted = "a list or an object" if has_entries else "an object"
        raise UnreadableError(
            f"{text.limit_message(title[1:], _MAX_TITLE)}: expected {wanted}, got {type(value).__name__}"
        )
    if not rest:
        yield TemplateOrigin(context, site.build_metadata(context), steps, ancestors, site)
    elif has_entries:
        for index, (step, member) in enumerate(value.items() if isinstance(value, dict) else enumerate(value)):
            name = step if isinstance(step, str) else read_name(member, site)
            entry = msgspec.structs.replace(context, name=name, index=index)
            yield from _find_templates(
                site, entry, (*steps, step), (*ancestors, {} if member is None else member), rest[1:]
            )
    else:
        child = value.get(rest[0])
        yield from _find_templates(
            site, context, (*steps, rest[0]), (*ancestors, {} if child is None else child), rest[1:]
        )


def read_name(entry: Any, site: TemplatePath) -> str:
    """Return the name of a list's entry, "" if it has none."""
    name = get_mapping(entry).get(site.name_field)
    return name if isinstance(name, str) else ""


def get_mapping(tree: Any, *path: str) -> Tree:
    """Return the object at a path of plain data, or {} if the path does not lead to an object."""
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def get_list(tree: Any, *path: str) -> list[Any]:
    """Return the list at a path of plain data, or [] if the path does not lead to a list."""
    value = get_mapping(tree, *path[:-1]).get(path[-1])
    return value if isinstance(value, list) else []


def escape_key(key: str) -> str:
    """Escape a key for use in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def split_pointer(pointer: str) -> list[str]:
    """Return the steps of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


LAUNCHER, WORKER, HEAD, EXCLUDED = "launcher", "worker", "head", "excluded"
LAUNCHERS = ("master", LAUNCHER, "driver")  # suffixes of a role's name, such as Volcano's mpimaster
FIRST_ROLES = (*LAUNCHERS, "leader", "chief", HEAD)  # suffixes of roles that come before the other ranks


class GangLabel(msgspec.Struct, frozen=True):
    """A label with the name of a job, which is the gang of its pods.

    The gang's key is namespace/source/value, followed by the values of the labels in `more`, because jobs of different
    kinds may share a name, and a job may consist of several gangs.
    """

    label: str
    source: str
    more: tuple[str, ...] = ()


class Framework(msgspec.Struct, frozen=True):
    """Everything that railwright knows about a framework. An empty field means that the framework lacks the feature."""

    workload_kinds: tuple[WorkloadKind, ...] = ()
    pod_groups: tuple[SizeKind, ...] = ()  # objects without templates that state sizes
    # gang and rank
    group_annotation: str = ""  # of pods: the name of their PodGroup
    group_label: str = ""  # the same
    gang_labels: tuple[GangLabel, ...] = ()
    size_annotation: str = ""  # of pods: number of pods of their gang
    role_labels: tuple[str, ...] = ()  # of pods: the name of their task or replica type
    leader: tuple[str, str] | None = None  # label and value of the pod that comes first, if no role label shows it
    index_labels: tuple[str, ...] = ()  # of pods: their number in the gang
    # role: values of the labels in `roles`, `role_labels` and `ssh_worker` are read, in `gang_labels` only the presence
    roles: Mapping[str, Mapping[str, str]] = {}  # label -> its value -> role
    launcher_variable: tuple[str, str] | None = None  # label, and the variable that shows a launcher among its pods
    launcher_name: tuple[str, str] | None = None  # label, and another with a name that may be that of a launcher
    ssh_worker: Mapping[str, str] = {}  # labels of a rank that ssh starts
    ssh_volume: tuple[str, str] | None = None  # label, and the volume with ssh keys; `{}` stands for the label's value
