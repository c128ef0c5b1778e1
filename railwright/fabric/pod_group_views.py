"""Views of Volcano's PodGroups and of those of Kubernetes, decoded by msgspec as those in `views`."""

from railwright.fabric import views


class GangPolicy(views.View, frozen=True):
    """policy.gang of the in-tree scheduling API."""

    min_count: int = 0


class SchedulingPolicy(views.View, frozen=True):
    """Scheduling policy of an in-tree pod group. Without `gang`, the pods are scheduled one by one."""

    gang: GangPolicy | None = None


class PodGroupSpec(views.View, frozen=True):
    """spec of a PodGroup: `min_member` in Volcano and scheduler-plugins, `scheduling_policy` in Kubernetes itself."""

    min_member: int = 0
    scheduling_policy: SchedulingPolicy | None = None


class PodGroup(views.View, frozen=True):
    """A PodGroup of any API group, which states the gang's minimum number of pods."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
