"""PodGroups of scheduler-plugins (coscheduling)."""

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label of scheduler-plugins


def read_min_member(group: views.PodGroup) -> frameworks.SizeReport:
    """Return the size that a PodGroup states."""
    return {frameworks.GangKey(group.metadata.full_name): group.spec.min_member}


POD_GROUPS = frameworks.SizeKind(
    "scheduling.x-k8s.io", "v1alpha1", "PodGroup", frameworks.SizeSource.PLUGINS, views.PodGroup, read_min_member
)

FRAMEWORK = frameworks.Framework(
    pod_groups=(POD_GROUPS,),
    group_label=POD_GROUP,
)
