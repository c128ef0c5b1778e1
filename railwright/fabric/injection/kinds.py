"""The workload kinds with pod templates that railwright mutates: the paths of templates, and the metadata of pods.

A controller's labels decide the role of a pod, so a template is read as if it already had them. They replace the
template's own labels of the same keys, as on the pod.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import names, views

EACH = "*"  # the step of a path into every element of a list or map

_MAX_ARGUMENTS = 64  # of a plugin, parsed for each task; Volcano's mpi plugin has three
_LAUNCHER = "Launcher"  # a key of Kubeflow's replica specs


class Spec(views.View, frozen=True):
    """The part of a workload's spec that decides what its controller adds to pods."""

    plugins: dict[str, list[str] | None] | None = None  # Volcano Job: arguments by plugin


class TemplateContext(msgspec.Struct, frozen=True):
    """The position of a template: `name` and `index` of its task, replica or group."""

    workload: str
    name: str
    index: int
    spec: Spec


class ControllerMetadata(msgspec.Struct, frozen=True):
    """The metadata and settings that a controller adds to the pods of a template, as far as railwright reads them."""

    labels: Mapping[str, str] = {}
    env: Sequence[str] = ()  # names, in every container
    commands: Mapping[str, Sequence[str]] = {}  # by container


class Site(msgspec.Struct, frozen=True):
    """The path from the object to its templates, and the field with the names of list entries."""

    path: tuple[str, ...]
    name_field: str = "name"
    build_metadata: Callable[[TemplateContext], ControllerMetadata] = lambda _: ControllerMetadata()


class Kind(msgspec.Struct, frozen=True):
    """A workload kind. `frozen`: its templates are immutable once it exists (docs/interface.md 3.5)."""

    group: str
    versions: tuple[str, ...]
    name: str
    plural: str
    sites: tuple[Site, ...]
    frozen: bool = False

    @property
    def title(self) -> str:
        """Return the unambiguous name of the kind, such as Job.batch.volcano.sh."""
        return f"{self.name}.{self.group}"


def find(group: str, version: str, kind: str) -> Kind | None:
    """Return the kind, or None if railwright does not mutate its templates."""
    return _BY_KIND.get((group, version, kind))


def _build_volcano(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of a Volcano task: pkg/controllers/job/job_controller_util.go, createJobPod.

    Volcano's webhook names tasks without a name.
    """
    task = context.name or f"default{context.index}"
    plugins = context.spec.plugins or {}
    labels = {names.VOLCANO_JOB: context.workload, names.VOLCANO_TASK: task}
    # plugins/distributed-framework/mpi/mpi.go: the task that starts mpirun
    master = "mpi" in plugins and task == _find_argument(plugins["mpi"], "master", "master")
    commands = {}
    if "ray" in plugins and task == _find_argument(plugins["ray"], "head", "head"):  # .../ray/ray.go
        commands = {_find_argument(plugins["ray"], "headContainer", "head"): ("sh", "-c", "ray start --head --block")}
    return ControllerMetadata(labels, ("MPI_HOST",) if master else (), commands)


def _find_argument(arguments: Sequence[str] | None, name: str, default: str) -> str:
    """Return the value of a plugin's argument, in the syntax of Go's flags."""
    result = default
    words = itertools.islice(arguments or (), _MAX_ARGUMENTS)
    for word in words:
        flag, has_value, value = word.lstrip("-").partition("=")
        if flag == name:
            result = value if has_value else next(words, result)
    return result


def _build_kubeflow(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of the training-operator v1: pkg/controller.v1/common/pod.go."""
    return ControllerMetadata({names.KUBEFLOW_JOB: context.workload, names.KUBEFLOW_REPLICA_TYPE: context.name.lower()})


def _build_mpi(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of the mpi-operator v2beta1: pkg/controller/mpi_job_controller.go, defaultLabels.

    Releases after 0.6.0 also give an index to a launcher that runs as a worker. Older releases do not, so the index is
    ignored here. A launcher with accelerators is a rank without it.
    """
    return ControllerMetadata({names.KUBEFLOW_JOB: context.workload, names.KUBEFLOW_ROLE: context.name.lower()})


def _build_mpi_v1(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of the training-operator's MPIJob v1: controller.v1/mpi/mpijob_controller.go.

    Its launcher has the role `master`.
    """
    role = {names.KUBEFLOW_ROLE: "master"} if context.name == _LAUNCHER else {}
    return ControllerMetadata({**_build_kubeflow(context).labels, **role})


def _build_job_set(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of JobSet: pkg/controllers/jobset_controller.go, labelAndAnnotateObject."""
    return ControllerMetadata({names.JOBSET: context.workload, names.JOBSET_REPLICATED_JOB: context.name})


def _build_leader_worker_set(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of LeaderWorkerSet: pkg/controllers. Only the leader has index 0."""
    return ControllerMetadata({names.LEADER_WORKER_SET: context.workload})


def _build_leader(context: TemplateContext) -> ControllerMetadata:
    """Build the labels of a leader. Only leaders are created from a leaderTemplate."""
    return ControllerMetadata({names.LEADER_WORKER_SET: context.workload, names.LEADER_WORKER_INDEX: "0"})


def _make_ray_builder(node_type: str) -> Callable[[TemplateContext], ControllerMetadata]:
    """Return the builder for KubeRay's labels: controllers/ray/common/pod.go, labelPod."""
    return lambda context: ControllerMetadata({"ray.io/cluster": context.workload, names.RAY_NODE_TYPE: node_type})


def _build_nothing(_: TemplateContext) -> ControllerMetadata:
    return ControllerMetadata()


def _locate(build_metadata: Callable[[TemplateContext], ControllerMetadata], *steps: str) -> tuple[Site, ...]:
    return (Site(("spec", *steps, "template"), build_metadata=build_metadata),)


# fmt: off  # one row for each kind
KINDS = (
    Kind("apps", ("v1",), "Deployment", "deployments", _locate(_build_nothing)),
    Kind("apps", ("v1",), "StatefulSet", "statefulsets", _locate(_build_nothing)),
    Kind("batch", ("v1",), "Job", "jobs", _locate(_build_nothing), frozen=True),
    Kind("batch.volcano.sh", ("v1alpha1",), "Job", "jobs", _locate(_build_volcano, "tasks", EACH), frozen=True),
    Kind("kubeflow.org", ("v2beta1",), "MPIJob", "mpijobs", _locate(_build_mpi, "mpiReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "MPIJob", "mpijobs", _locate(_build_mpi_v1, "mpiReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "PyTorchJob", "pytorchjobs", _locate(_build_kubeflow, "pytorchReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "TFJob", "tfjobs", _locate(_build_kubeflow, "tfReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "XGBoostJob", "xgboostjobs", _locate(_build_kubeflow, "xgbReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "PaddleJob", "paddlejobs", _locate(_build_kubeflow, "paddleReplicaSpecs", EACH)),
    Kind("kubeflow.org", ("v1",), "JAXJob", "jaxjobs", _locate(_build_kubeflow, "jaxReplicaSpecs", EACH)),
    # Also the JobSet of a Kubeflow TrainJob. JobSet's webhook allows changes of a suspended JobSet's labels and node
    # selectors, never of containers (pkg/webhooks/jobset_webhook.go, ValidateUpdate).
    Kind(
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "JobSet",
        "jobsets",
        (Site(("spec", "replicatedJobs", EACH, "template", "spec", "template"), build_metadata=_build_job_set),),
        frozen=True,
    ),
    Kind(
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "LeaderWorkerSet",
        "leaderworkersets",
        (
            Site(("spec", "leaderWorkerTemplate", "leaderTemplate"), build_metadata=_build_leader),
            Site(("spec", "leaderWorkerTemplate", "workerTemplate"), build_metadata=_build_leader_worker_set),
        ),
    ),
    Kind(
        "ray.io",
        ("v1",),
        "RayCluster",
        "rayclusters",
        (
            Site(("spec", "headGroupSpec", "template"), build_metadata=_make_ray_builder("head")),
            Site(
                ("spec", "workerGroupSpecs", EACH, "template"),
                name_field="groupName",
                build_metadata=_make_ray_builder("worker"),
            ),
        ),
    ),
)
# fmt: on

_BY_KIND = {(kind.group, version, kind.name): kind for kind in KINDS for version in kind.versions}
