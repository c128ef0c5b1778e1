"""Views of the objects that say how many pods a gang has: one for every kind, for none is read for more than that.

Owns which of their fields exist for us. There may be tens of thousands of such objects and their owners write what
they like into a template, so little is decoded and nothing is believed to be text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric import views


class Identity(views.View, frozen=True):
    """metadata, as far as it tells objects apart."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Tags(views.View, frozen=True):
    """metadata of a template. Not every custom resource checks it: values may be anything."""

    labels: Any = None
    annotations: Any = None


class TemplateSpec(views.View, frozen=True):
    """spec of a pod template, as far as it names a gang."""

    scheduling_group: views.SchedulingGroup | None = None
    workload_ref: views.WorkloadReference | None = None


class Template(views.View, frozen=True):
    """A pod template, as far as it names a gang."""

    metadata: Tags | None = None
    spec: TemplateSpec | None = None

    def tags(self) -> Iterator[Mapping[str, str]]:
        """Labels, then annotations, without what is no text."""
        metadata = self.metadata or Tags()
        for given in (metadata.labels, metadata.annotations):
            written = given if isinstance(given, dict) else {}
            yield {key: value for key, value in written.items() if isinstance(value, str)}


class Replicas(views.View, frozen=True):
    """One task or replica type: so many pods of one template; 1 where no number is written."""

    replicas: int | None = None
    template: Template | None = None


ReplicaTypes = dict[str, Replicas | None] | None


class NamedGroup(views.View, frozen=True):
    """One of spec.podGroups of an in-tree Workload."""

    name: str = ""
    policy: views.SchedulingPolicy | None = None


class WorkloadSpec(views.View, frozen=True):
    """How many pods a workload wants at once, in the words of every kind we count."""

    parallelism: int | None = None  # batch Job
    completions: int | None = None
    replicas: int | None = None  # StatefulSet, ReplicaSet
    template: Template | None = None  # those three
    tasks: list[Replicas] | None = None  # Volcano Job
    pytorch_replica_specs: ReplicaTypes = None  # Kubeflow's jobs, v1 and MPIJob v2beta1
    tf_replica_specs: ReplicaTypes = None
    xgb_replica_specs: ReplicaTypes = None
    mpi_replica_specs: ReplicaTypes = None
    paddle_replica_specs: ReplicaTypes = None
    jax_replica_specs: ReplicaTypes = None
    pod_groups: list[NamedGroup] | None = None  # Workload of scheduling.k8s.io/v1alpha1 (Kubernetes 1.35)


class WorkloadStatus(views.View, frozen=True):
    """status of a batch Job: pods that have ended well are not made again."""

    succeeded: int | None = None


class Workload(views.View, frozen=True):
    """Any object that owns pods, or groups of them."""

    metadata: Identity = Identity()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus | None = None
