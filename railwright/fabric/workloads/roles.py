"""Finds a pod's role in its job from its labels, variables and commands. The policy is not read.

Labels of frameworks are trusted: they can only remove rails, and whoever can set them can also opt the pod out.
"""

from railwright.fabric import names, views
from railwright.fabric.workloads import frameworks, registry

# If labels of a pod show several roles, the first counts.
_PRECEDENCE = (frameworks.LAUNCHER, frameworks.HEAD)


_ROWS = registry.FRAMEWORKS
_ROLES = {label: roles for row in _ROWS for label, roles in row.roles.items()}  # each label is of one framework
_LABELS = frozenset(_ROLES)
_LAUNCHER_VARIABLES = [row.launcher_variable for row in _ROWS if row.launcher_variable]
_LAUNCHER_NAMES = [row.launcher_name for row in _ROWS if row.launcher_name]
_SSH_WORKERS = [row.ssh_worker.items() for row in _ROWS if row.ssh_worker]
_SSH_VOLUMES = [row.ssh_volume for row in _ROWS if row.ssh_volume]
VARIABLES = frozenset(variable for _, variable in _LAUNCHER_VARIABLES)
"""Variables whose presence in a container shows that its pod is a launcher."""


def find_role(pod: views.Pod) -> str:
    """Return the role, launcher or head, from the framework's labels; "" if they name none."""
    labels = pod.metadata.labels
    if not _LABELS.isdisjoint(labels):
        label_roles = {_ROLES[label].get(labels[label]) for label in _LABELS & labels.keys()}
        for role in _PRECEDENCE:
            if role in label_roles:
                return role
    for label, variable in _LAUNCHER_VARIABLES:
        if label in labels and any(entry.name == variable for item in pod.spec.containers for entry in item.env):
            return frameworks.LAUNCHER
    return ""


def has_launcher_name(pod: views.Pod) -> bool:
    """True if the name of a pod's task or replica type is that of a launcher. The pod may be a rank nevertheless."""
    labels = pod.metadata.labels
    return any(
        job in labels and labels.get(name, "").lower().endswith(frameworks.LAUNCHERS) for job, name in _LAUNCHER_NAMES
    )


def is_started_by_ssh(pod: views.Pod) -> bool:
    """True if ssh starts the ranks, so that they do not inherit the container's environment.

    Such pods are workers of mpi-operator v2beta1 by their labels. Other such pods have the Secret of mpi-operator, of
    Kubeflow Trainer or of Volcano's ssh and mpi plugins mounted, or any Secret at root's ~/.ssh.
    """
    labels = pod.metadata.labels
    for worker in _SSH_WORKERS:
        if worker <= labels.items():
            return True
    secrets = {volume.name for volume in pod.spec.volumes_or_none or () if volume.secret is not None}
    if not secrets:
        return False
    keys = {volume.replace("{}", labels[label]) for label, volume in _SSH_VOLUMES if labels.get(label)}
    return any(
        mount.name in secrets and (mount.name in keys or f"{mount.path}/".startswith(f"{names.SSH_HOME}/"))
        for container in pod.spec.containers
        for mount in container.volume_mounts
    )
