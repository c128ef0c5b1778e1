"""Finds the gang of a pod and the pod's rank in it, from the labels of each framework (docs/interface.md 7.1).

The size of a gang is computed in `placement.sizes`, because it needs other objects than the pod.
"""

import re
from collections.abc import Callable, Mapping
from typing import NewType

import msgspec

from railwright.fabric import names, views

GangKey = NewType("GangKey", str)
"""namespace/PodGroup, or namespace/source/name for gangs without a PodGroup; "" for a single pod."""

ALONE = GangKey("")

_TRAILING_NUMBER = re.compile(r"(\d+)$")
_NO_INDEX = 1 << 30  # pods without an index come after all others
_LAUNCHERS = ("master", "launcher", "driver")  # suffixes of a role's name, such as Volcano's mpimaster
_FIRST_ROLES = (*_LAUNCHERS, "leader", "chief", "head")


class Rank(msgspec.Struct, gc=False, frozen=True, order=True):
    """Order of a pod in its gang: launchers and masters first, then the index, then the name."""

    role: int  # 0 for launchers, masters and leaders, 1 for all others
    index: int
    name: str


def gang_of(pod: views.Pod, volcano_job: str = "") -> GangKey:
    """Return the gang of a pod: the first match of docs/interface.md 7.1.

    `volcano_job` is TaskInfo.Job ("namespace/podgroup").
    """
    if volcano_job:
        return GangKey(volcano_job)
    namespace = pod.metadata.namespace
    for find_gang in _GANG_SOURCES:
        if gang := find_gang(pod):
            return GangKey(f"{namespace}/{gang}")
    return ALONE


def group_of(key: GangKey) -> GangKey:
    """Return the pod group of a gang: in Kubernetes 1.35, several gangs may be replicas of one entry of a Workload."""
    parts = key.split("/")
    return GangKey("/".join(parts[:4])) if parts[1:2] == ["workload"] else key


def rank_of(pod: views.Pod) -> Rank:
    """Return the rank of a pod, from its framework's index label or else the number at the end of its name."""
    metadata = pod.metadata
    role = 0 if _find_role(metadata.labels).endswith(_FIRST_ROLES) else 1
    return Rank(role=role, index=_find_index(metadata), name=metadata.name)


def names_launcher(role: str) -> bool:
    """True if the name of a role or task is that of a launcher, which may also run a rank."""
    return role.lower().endswith(_LAUNCHERS)


def _build_label_source(label: str, source: str, *suffixes: str) -> Callable[[views.Pod], str]:
    def find(pod: views.Pod) -> str:
        labels = pod.metadata.labels
        if not labels.get(label):
            return ""
        parts = [labels[label], *(labels.get(suffix, "") for suffix in suffixes)]
        return f"{source}/" + "/".join(part for part in parts if part)

    return find


def _get_volcano_group(pod: views.Pod) -> str:
    return pod.metadata.annotations.get(names.VOLCANO_GROUP, "")


def _get_plugins_group(pod: views.Pod) -> str:
    return pod.metadata.labels.get(names.PLUGINS_POD_GROUP, "")


def _get_in_tree_group(pod: views.Pod) -> str:
    group = pod.spec.scheduling_group
    return group.pod_group_name if group else ""


def _get_in_tree_workload(pod: views.Pod) -> str:
    """Return the pod group inside a Workload, which Kubernetes 1.35 uses instead of a PodGroup object."""
    ref = pod.spec.workload_ref
    if ref is None or not ref.name:
        return ""
    return "/".join(part for part in ("workload", ref.name, ref.pod_group, ref.pod_group_replica_key) if part)


def _get_controller(pod: views.Pod) -> str:
    owner = pod.metadata.controller
    return f"{owner.kind}/{owner.name}/{owner.uid}" if owner else ""


_GANG_SOURCES: tuple[Callable[[views.Pod], str], ...] = (
    _get_volcano_group,
    _get_plugins_group,
    _get_in_tree_group,
    _get_in_tree_workload,
    _build_label_source(names.VOLCANO_JOB, "volcano-job"),
    _build_label_source(
        names.KUBEFLOW_JOB, "kubeflow-job", names.KUBEFLOW_OPERATOR
    ),  # jobs of different kinds may share a name
    _build_label_source(names.MPI_OPERATOR_JOB, "mpi-job"),
    _build_label_source(names.MPI_ALPHA_JOB, "mpi-job"),
    _build_label_source(names.JOBSET, "jobset", names.JOBSET_JOB_INDEX),
    _build_label_source(names.LEADER_WORKER_SET, "leader-worker-set", names.LEADER_WORKER_GROUP_INDEX),
    _build_label_source(names.BATCH_JOB, "job"),
    _get_controller,
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


def _find_role(labels: Mapping[str, str]) -> str:
    for label in _ROLE_LABELS:
        if role := labels.get(label):
            return role.lower()
    return "leader" if labels.get(names.LEADER_WORKER_INDEX) == "0" else ""


def _find_index(metadata: views.ObjectMeta) -> int:
    for label in _INDEX_LABELS:
        text = metadata.labels.get(label, "")
        if text.isascii() and text.isdigit():
            return int(text[:9])  # no framework writes longer ones; converting a forged one could be slow
    number = _TRAILING_NUMBER.search(metadata.name)
    return int(number.group(1)[-9:]) if number else _NO_INDEX
