"""Kubernetes' own gang scheduling: a Workload in 1.35, a PodGroup since 1.36 (kubernetes PR 136976).

Both are disabled by default.
"""

from railwright.fabric import pod_group_views, views
from railwright.fabric.workloads import frameworks, kinds, objects

_GROUP = "scheduling.k8s.io"
_WORKLOAD = "workload"  # source in the gang's key


class NamedGroup(views.View, frozen=True):
    """An entry of spec.podGroups of a Workload."""

    name: str = ""
    policy: pod_group_views.SchedulingPolicy | None = None


class WorkloadSpec(views.View, frozen=True):
    """spec of a Workload."""

    pod_groups: list[NamedGroup] | None = None


class Workload(objects.Workload, frozen=True):
    """A Workload of scheduling.k8s.io/v1alpha1 (Kubernetes 1.35)."""

    spec: WorkloadSpec = WorkloadSpec()


def find_pod_group(key: kinds.GangKey) -> kinds.GangKey:
    """Return the pod group of a gang: in Kubernetes 1.35, several gangs may be replicas of one entry of a Workload."""
    parts = key.split("/")
    return kinds.GangKey("/".join(parts[:4])) if parts[1:2] == [_WORKLOAD] else key


def _read_min_count(group: pod_group_views.PodGroup) -> kinds.SizeReport:
    key = kinds.GangKey(f"{group.metadata.namespace}/{group.metadata.name}")
    return {key: _get_min_count(group.spec.scheduling_policy)}


def _read_named_groups(workload: Workload) -> kinds.SizeReport:
    """Return the sizes of the pod groups in a Workload of Kubernetes 1.35."""
    base = f"{workload.metadata.namespace}/{_WORKLOAD}/{workload.metadata.name}"
    groups = workload.spec.pod_groups or ()
    return {kinds.GangKey(f"{base}/{group.name}"): _get_min_count(group.policy) for group in groups}


def _get_min_count(policy: pod_group_views.SchedulingPolicy | None) -> int:
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


POD_GROUPS = kinds.SizeKind(  # Kubernetes 1.37
    f"podgroups.{_GROUP}",
    kinds.SizeSource.IN_TREE,
    _read_min_count,
    path=f"/apis/{_GROUP}/v1beta1/podgroups",
    snapshot_kind=f"PodGroup.{_GROUP}",
    view=pod_group_views.PodGroup,
)
POD_GROUPS_ALPHA = kinds.SizeKind(  # Kubernetes 1.36
    f"podgroups.v1alpha2.{_GROUP}",
    kinds.SizeSource.IN_TREE,
    _read_min_count,
    path=f"/apis/{_GROUP}/v1alpha2/podgroups",
    snapshot_kind=f"PodGroup.{_GROUP}",
    view=pod_group_views.PodGroup,
)
WORKLOADS = kinds.SizeKind(  # Kubernetes 1.35
    f"workloads.{_GROUP}",
    kinds.SizeSource.IN_TREE,
    _read_named_groups,
    path=f"/apis/{_GROUP}/v1alpha1/workloads",
    snapshot_kind=f"Workload.{_GROUP}",
    view=Workload,
)

FRAMEWORK = frameworks.Framework(
    pod_groups=(POD_GROUPS_ALPHA, POD_GROUPS, WORKLOADS), find_groups=(_find_group, _find_workload_group)
)
