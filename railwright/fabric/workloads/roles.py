"""Finds what labels, variables and commands of a pod show of its role in the job. Policy is not considered.

Framework labels can only remove rails. Trusting them is safe: anyone able to set them can also set the opt-in label.
"""

from collections.abc import Mapping

from railwright.fabric import names, views
from railwright.fabric.workloads import frameworks, registry

# If labels of a pod show several roles, the first counts.
_PRECEDENCE = (frameworks.INITIALIZER, frameworks.LAUNCHER, frameworks.HEAD, frameworks.SUBMITTER)


def _merge_labels() -> Mapping[str, Mapping[str, str]]:
    merged: dict[str, dict[str, str]] = {}
    for framework in registry.FRAMEWORKS:
        for label, roles in framework.roles.items():
            merged.setdefault(label, {}).update(roles)
    return merged


_ROLES = _merge_labels()
_LABELS = frozenset(_ROLES)
_RANK_LABELS = frozenset(
    framework.launcher_rank_label for framework in registry.FRAMEWORKS if framework.launcher_rank_label
)


def find_role(pod: views.Pod, *, is_accelerated: bool) -> str:
    """Return the role that a framework shows, "" if none does.

    `is_accelerated`: an app container requests an accelerator.
    """
    labels = pod.metadata.labels
    if not _LABELS.isdisjoint(labels):
        label_roles = {_ROLES[label].get(labels[label]) for label in _LABELS & labels.keys()}
        for role in _PRECEDENCE:
            if role in label_roles:
                return role
    for framework in registry.FRAMEWORKS:
        if role := framework.find_role(pod, is_accelerated):
            return role
    return ""


def is_rank(pod: views.Pod) -> bool:
    """True if its author or a framework makes a pod a rank, also without accelerators."""
    if names.CONTAINERS in pod.metadata.annotations:
        return True
    return any(framework.is_rank(pod.metadata.labels) for framework in registry.FRAMEWORKS)


def is_launcher_rank(pod: views.Pod) -> bool:
    """True if a label shows that a launcher also runs a rank."""
    return not _RANK_LABELS.isdisjoint(pod.metadata.labels)


def has_launcher_name(pod: views.Pod) -> bool:
    """True if only its name shows that a pod may be a launcher. It may also be a rank."""
    return any(framework.has_launcher_name(pod.metadata.labels) for framework in registry.FRAMEWORKS)


def has_late_launcher(pod: views.Pod) -> bool:
    """True if a launcher of the pod's job may be created only when its workers are ready."""
    return any(framework.has_late_launcher(pod.metadata.labels) for framework in registry.FRAMEWORKS)


def is_started_by_ssh(pod: views.Pod) -> bool:
    """True if ssh starts the ranks, so that they do not inherit the container's environment.

    Such pods are workers of mpi-operator v2beta1 by their labels. Others have the Secret of mpi-operator, of Kubeflow
    Trainer or of Volcano's ssh and mpi plugins mounted, or any Secret at root's ~/.ssh.
    """
    labels = pod.metadata.labels
    if any(framework.is_ssh_worker(labels) for framework in registry.FRAMEWORKS):
        return True
    secrets = {volume.name for volume in pod.spec.volumes_or_none or () if volume.secret is not None}
    if not secrets:
        return False
    keys = {framework.find_ssh_volume(labels) for framework in registry.FRAMEWORKS}
    return any(
        mount.name in secrets and (mount.name in keys or f"{mount.path}/".startswith(f"{names.SSH_HOME}/"))
        for container in pod.spec.containers
        for mount in container.volume_mounts
    )
