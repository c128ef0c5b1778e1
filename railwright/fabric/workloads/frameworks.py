"""The record of a framework: its kinds, and how its pods show their gang, rank and role."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from railwright.fabric import views
from railwright.fabric.workloads import kinds

LAUNCHER, WORKER, HEAD, INITIALIZER, SUBMITTER, EXCLUDED = (
    "launcher",
    "worker",
    "head",
    "initializer",
    "submitter",
    "excluded",
)
_LAUNCHERS = ("master", LAUNCHER, "driver")  # suffixes of a role's name, such as Volcano's mpimaster
FIRST_ROLES = (*_LAUNCHERS, "leader", "chief", HEAD)  # suffixes of roles that come before the other ranks

Tree = dict[str, Any]


class Parts(Protocol):
    """The parts of a job that runs one rank on each GPU of `nodes` whole nodes."""

    name: str
    nodes: int
    gpus: int  # of a node
    port: int  # of the rendezvous of ranks

    def build_object(self, api_version: str, kind: str, spec: Tree) -> Tree:
        """Return an object with the job's name and namespace."""

    def build_template(self, container: Tree, **pod_spec: Any) -> Tree:
        """Return a pod template that opts in, with one container."""

    def build_launcher(self) -> Tree:
        """Return the container that starts the ranks by mpirun."""

    def build_ssh_worker(self) -> Tree:
        """Return the container in which mpirun starts the ranks of a node."""

    def build_torch_rank(self, name: str, node_rank: str, master: str) -> Tree:
        """Return the container that runs the ranks of a node by torchrun. `name` is the container's."""


class VerificationJob(msgspec.Struct, frozen=True):
    """A way to run the job of `railwright verify manifest`.

    `option` is the value of --kind. `selector` selects the pods with logs that matter; `{name}` is the job's name.
    """

    option: str
    selector: str
    build: Callable[[Parts], list[Tree]]  # the objects to create, in order


Labels = Mapping[str, str]


class GangLabel(msgspec.Struct, frozen=True):
    """A label with the name of a job, which is the gang of its pods.

    The gang's key is namespace/source/value. `more` are labels with further parts, because jobs of different kinds may
    share a name, and a job may consist of several gangs.
    """

    label: str
    source: str
    more: tuple[str, ...] = ()


class ContainerRule(msgspec.Struct, frozen=True):
    """A kind of object that sets a container of a pod template in another object.

    `field` is the field of its spec that describes the container.
    """

    kind: str
    field: str
    name: str  # of the container
    count_field: str
    resources_field: str


def has_no_launcher_name(_: Labels) -> bool:
    """Return False: no pod of the framework is a launcher by its name alone."""
    return False


class Framework(msgspec.Struct, frozen=True):
    """Everything that railwright knows about a framework. An empty field means that the framework lacks the feature."""

    workload_kinds: tuple[kinds.WorkloadKind, ...] = ()
    pod_groups: tuple[kinds.SizeKind, ...] = ()  # objects without templates that state sizes
    # gang and rank
    find_groups: tuple[Callable[[views.Pod], str], ...] = ()  # the pod's PodGroup, "" for none
    gang_annotations: tuple[str, ...] = ()  # that `find_groups` reads
    gang_labels: tuple[GangLabel, ...] = ()
    size_annotation: str = ""  # of pods: number of pods of their gang
    role_labels: tuple[str, ...] = ()  # of pods: the name of their task or replica type
    leader: tuple[str, str] | None = None  # label and value of the pod that comes first, if no role label shows it
    index_labels: tuple[str, ...] = ()  # of pods: their number in the gang
    # Labels, annotations and variables that differ between the pods of a gang. No role depends on their values.
    index_keys: tuple[str, ...] = ()
    rank_variables: tuple[str, ...] = ()
    # role
    roles: Mapping[str, Mapping[str, str]] = {}  # label -> its value -> role
    find_role: Callable[[views.Pod, bool], str] | None = None  # by environment or command; "" if they do not show it
    launcher_rank_label: str = ""  # label that a launcher has only if it also runs a rank
    has_launcher_name: Callable[[Labels], bool] = has_no_launcher_name
    is_rank: Callable[[Labels], bool] | None = None  # True for pods that are ranks also without accelerators
    find_ssh_volume: Callable[[Labels], str] | None = None  # volume with the Secret of ssh keys, "" for none
    is_ssh_worker: Callable[[Labels], bool] | None = None
    verification_jobs: tuple[VerificationJob, ...] = ()
    # manifests, also of unknown kinds
    containers: tuple[ContainerRule, ...] = ()
    replica_fields: tuple[str, ...] = ()  # fields that multiply the pods of every template below them


def is_launcher_name(role: str) -> bool:
    """True if the name of a role or task is that of a launcher, which may also run a rank."""
    return role.lower().endswith(_LAUNCHERS)


def has_env(pod: views.Pod, name: str) -> bool:
    """True if a container sets a variable."""
    return name in [entry.name for container in pod.spec.containers for entry in container.env]
