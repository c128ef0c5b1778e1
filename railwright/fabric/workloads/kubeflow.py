"""Kubeflow's training-operator (v1) and mpi-operator (v2beta1, and the labels of v1)."""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks

JOB = "training.kubeflow.org/job-name"
OPERATOR = "training.kubeflow.org/operator-name"
ROLE = "training.kubeflow.org/job-role"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
MPI_JOB = "mpi-job-name"  # mpi-operator v1
MPI_ROLE = "mpi-job-role"

_GROUP = "kubeflow.org"
_MPI_OPERATOR = "mpi-operator"  # operator name of v2beta1, which starts ranks by ssh
_MPI_SSH_VOLUME = "ssh-auth"  # mpi-operator v2beta1; the job sets its mount path
_LAUNCHER = "Launcher"  # a key of mpiReplicaSpecs


def _build_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the labels of the training-operator v1 (source: pkg/controller.v1/common/pod.go).

    The launcher of its MPIJob has the role `master` (controller.v1/mpi/mpijob_controller.go).
    """
    role = {ROLE: "master"} if context.name == _LAUNCHER else {}
    return frameworks.ControllerMetadata({JOB: context.workload, REPLICA_TYPE: context.name.lower(), **role})


def _build_mpi_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the labels of the mpi-operator v2beta1 (source: pkg/controller/mpi_job_controller.go, defaultLabels).

    Releases after 0.6.0 also give an index to a launcher that runs as a worker. The index is left out here, because
    older releases give none, and a launcher with accelerators is a rank without an index too.
    """
    return frameworks.ControllerMetadata({JOB: context.workload, ROLE: context.name.lower()})


def _make_list_created_pods(operator: str, *, uses_ssh: bool = False) -> frameworks.ListCreatedPods:
    """Return the function that yields the pods which an operator creates from a template."""

    def list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
        role = origin.context.name.lower()
        index = {} if role == frameworks.LAUNCHER else {REPLICA_INDEX: "0"}
        master = {ROLE: "master"} if role in {"master", "chief"} else {}
        yield frameworks.CreatedPods(
            part=f"replica {origin.context.name}",
            count=frameworks.count_replicas(origin.parent),
            name="-launcher-" if uses_ssh and role == frameworks.LAUNCHER else f"-{role}-0",
            labels={OPERATOR: operator, **index, **master},
            ssh_volume=_MPI_SSH_VOLUME if uses_ssh else "",
        )

    return list_created_pods


def _make_job(name: str, specs: str, *, watch: str = "") -> frameworks.WorkloadKind:
    """Return a kind of the training-operator v1. Its pods are labelled with the controller's name."""
    controller = f"{name.lower()}-controller"  # pkg/controller.v1
    return frameworks.WorkloadKind(
        _GROUP,
        "v1",
        name,
        frameworks.locate_templates(specs, frameworks.EACH, build_metadata=_build_metadata),
        list_created_pods=_make_list_created_pods(controller),
        states_size=True,
        watch=watch,
    )


_MPI_V2 = frameworks.WorkloadKind(
    _GROUP,
    "v2beta1",
    "MPIJob",
    frameworks.locate_templates("mpiReplicaSpecs", frameworks.EACH, build_metadata=_build_mpi_metadata),
    list_created_pods=_make_list_created_pods(_MPI_OPERATOR, uses_ssh=True),
    states_size=True,
)


_LAUNCHER_ROLE = {frameworks.LAUNCHER: frameworks.LAUNCHER}

FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        # it starts ranks by kubectl exec
        _make_job("MPIJob", "mpiReplicaSpecs", watch=f"mpijobs.v1.{_GROUP}"),
        _MPI_V2,
        _make_job("PyTorchJob", "pytorchReplicaSpecs"),
        _make_job("TFJob", "tfReplicaSpecs"),
        _make_job("XGBoostJob", "xgbReplicaSpecs"),
        _make_job("PaddleJob", "paddleReplicaSpecs"),
        _make_job("JAXJob", "jaxReplicaSpecs"),
    ),
    gang_labels=(
        frameworks.GangLabel(JOB, "kubeflow-job", (OPERATOR,)),
        frameworks.GangLabel(MPI_JOB, "mpi-job"),
    ),
    role_labels=(ROLE, REPLICA_TYPE, MPI_ROLE),
    index_labels=(REPLICA_INDEX,),
    roles={
        ROLE: _LAUNCHER_ROLE,  # mpi-operator v2beta1
        REPLICA_TYPE: _LAUNCHER_ROLE,  # training-operator's MPIJob v1; its launcher has the job-role master
        MPI_ROLE: _LAUNCHER_ROLE,
    },
    ssh_worker={OPERATOR: _MPI_OPERATOR, ROLE: frameworks.WORKER},
    ssh_volume=(ROLE, _MPI_SSH_VOLUME),
)
