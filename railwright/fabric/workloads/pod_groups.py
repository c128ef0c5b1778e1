"""PodGroups of scheduler-plugins (coscheduling), and of Kubernetes' own gang scheduling, which is off by default."""

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label of scheduler-plugins


def read_min_member(group: views.PodGroup) -> frameworks.SizeReport:
    """Return the size that a PodGroup of Volcano or scheduler-plugins states."""
    return {frameworks.GangKey(group.metadata.full_name): group.spec.min_member}


def _read_min_count(group: views.PodGroup) -> frameworks.SizeReport:
    policy = group.spec.scheduling_policy
    return {frameworks.GangKey(group.metadata.full_name): policy.gang.min_count if policy and policy.gang else 0}


PLUGINS_POD_GROUPS = frameworks.SizeKind(
    "scheduling.x-k8s.io", "v1alpha1", "PodGroup", frameworks.SizeSource.PLUGINS, views.PodGroup, read_min_member
)
POD_GROUPS = frameworks.SizeKind(  # Kubernetes 1.37
    "scheduling.k8s.io", "v1beta1", "PodGroup", frameworks.SizeSource.IN_TREE, views.PodGroup, _read_min_count
)

FRAMEWORK = frameworks.Framework(
    pod_groups=(PLUGINS_POD_GROUPS, POD_GROUPS),
    group_label=POD_GROUP,
)
