"""Finds the role of a pod in its job: a rank, mpirun's launcher, or a pod that sends no data (docs/interface.md 3).

Framework labels can only remove rails. Trusting them is safe: anyone able to set them can also set the opt-in label.
`railwright.fabric.workload` owns gang and rank, and the names of launchers without a label.
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
_VOLCANO_MPI = "MPI_HOST"  # Volcano's mpi plugin sets it only on the master
_RAY_SUBMISSION = "RAY_JOB_SUBMISSION_ID"  # set by KubeRay on the submitter's pod, which has no node type
_RAY_HEAD = "ray start --head"  # start of the head's command in Volcano's ray plugin
_RAY_SUBMIT = "ray job submit"  # in the submitter's command, also in hand-written templates
# Replica types of a TFJob that exchange data by gRPC, never by NCCL (training-operator, tensorflow_types.go).
_TENSORFLOW_HELPERS = frozenset({"ps", "evaluator"})
# Tasks of a Volcano Job that do the same, as TensorFlow's and PaddlePaddle's examples name them.
_VOLCANO_HELPERS = _TENSORFLOW_HELPERS | {"pserver"}
_MPI_SSH_VOLUME = "ssh-auth"  # mpi-operator v2beta1; the job sets its mount path
_TRAINER_SSH_VOLUME = "mpi-ssh-auth"  # Kubeflow Trainer v2; the job sets its mount path
_MPI_OPERATOR = "mpi-operator"  # label value of v2beta1, which starts ranks by ssh
_INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})
_TRAINER_NODE = "node"  # the replicated job of Trainer v2's ranks; only the Job has a step label
_LAUNCHER_LABELS = (
    names.KUBEFLOW_ROLE,  # mpi-operator v2beta1
    names.KUBEFLOW_REPLICA_TYPE,  # training-operator's MPIJob v1; its launcher has the job-role master
    names.MPI_OPERATOR_ROLE,
    names.MPI_ALPHA_ROLE,
    names.JOBSET_REPLICATED_JOB,  # Trainer v2
)


class Role(msgspec.Struct, frozen=True):
    """The role of a pod. `rails`: it gets the fabric. `reason`: why it gets no rails.

    `needs_launcher_settings`: it gets the interface settings of mpirun.
    """

    name: str
    rails: bool
    needs_launcher_settings: bool = False
    reason: str = ""


_WORKER = Role(WORKER, rails=True)
_ACTING_LAUNCHER = Role(LAUNCHER, rails=True, needs_launcher_settings=True)  # a rank that also starts the other ranks


def return_false() -> bool:
    """Return False: no facts show that the pod sends data."""
    return False


def role_of(
    pod: views.Pod, roles: policies.Roles, *, accelerated: bool, is_known_rank: Callable[[], bool] = return_false
) -> Role:
    """Return the role of a pod. `accelerated`: an app container requests an accelerator.

    `is_known_rank` is called for a task that is a launcher only by its name. It is True if other facts make it a rank
    too.
    """
    task = pod.metadata.labels.get(names.VOLCANO_TASK)
    decision = roles.volcano_tasks.get(task) if task else None
    if decision == "never":
        return Role(EXCLUDED, rails=False, reason=f"the policy sets roles.volcanoTasks to never for task {task}")
    name = _find_name(pod, accelerated=accelerated)
    if name == WORKER and not accelerated and _has_launcher_name(pod):
        if roles.launchers != "never" and (names.CONTAINERS in pod.metadata.annotations or is_known_rank()):
            return _ACTING_LAUNCHER
        name = LAUNCHER
    if decision == "always":
        return _ACTING_LAUNCHER if name == LAUNCHER else _WORKER
    if name == WORKER:
        return _WORKER
    return _DECISIONS[name](pod, roles, accelerated)


def is_started_by_ssh(pod: views.Pod) -> bool:
    """True if ssh starts the ranks, so that they do not inherit the container's environment.

    Such pods are workers of mpi-operator v2beta1 by their labels. Others have the Secret of mpi-operator, of Kubeflow
    Trainer or of Volcano's ssh and mpi plugins mounted, or any Secret at root's ~/.ssh.
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


def _find_name(pod: views.Pod, *, accelerated: bool) -> str:
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
    return EXCLUDED if not accelerated and _is_helper(pod) else WORKER


def _starts_ray_head(pod: views.Pod) -> bool:
    """True if a container starts a Ray head. Volcano's ray plugin marks the head's pod only by its command."""
    return any(_RAY_HEAD in word for container in pod.spec.containers for word in container.command or ())


def _has_launcher_name(pod: views.Pod) -> bool:
    """True for a pod of a Volcano Job with a task named like a launcher.

    Volcano marks only the master of its mpi plugin. In a job that starts mpirun by the ssh plugin, only the name shows
    it.
    """
    labels = pod.metadata.labels
    return names.VOLCANO_JOB in labels and workload.names_launcher(labels.get(names.VOLCANO_TASK, ""))


def _is_helper(pod: views.Pod) -> bool:
    """True for a pod of a JobSet, TFJob, Ray cluster or Volcano Job that is no rank by name or annotation.

    A label on the job covers all its templates, also those of a driver or parameter server. Call this only for pods
    without accelerators.
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
    words = [
        word for container in pod.spec.containers for word in (*(container.command or ()), *(container.args or ()))
    ]
    return _RAY_SUBMIT in " ".join(words)


def _has_env(pod: views.Pod, name: str) -> bool:
    return any(entry.name == name for container in pod.spec.containers for entry in container.env)


def _decide_launcher(pod: views.Pod, roles: policies.Roles, accelerated: bool) -> Role:  # noqa: FBT001 - a row's signature
    is_rank = accelerated or names.KUBEFLOW_REPLICA_INDEX in pod.metadata.labels  # mpi-operator's runLauncherAsWorker
    if roles.launchers == "always" or (roles.launchers == "inject-if-accelerated" and is_rank):
        return _ACTING_LAUNCHER
    is_excluded = roles.launchers == "never"
    reason = (
        "the policy sets roles.launchers to never" if is_excluded else "a launcher without accelerators sends no data"
    )
    return Role(LAUNCHER, rails=False, needs_launcher_settings=True, reason=reason)


def _decide_head(_: views.Pod, __: policies.Roles, accelerated: bool) -> Role:  # noqa: FBT001 - a row's signature
    if accelerated:
        return Role(HEAD, rails=True)
    return Role(HEAD, rails=False, needs_launcher_settings=True, reason="a Ray head without accelerators sends no data")


def _decide_initializer(_: views.Pod, __: policies.Roles, ___: bool) -> Role:  # noqa: FBT001 - a row's signature
    return Role(INITIALIZER, rails=False, reason="an initializer sends no data over the fabric")


_HELPER_KINDS = (
    (names.JOBSET, "JobSet"),
    (names.RAY_NODE_TYPE, "Ray cluster"),
    (names.VOLCANO_JOB, "Volcano Job"),
    (names.KUBEFLOW_REPLICA_TYPE, "TFJob"),
)


def _decide_helper(pod: views.Pod, _: policies.Roles, __: bool) -> Role:  # noqa: FBT001 - a row's signature
    kind = next((kind for label, kind in _HELPER_KINDS if label in pod.metadata.labels), "job")
    reason = f"a {kind}'s pod without accelerators sends no NCCL traffic; annotation {names.CONTAINERS} makes it a rank"
    return Role(EXCLUDED, rails=False, reason=reason)


def _decide_submitter(_: views.Pod, __: policies.Roles, ___: bool) -> Role:  # noqa: FBT001 - a row's signature
    return Role(SUBMITTER, rails=False, reason="a cleanup or submitter pod sends no data")


_DECISIONS: dict[str, Callable[[views.Pod, policies.Roles, bool], Role]] = {
    LAUNCHER: _decide_launcher,
    HEAD: _decide_head,
    INITIALIZER: _decide_initializer,
    SUBMITTER: _decide_submitter,
    EXCLUDED: _decide_helper,
}
