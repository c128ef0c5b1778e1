"""Which gang a pod belongs to, and its rank in it, read from the labels each framework writes.

Owns ruling 19 of the contract, but for the size of a gang: that needs other objects than the pod, and is
`placement.sizes`'. Knows nothing of nodes or devices.
"""

import re
from collections.abc import Callable, Mapping
from typing import NewType

import msgspec

from railwright.fabric import names, views

GangKey = NewType("GangKey", str)
"""namespace/PodGroup for gangs that have one, else namespace/source/name; "" for a pod on its own."""

ALONE = GangKey("")

_TRAILING_NUMBER = re.compile(r"(\d+)$")
_NO_INDEX = 1 << 30  # pods without any index come after all that have one
_LAUNCHERS = ("master", "launcher", "driver")  # ends of a role's name: Volcano's mpimaster is one
_FIRST_ROLES = (*_LAUNCHERS, "leader", "chief", "head")


class Rank(msgspec.Struct, gc=False, frozen=True, order=True):
    """Order of a pod in its gang: launchers and masters first, then the index, then the name."""

    role: int  # 0 for the roles that come first, 1 for all others
    index: int
    name: str


def gang_of(pod: views.Pod, volcano_job: str = "") -> GangKey:
    """The gang of a pod, first match of ruling 19; `volcano_job` is TaskInfo.Job ("namespace/podgroup")."""
    if volcano_job:
        return GangKey(volcano_job)
    namespace = pod.metadata.namespace
    for find in _GANG_SOURCES:
        if found := find(pod):
            return GangKey(f"{namespace}/{found}")
    return ALONE


def group_of(key: GangKey) -> GangKey:
    """The pod group a gang is a replica of: in Kubernetes 1.35 one entry of a Workload may stand for several gangs."""
    parts = key.split("/")
    return GangKey("/".join(parts[:4])) if parts[1:2] == ["workload"] else key


def rank_of(pod: views.Pod) -> Rank:
    """The rank of a pod: the framework's index label, else the number its name ends with."""
    metadata = pod.metadata
    role = 0 if _role_word(metadata.labels).endswith(_FIRST_ROLES) else 1
    return Rank(role=role, index=_index(metadata), name=metadata.name)


def names_launcher(role: str) -> bool:
    """True where a role or task is named like the one that starts the others; it may compute as well."""
    return role.lower().endswith(_LAUNCHERS)


def _by_label(label: str, source: str, *suffixes: str) -> Callable[[views.Pod], str]:
    def find(pod: views.Pod) -> str:
        labels = pod.metadata.labels
        if not labels.get(label):
            return ""
        parts = [labels[label], *(labels.get(suffix, "") for suffix in suffixes)]
        return f"{source}/" + "/".join(part for part in parts if part)

    return find


def _volcano_group(pod: views.Pod) -> str:
    return pod.metadata.annotations.get(names.VOLCANO_GROUP, "")


def _plugins_group(pod: views.Pod) -> str:
    return pod.metadata.labels.get(names.PLUGINS_POD_GROUP, "")


def _in_tree_group(pod: views.Pod) -> str:
    group = pod.spec.scheduling_group
    return group.pod_group_name if group else ""


def _in_tree_workload(pod: views.Pod) -> str:
    """Kubernetes 1.35 names a pod group inside a Workload instead of a PodGroup of its own."""
    ref = pod.spec.workload_ref
    if ref is None or not ref.name:
        return ""
    return "/".join(part for part in ("workload", ref.name, ref.pod_group, ref.pod_group_replica_key) if part)


def _controller(pod: views.Pod) -> str:
    owner = pod.metadata.controller
    return f"{owner.kind}/{owner.name}/{owner.uid}" if owner else ""


_GANG_SOURCES: tuple[Callable[[views.Pod], str], ...] = (
    _volcano_group,
    _plugins_group,
    _in_tree_group,
    _in_tree_workload,
    _by_label(names.VOLCANO_JOB, "volcano-job"),
    _by_label(names.KUBEFLOW_JOB, "kubeflow-job", names.KUBEFLOW_OPERATOR),  # jobs of two kinds may share a name
    _by_label(names.MPI_OPERATOR_JOB, "mpi-job"),
    _by_label(names.MPI_ALPHA_JOB, "mpi-job"),
    _by_label(names.JOBSET, "jobset", names.JOBSET_JOB_INDEX),
    _by_label(names.LEADER_WORKER_SET, "leader-worker-set", names.LEADER_WORKER_GROUP_INDEX),
    _by_label(names.BATCH_JOB, "job"),
    _controller,
)

_ROLE_LABELS = (
    names.VOLCANO_TASK,
    names.KUBEFLOW_ROLE,
    names.KUBEFLOW_REPLICA_TYPE,
    names.MPI_OPERATOR_ROLE,
    names.MPI_ALPHA_ROLE,
    names.JOBSET_REPLICATED_JOB,
    names.RAY_NODE_TYPE,
)
_INDEX_LABELS = (
    names.VOLCANO_TASK_INDEX,
    names.KUBEFLOW_REPLICA_INDEX,
    names.LEADER_WORKER_INDEX,
    names.BATCH_INDEX,
)


def _role_word(labels: Mapping[str, str]) -> str:
    for label in _ROLE_LABELS:
        if word := labels.get(label):
            return word.lower()
    return "leader" if labels.get(names.LEADER_WORKER_INDEX) == "0" else ""


def _index(metadata: views.ObjectMeta) -> int:
    for label in _INDEX_LABELS:
        text = metadata.labels.get(label, "")
        if text.isascii() and text.isdigit():
            return int(text[:9])  # an index of more digits is a forgery; it must not cost big-integer time
    number = _TRAILING_NUMBER.search(metadata.name)
    return int(number.group(1)[-9:]) if number else _NO_INDEX
