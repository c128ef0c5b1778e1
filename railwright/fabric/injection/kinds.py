"""The workloads whose pod templates we equip: one row a kind. Where its templates are, and what its controller adds.

Owns that table. A controller's labels decide a pod's role, so a template is read as if it had them already; where a
template has such a label itself, the controller's wins, as it does on the pod. Knows no policy.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import names, views

EACH = "*"  # a step into every member of a list or map

_MOST_ARGUMENTS = 64  # of a plugin, read for each task; Volcano's mpi plugin knows three
_LAUNCHER = "Launcher"  # a key of Kubeflow's replica specs


class Spec(views.View, frozen=True):
    """spec of a workload, as far as it decides what its controller adds."""

    plugins: dict[str, list[str] | None] | None = None  # Volcano Job: arguments by plugin


class Spot(msgspec.Struct, frozen=True):
    """One template's place: `name` and `index` of the task, replica or group it belongs to."""

    workload: str
    name: str
    index: int
    spec: Spec


class Additions(msgspec.Struct, frozen=True):
    """What a controller puts on the pods of a template, as far as anybody here reads it."""

    labels: Mapping[str, str] = {}
    env: Sequence[str] = ()  # names, in every container
    commands: Mapping[str, Sequence[str]] = {}  # by container


class Site(msgspec.Struct, frozen=True):
    """Where templates are: the steps from the object to a template, and the field that names a list's members."""

    path: tuple[str, ...]
    named_by: str = "name"
    adds: Callable[[Spot], Additions] = lambda _: Additions()


class Kind(msgspec.Struct, frozen=True):
    """A workload kind. `frozen`: its templates cannot change once it exists (ruling 17)."""

    group: str
    versions: tuple[str, ...]
    name: str
    plural: str
    sites: tuple[Site, ...]
    frozen: bool = False

    @property
    def title(self) -> str:
        """How it is told from others of its name: Job.batch.volcano.sh."""
        return f"{self.name}.{self.group}"


def find(group: str, version: str, kind: str) -> Kind | None:
    """The row of a kind, None where templates of such are none of our business."""
    return _BY_KIND.get((group, version, kind))


def _volcano(spot: Spot) -> Additions:
    """Volcano's pkg/controllers/job/job_controller_util.go, createJobPod; its webhook names unnamed tasks."""
    task = spot.name or f"default{spot.index}"
    plugins = spot.spec.plugins or {}
    labels = {names.VOLCANO_JOB: spot.workload, names.VOLCANO_TASK: task}
    # plugins/distributed-framework/mpi/mpi.go: the task in which mpirun is started
    master = "mpi" in plugins and task == _argument(plugins["mpi"], "master", "master")
    commands = {}
    if "ray" in plugins and task == _argument(plugins["ray"], "head", "head"):  # .../ray/ray.go
        commands = {_argument(plugins["ray"], "headContainer", "head"): ("sh", "-c", "ray start --head --block")}
    return Additions(labels, ("MPI_HOST",) if master else (), commands)


def _argument(arguments: Sequence[str] | None, name: str, default: str) -> str:
    """The value of a plugin's argument, as Go's flags are written."""
    found = default
    words = itertools.islice(arguments or (), _MOST_ARGUMENTS)
    for word in words:
        flag, given, value = word.lstrip("-").partition("=")
        if flag == name:
            found = value if given else next(words, found)
    return found


def _kubeflow(spot: Spot) -> Additions:
    """The training-operator v1: pkg/controller.v1/common/pod.go."""
    return Additions({names.KUBEFLOW_JOB: spot.workload, names.KUBEFLOW_REPLICA_TYPE: spot.name.lower()})


def _mpi(spot: Spot) -> Additions:
    """The mpi-operator v2beta1: pkg/controller/mpi_job_controller.go, defaultLabels.

    Releases after 0.6.0 also give a launcher that runs as a worker an index, older ones do not: it is not counted on.
    Where such a launcher has accelerators, that alone makes it a rank.
    """
    return Additions({names.KUBEFLOW_JOB: spot.workload, names.KUBEFLOW_ROLE: spot.name.lower()})


def _mpi_v1(spot: Spot) -> Additions:
    """training-operator's MPIJob v1: controller.v1/mpi/mpijob_controller.go; its launcher is called a master too."""
    role = {names.KUBEFLOW_ROLE: "master"} if spot.name == _LAUNCHER else {}
    return Additions({**_kubeflow(spot).labels, **role})


def _job_set(spot: Spot) -> Additions:
    """The controller of JobSet, pkg/controllers/jobset_controller.go, labelAndAnnotateObject."""
    return Additions({names.JOBSET: spot.workload, names.JOBSET_REPLICATED_JOB: spot.name})


def _leader_worker_set(spot: Spot) -> Additions:
    """The controllers of LWS, pkg/controllers; index 0 leads, and only leaders are made from a leaderTemplate."""
    return Additions({names.LEADER_WORKER_SET: spot.workload})


def _leader(spot: Spot) -> Additions:
    return Additions({names.LEADER_WORKER_SET: spot.workload, names.LEADER_WORKER_INDEX: "0"})


def _ray(node_type: str) -> Callable[[Spot], Additions]:
    """Kuberay controllers/ray/common/pod.go, labelPod."""
    return lambda spot: Additions({"ray.io/cluster": spot.workload, names.RAY_NODE_TYPE: node_type})


def _plain(*more: str, adds: Callable[[Spot], Additions] = lambda _: Additions()) -> tuple[Site, ...]:
    return (Site(("spec", *more, "template"), adds=adds),)


# fmt: off  # one row a kind: a table is read down its columns
KINDS = (
    Kind("apps", ("v1",), "Deployment", "deployments", _plain()),
    Kind("apps", ("v1",), "StatefulSet", "statefulsets", _plain()),
    Kind("batch", ("v1",), "Job", "jobs", _plain(), frozen=True),
    Kind("batch.volcano.sh", ("v1alpha1",), "Job", "jobs", _plain("tasks", EACH, adds=_volcano), frozen=True),
    Kind("kubeflow.org", ("v2beta1",), "MPIJob", "mpijobs", _plain("mpiReplicaSpecs", EACH, adds=_mpi)),
    Kind("kubeflow.org", ("v1",), "MPIJob", "mpijobs", _plain("mpiReplicaSpecs", EACH, adds=_mpi_v1)),
    Kind("kubeflow.org", ("v1",), "PyTorchJob", "pytorchjobs", _plain("pytorchReplicaSpecs", EACH, adds=_kubeflow)),
    Kind("kubeflow.org", ("v1",), "TFJob", "tfjobs", _plain("tfReplicaSpecs", EACH, adds=_kubeflow)),
    Kind("kubeflow.org", ("v1",), "XGBoostJob", "xgboostjobs", _plain("xgbReplicaSpecs", EACH, adds=_kubeflow)),
    Kind("kubeflow.org", ("v1",), "PaddleJob", "paddlejobs", _plain("paddleReplicaSpecs", EACH, adds=_kubeflow)),
    Kind("kubeflow.org", ("v1",), "JAXJob", "jaxjobs", _plain("jaxReplicaSpecs", EACH, adds=_kubeflow)),
    # The JobSet of a Kubeflow TrainJob too. Its own webhook lets labels and the like of a suspended one change, never
    # containers (pkg/webhooks/jobset_webhook.go, ValidateUpdate).
    Kind(
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "JobSet",
        "jobsets",
        (Site(("spec", "replicatedJobs", EACH, "template", "spec", "template"), adds=_job_set),),
        frozen=True,
    ),
    Kind(
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "LeaderWorkerSet",
        "leaderworkersets",
        (
            Site(("spec", "leaderWorkerTemplate", "leaderTemplate"), adds=_leader),
            Site(("spec", "leaderWorkerTemplate", "workerTemplate"), adds=_leader_worker_set),
        ),
    ),
    Kind(
        "ray.io",
        ("v1",),
        "RayCluster",
        "rayclusters",
        (
            Site(("spec", "headGroupSpec", "template"), adds=_ray("head")),
            Site(("spec", "workerGroupSpecs", EACH, "template"), named_by="groupName", adds=_ray("worker")),
        ),
    ),
)
# fmt: on

_BY_KIND = {(kind.group, version, kind.name): kind for kind in KINDS for version in kind.versions}
