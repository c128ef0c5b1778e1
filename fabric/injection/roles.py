"""What a pod is in its job: a rank, mpirun's launcher, or a bystander (webhooks.md 5.2, 5.3).

Owns the table of framework labels. A label can only take away: whoever can write it may write the opt-in label too.
Gang and rank are `fabric.workload`'s.
"""

from collections.abc import Callable

import msgspec

from fabric import names, views
from fabric.policy import model as policies

LAUNCHER, WORKER, HEAD, INITIALIZER, SUBMITTER, EXCLUDED = (
    "launcher",
    "worker",
    "head",
    "initializer",
    "submitter",
    "excluded",
)
_ALPHA_ROLE = "mpi_role_type"  # mpi-operator v1alpha1 and v1alpha2
_VOLCANO_MPI = "MPI_HOST"  # set by Volcano's mpi plugin on the master only
_RAY_SUBMISSION = "RAY_JOB_SUBMISSION_ID"  # set by KubeRay on the submitter's pod, which has no node type
_MPI_SSH_VOLUME = "ssh-auth"  # mpi-operator v2beta1; its mount path is the job's choice
_OPERATOR = "training.kubeflow.org/operator-name"  # mpi-operator: v2beta1, which starts ranks by ssh
_MPI_OPERATOR = "mpi-operator"
_INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})


class Role(msgspec.Struct, frozen=True):
    """`rails`: gets the fabric. `pins`: gets mpirun's out-of-band pins. `why`: said where it gets no rails."""

    word: str
    rails: bool
    pins: bool = False
    why: str = ""


_WORKER = Role(WORKER, rails=True)
_ACTING_LAUNCHER = Role(LAUNCHER, rails=True, pins=True)  # a rank that also starts the others


def role_of(pod: views.Pod, roles: policies.Roles, *, accelerated: bool) -> Role:
    """The role of a pod; `accelerated` when an app container requests an accelerator."""
    task = pod.metadata.labels.get(names.VOLCANO_TASK)
    said = roles.volcano_tasks.get(task) if task else None
    if said == "never":
        return Role(EXCLUDED, rails=False, why=f"the policy's roles.volcanoTasks says never for task {task}")
    word = _word(pod, accelerated=accelerated)
    if said == "always":
        return _ACTING_LAUNCHER if word == LAUNCHER else _WORKER
    if word == WORKER:
        return _WORKER
    return _DECISIONS[word](pod, roles, accelerated)


def ssh_launched(pod: views.Pod) -> bool:
    """True where ranks start by ssh, so that the container's environment never reaches them (webhooks.md 5.1).

    Recognised by the labels of a worker of mpi-operator v2beta1, by its mounted Secret or that of Volcano's ssh and mpi
    plugins, and by any Secret mounted as root's keys.
    """
    labels = pod.metadata.labels
    if labels.get(_OPERATOR) == _MPI_OPERATOR and labels.get(names.KUBEFLOW_ROLE) == WORKER:
        return True
    secrets = {volume.name for volume in pod.spec.volumes_or_none or () if volume.secret is not None}
    if not secrets:
        return False
    job = labels.get(names.VOLCANO_JOB)
    keys = {_MPI_SSH_VOLUME} if names.KUBEFLOW_ROLE in labels else set()
    keys |= {f"{job}-ssh"} if job else set()
    return any(
        mount.name in secrets and (mount.name in keys or f"{mount.mount_path}/".startswith(f"{names.SSH_HOME}/"))
        for container in pod.spec.containers
        for mount in container.volume_mounts
    )


def _word(pod: views.Pod, *, accelerated: bool) -> str:
    labels = pod.metadata.labels
    steps = {labels.get(names.TRAINER_STEP), labels.get(names.JOBSET_REPLICATED_JOB)}
    if steps & _INITIALIZERS:
        return INITIALIZER
    launchers = (names.KUBEFLOW_ROLE, names.MPI_OPERATOR_ROLE, names.JOBSET_REPLICATED_JOB, _ALPHA_ROLE)
    if any(labels.get(label) == LAUNCHER for label in launchers):
        return LAUNCHER
    if labels.get(names.RAY_NODE_TYPE) == "head":
        return HEAD
    if labels.get(names.RAY_NODE_TYPE) == "redis-cleanup":
        return SUBMITTER
    if not accelerated and names.RAY_NODE_TYPE not in labels and _has_env(pod, _RAY_SUBMISSION):
        return SUBMITTER
    volcano = names.VOLCANO_JOB in labels
    return LAUNCHER if volcano and _has_env(pod, _VOLCANO_MPI) else WORKER


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


def _submitter(_: views.Pod, __: policies.Roles, ___: bool) -> Role:  # noqa: FBT001 - a row's signature
    return Role(SUBMITTER, rails=False, why="a cleanup or submitter pod sends no data")


_DECISIONS: dict[str, Callable[[views.Pod, policies.Roles, bool], Role]] = {
    LAUNCHER: _launcher,
    HEAD: _head,
    INITIALIZER: _initializer,
    SUBMITTER: _submitter,
}
