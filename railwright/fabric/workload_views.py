"""Views of the workload objects that state the size of a gang. One view covers all kinds.

There may be tens of thousands of these objects, so only the needed fields are decoded. Some custom resources do not
validate their templates, so labels and annotations may have values that are not text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric import views


class Identity(views.View, frozen=True):
    """The fields of metadata that identify an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Tags(views.View, frozen=True):
    """metadata of a template. Values may have any type, because not every custom resource validates them."""

    labels: Any = None
    annotations: Any = None


class TemplateSpec(views.View, frozen=True):
    """The fields of a pod template's spec that name a gang."""

    scheduling_group: views.SchedulingGroup | None = None
    workload_ref: views.WorkloadReference | None = None


class Template(views.View, frozen=True):
    """The fields of a pod template that name a gang."""

    metadata: Tags | None = None
    spec: TemplateSpec | None = None

    def tags(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels, then the annotations, without values that are not text."""
        metadata = self.metadata or Tags()
        for field in (metadata.labels, metadata.annotations):
            entries = field if isinstance(field, dict) else {}
            yield {key: value for key, value in entries.items() if isinstance(value, str)}


class Replicas(views.View, frozen=True):
    """A task or replica type: a number of pods (default 1) from a template."""

    replicas: int | None = None
    template: Template | None = None


ReplicaTypes = dict[str, Replicas | None] | None


class NamedGroup(views.View, frozen=True):
    """An entry of spec.podGroups of an in-tree Workload."""

    name: str = ""
    policy: views.SchedulingPolicy | None = None


class WorkloadSpec(views.View, frozen=True):
    """The fields that state how many pods a workload runs at once, of all kinds."""

    parallelism: int | None = None  # batch Job
    completions: int | None = None
    replicas: int | None = None  # StatefulSet, ReplicaSet
    template: Template | None = None  # of these three kinds
    tasks: list[Replicas] | None = None  # Volcano Job
    pytorch_replica_specs: ReplicaTypes = None  # Kubeflow's jobs, v1 and MPIJob v2beta1
    tf_replica_specs: ReplicaTypes = None
    xgb_replica_specs: ReplicaTypes = None
    mpi_replica_specs: ReplicaTypes = None
    paddle_replica_specs: ReplicaTypes = None
    jax_replica_specs: ReplicaTypes = None
    pod_groups: list[NamedGroup] | None = None  # Workload of scheduling.k8s.io/v1alpha1 (Kubernetes 1.35)


class WorkloadStatus(views.View, frozen=True):
    """status of a batch Job. Succeeded pods are not created again."""

    succeeded: int | None = None


class Workload(views.View, frozen=True):
    """An object that owns pods or groups of pods."""

    metadata: Identity = Identity()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus | None = None
