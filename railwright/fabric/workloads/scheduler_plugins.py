"""The coscheduling plugin of kubernetes-sigs/scheduler-plugins: its PodGroup."""

from railwright.fabric import pod_group_views, views
from railwright.fabric.workloads import frameworks, kinds, volcano

POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label

POD_GROUPS = kinds.SizeKind(
    "podgroups.scheduling.x-k8s.io",
    kinds.SizeSource.PLUGINS,
    volcano.read_min_member,
    path="/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    snapshot_kind="PodGroup.scheduling.x-k8s.io",
    view=pod_group_views.PodGroup,
)


def _find_group(pod: views.Pod) -> str:
    return pod.metadata.labels.get(POD_GROUP, "")


FRAMEWORK = frameworks.Framework(pod_groups=(POD_GROUPS,), find_groups=(_find_group,))
