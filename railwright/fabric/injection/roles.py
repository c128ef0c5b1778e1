"""What a pod is in its job: a rank, mpirun's launcher, or a bystander (webhooks.md 5.2, 5.3).

Owns the table of framework labels. A label can only take away: whoever can write it may write the opt-in label too.
Gang and rank are `railwright.fabric.workload`'s, and so is the name by which a launcher is told where no label marks
it.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric import names, views, workload
from railwright.fabric.policy import model as policies

LAUNCHER, WORKER, HEAD, INITIALIZER, SUBMITTER, EXCLUDED = (
    "launcher",
    "worker",
    "head",
    "initializer",
    "submitter",
    "excluded",
)
_VOLCANO_MPI = "MPI_HOST"  # set by Volcano's mpi plugin on the master only
_RAY_SUBMISSION = "RAY_JOB_SUBMISSION_ID"  # set by KubeRay on the submitter's pod, which has no node type
_RAY_HEAD = "ray start --head"  # as Volcano's ray plugin begins the command of its head
_RAY_SUBMIT = "ray job submit"  # in the submitter's command, also where its template has been written by hand
# Replica types of a TFJob that exchange data by gRPC, never by NCCL (training-operator, tensorflow_types.go).
_TENSORFLOW_HELPERS = frozenset({"ps", "evaluator"})
# Tasks of a Volcano Job that do the same, as TensorFlow's and PaddlePaddle's examples name them.
_VOLCANO_HELPERS = _TENSORFLOW_HELPERS | {"pserver"}
_MPI_SSH_VOLUME = "ssh-auth"  # mpi-operator v2beta1; its mount path is the job's choice
_TRAINER_SSH_VOLUME = "mpi-ssh-auth"  # Kubeflow Trainer v2; the same
_MPI_OPERATOR = "mpi-operator"  # value of the operator's label: v2beta1, which starts ranks by ssh
_INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})
_TRAINER_NODE = "node"  # Trainer v2's replicated job of ranks; its step label stays on the Job
_LAUNCHER_LABELS = (
    names.KUBEFLOW_ROLE,  # mpi-operator v2beta1
    names.KUBEFLOW_REPLICA_TYPE,  # training-operator's MPIJob v1, whose launcher has the job-role master
    names.MPI_OPERATOR_ROLE,
    names.MPI_ALPHA_ROLE,
    names.JOBSET_REPLICATED_JOB,  # Trainer v2
)


class Role(msgspec.Struct, frozen=True):
    """`rails`: gets the fabric. `pins`: gets mpirun's out-of-band pins. `why`: said where it gets no rails."""

    word: str
    rails: bool
    pins: bool = False
    why: str = ""


_WORKER = Role(WORKER, rails=True)
_ACTING_LAUNCHER = Role(LAUNCHER, rails=True, pins=True)  # a rank that also starts the others


def never_rank() -> bool:
    """Answer for a pod of which nothing shows that it sends data."""
    return False


def role_of(
    pod: views.Pod, roles: policies.Roles, *, accelerated: bool, shown_rank: Callable[[], bool] = never_rank
) -> Role:
    """Return the role of a pod; `accelerated` when an app container requests an accelerator.

    `shown_rank` is called for a task that only its name makes a launcher: whether other facts make it a rank as well.
    """
    task = pod.metadata.labels.get(names.VOLCANO_TASK)
    said = roles.volcano_tasks.get(task) if task else None
    if said == "never":
        return Role(EXCLUDED, rails=False, why=f"the policy's roles.volcanoTasks says never for task {task}")
    word = _word(pod, accelerated=accelerated)
    if word == WORKER and not accelerated and _named_launcher(pod):
        if roles.launchers != "never" and (names.CONTAINERS in pod.metadata.annotations or shown_rank()):
            return _ACTING_LAUNCHER
        word = LAUNCHER
    if said == "always":
        return _ACTING_LAUNCHER if word == LAUNCHER else _WORKER
    if word == WORKER:
        return _WORKER
    return _DECISIONS[word](pod, roles, accelerated)


def ssh_launched(pod: views.Pod) -> bool:
    """True where ranks start by ssh, so that the container's environment never reaches them (webhooks.md 5.1).

    Recognised by the labels of a worker of mpi-operator v2beta1, by its mounted Secret or that of Kubeflow Trainer or
    of Volcano's ssh and mpi plugins, and by any Secret mounted as root's keys.
    """
    labels = pod.metadata.labels
    if labels.get(names.KUBEFLOW_OPERATOR) == _MPI_OPERATOR and labels.get(names.KUBEFLOW_ROLE) == WORKER:
        return True
    secrets = {volume.name for volume in pod.spec.volumes_or_none or () if volume.secret is not None}
    if not secrets:
        return False
    job = labels.get(names.VOLCANO_JOB)
    keys = {_MPI_SSH_VOLUME} if names.KUBEFLOW_ROLE in labels else set()
    keys |= {_TRAINER_SSH_VOLUME} if names.JOBSET in labels else set()
    keys |= {f"{job}-ssh"} if job else set()
    return any(
        mount.name in secrets and (mount.name in keys or f"{mount.path}/".startswith(f"{names.SSH_HOME}/"))
        for container in pod.spec.containers
        for mount in container.volume_mounts
    )


def _word(pod: views.Pod, *, accelerated: bool) -> str:
    labels = pod.metadata.labels
    steps = {labels.get(names.TRAINER_STEP), labels.get(names.JOBSET_REPLICATED_JOB)}
    if steps & _INITIALIZERS:
        return INITIALIZER
    if any(labels.get(label) == LAUNCHER for label in _LAUNCHER_LABELS):
        return LAUNCHER
    if labels.get(names.RAY_NODE_TYPE) == "head":
        return HEAD
    if labels.get(names.RAY_NODE_TYPE) == "redis-cleanup":
        return SUBMITTER
    if not accelerated and names.RAY_NODE_TYPE not in labels and _submits_to_ray(pod):
        return SUBMITTER
    if names.VOLCANO_JOB in labels and _has_env(pod, _VOLCANO_MPI):
        return LAUNCHER
    if not accelerated and names.VOLCANO_JOB in labels and _starts_ray_head(pod):
        return HEAD
    return EXCLUDED if not accelerated and _helps(pod) else WORKER


def _starts_ray_head(pod: views.Pod) -> bool:
    """True where a container starts a Ray head: Volcano's ray plugin marks the head's pod by its command only."""
    return any(_RAY_HEAD in word for each in pod.spec.containers for word in each.command or ())


def _named_launcher(pod: views.Pod) -> bool:
    """True for a pod of a Volcano Job whose task is named like a launcher.

    Volcano marks the master of its mpi plugin only; of a job that starts mpirun by the ssh plugin the name is all.
    """
    labels = pod.metadata.labels
    return names.VOLCANO_JOB in labels and workload.names_launcher(labels.get(names.VOLCANO_TASK, ""))


def _helps(pod: views.Pod) -> bool:
    """True for a pod of a JobSet, TFJob, Ray cluster or Volcano Job that is no rank by its name, unless an annotation
    makes it one.

    A label on the job counts for all its templates, a driver's or parameter server's too. Only asked where the pod has
    no accelerators.
    """
    labels = pod.metadata.labels
    if names.CONTAINERS in pod.metadata.annotations:
        return False
    if labels.get(names.KUBEFLOW_REPLICA_TYPE) in _TENSORFLOW_HELPERS or labels.get(names.RAY_NODE_TYPE) == "worker":
        return True
    if names.VOLCANO_JOB in labels and labels.get(names.VOLCANO_TASK) in _VOLCANO_HELPERS:
        return True
    if names.JOBSET not in labels:
        return False
    return labels.get(names.JOBSET_REPLICATED_JOB) != _TRAINER_NODE and names.TRAINER_STEP not in labels


def _submits_to_ray(pod: views.Pod) -> bool:
    """True for the pod that submits a RayJob to its cluster, by KubeRay's variable or by its command."""
    if _has_env(pod, _RAY_SUBMISSION):
        return True
    words = [word for each in pod.spec.containers for word in (*(each.command or ()), *(each.args or ()))]
    return _RAY_SUBMIT in " ".join(words)


def _has_env(pod: views.Pod, name: str) -> bool:
    return any(entry.name == name for container in pod.spec.containers for entry in container.env)


def _launcher(pod: views.Pod, roles: policies.Roles, accelerated: bool) -> Role:  # noqa: FBT001 - a row's signature
    acts = accelerated or names.KUBEFLOW_REPLICA_INDEX in pod.metadata.labels  # mpi-operator's runLauncherAsWorker
    if roles.launchers == "always" or (roles.launchers == "inject-if-accelerated" and acts):
        return _ACTING_LAUNCHER
    never = roles.launchers == "never"
    why = "the policy's roles.launchers says never" if never else "a launcher without accelerators sends no data"
    return Role(LAUNCHER, rails=False, pins=True, why=why)


def _head(_: views.Pod, __: policies.Roles, accelerated: bool) -> Role:  # noqa: FBT001 - a row's signature
    if accelerated:
        return Role(HEAD, rails=True)
    return Role(HEAD, rails=False, pins=True, why="a Ray head without accelerators sends no data")


def _initializer(_: views.Pod, __: policies.Roles, ___: bool) -> Role:  # noqa: FBT001 - a row's signature
    return Role(INITIALIZER, rails=False, why="an initializer prepares data and sends none over the fabric")


_HELPERS_OF = (
    (names.JOBSET, "JobSet"),
    (names.RAY_NODE_TYPE, "Ray cluster"),
    (names.VOLCANO_JOB, "Volcano Job"),
    (names.KUBEFLOW_REPLICA_TYPE, "TFJob"),
)


def _helper(pod: views.Pod, _: policies.Roles, __: bool) -> Role:  # noqa: FBT001 - a row's signature
    kind = next((kind for label, kind in _HELPERS_OF if label in pod.metadata.labels), "job")
    why = f"a {kind}'s pod without accelerators sends no data by NCCL; annotation {names.CONTAINERS} makes it a rank"
    return Role(EXCLUDED, rails=False, why=why)


def _submitter(_: views.Pod, __: policies.Roles, ___: bool) -> Role:  # noqa: FBT001 - a row's signature
    return Role(SUBMITTER, rails=False, why="a cleanup or submitter pod sends no data")


_DECISIONS: dict[str, Callable[[views.Pod, policies.Roles, bool], Role]] = {
    LAUNCHER: _launcher,
    HEAD: _head,
    INITIALIZER: _initializer,
    SUBMITTER: _submitter,
    EXCLUDED: _helper,
}
