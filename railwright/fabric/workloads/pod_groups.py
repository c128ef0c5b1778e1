"""PodGroups of kubernetes-sigs/scheduler-plugins (coscheduling) and of Kubernetes' own gang scheduling.

Kubernetes has a Workload in 1.35 and a PodGroup since 1.36 (kubernetes PR 136976). Both are disabled by default.
"""

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label of scheduler-plugins
_GROUP = "scheduling.k8s.io"
_WORKLOAD = "workload"  # source in the gang's key


class NamedGroup(views.View, frozen=True):
    """An entry of spec.podGroups of a Workload."""

    name: str = ""
    policy: views.SchedulingPolicy | None = None


class WorkloadSpec(views.View, frozen=True):
    """spec of a Workload."""

    pod_groups: list[NamedGroup] | None = None


class Workload(frameworks.Workload, frozen=True):
    """A Workload of scheduling.k8s.io/v1alpha1 (Kubernetes 1.35)."""

    spec: WorkloadSpec = WorkloadSpec()


def find_pod_group(key: frameworks.GangKey) -> frameworks.GangKey:
    """Return the pod group of a gang: in Kubernetes 1.35, several gangs may be replicas of one entry of a Workload."""
    parts = key.split("/", 4)
    return frameworks.GangKey("/".join(parts[:4])) if parts[1:2] == [_WORKLOAD] else key


def read_min_member(group: views.PodGroup) -> frameworks.SizeReport:
    """Return the size that a PodGroup of Volcano or scheduler-plugins states."""
    return {_build_key(group): group.spec.min_member}


def _read_min_count(group: views.PodGroup) -> frameworks.SizeReport:
    return {_build_key(group): _get_min_count(group.spec.scheduling_policy)}


def _build_key(group: views.PodGroup) -> frameworks.GangKey:
    return frameworks.GangKey(group.metadata.full_name)


def _read_named_groups(workload: Workload) -> frameworks.SizeReport:
    """Return the sizes of the pod groups in a Workload of Kubernetes 1.35."""
    base = f"{workload.metadata.namespace}/{_WORKLOAD}/{workload.metadata.name}"
    groups = (workload.spec.pod_groups or ())[: frameworks.MAX_TEMPLATES]
    return {frameworks.GangKey(f"{base}/{group.name}"): _get_min_count(group.policy) for group in groups}


def _get_min_count(policy: views.SchedulingPolicy | None) -> int:
    return policy.gang.min_count if policy and policy.gang else 0


def _find_group(pod: views.Pod) -> str:
    group = pod.spec.scheduling_group
    return group.pod_group_name if group else ""


def _find_workload_group(pod: views.Pod) -> str:
    """Return the pod group inside a Workload, which Kubernetes 1.35 uses instead of a PodGroup object."""
    ref = pod.spec.workload_ref
    if ref is None or not ref.name:
        return ""
    return "/".join(part for part in (_WORKLOAD, ref.name, ref.pod_group, ref.pod_group_replica_key) if part)


_IN_TREE, _VIEW = frameworks.SizeSource.IN_TREE, views.PodGroup
PLUGINS_POD_GROUPS = frameworks.build_size_kind(
    "scheduling.x-k8s.io", "v1alpha1", "PodGroup", frameworks.SizeSource.PLUGINS, _VIEW, read_min_member
)
POD_GROUPS_ALPHA = frameworks.build_size_kind(  # Kubernetes 1.36
    _GROUP, "v1alpha2", "PodGroup", _IN_TREE, _VIEW, _read_min_count, watch=f"podgroups.v1alpha2.{_GROUP}"
)
POD_GROUPS = frameworks.build_size_kind(_GROUP, "v1beta1", "PodGroup", _IN_TREE, _VIEW, _read_min_count)  # 1.37
WORKLOADS = frameworks.build_size_kind(_GROUP, "v1alpha1", "Workload", _IN_TREE, Workload, _read_named_groups)  # 1.35

FRAMEWORK = frameworks.Framework(
    pod_groups=(PLUGINS_POD_GROUPS, POD_GROUPS_ALPHA, POD_GROUPS, WORKLOADS),
    group_labels=(POD_GROUP,),
    find_groups=(lambda pod: pod.metadata.labels.get(POD_GROUP, ""), _find_group, _find_workload_group),
)
