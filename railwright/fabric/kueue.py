"""Kueue's queues: which ResourceFlavors give a job its resources, and which labels of nodes their topologies have.

A job names a LocalQueue, which names a ClusterQueue. The ClusterQueue has groups of resources, each with flavors, of
which Kueue chooses one for a pod set. A flavor names its nodes by their labels, and a Topology. Also reads Kueue's
Workloads, and the pods that they describe.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from railwright.fabric import views
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, registry

Key = tuple[str, str]  # namespace, name


class LocalQueueSpec(views.View, frozen=True):
    """spec of a LocalQueue."""

    cluster_queue: str = ""


class LocalQueue(views.View, frozen=True):
    """The queue of a namespace that jobs name."""

    metadata: views.Identity = views.Identity()
    spec: LocalQueueSpec = LocalQueueSpec()


class FlavorQuotas(views.View, frozen=True):
    """The entry of a flavor in a group of resources. Its quotas are not read."""

    name: str = ""


class ResourceGroup(views.View, frozen=True):
    """Resources that a pod set gets from one of the flavors."""

    covered_resources: list[str] | None = None
    flavors: list[FlavorQuotas] | None = None


class ClusterQueueSpec(views.View, frozen=True):
    """spec of a ClusterQueue."""

    resource_groups: list[ResourceGroup] | None = None


class ClusterQueue(views.View, frozen=True):
    """A queue with quotas."""

    metadata: views.Identity = views.Identity()
    spec: ClusterQueueSpec = ClusterQueueSpec()


class ResourceFlavorSpec(views.View, frozen=True):
    """spec of a ResourceFlavor: the labels of its nodes, and the tolerations that its pods get."""

    node_labels: dict[str, str] | None = None
    tolerations: list[views.Toleration] | None = None
    topology_name: str = ""


class ResourceFlavor(views.View, frozen=True):
    """A kind of nodes."""

    metadata: views.Identity = views.Identity()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(views.View, frozen=True):
    """A level of domains."""

    node_label: str = ""


class TopologySpec(views.View, frozen=True):
    """spec of a Topology, its widest level first."""

    levels: list[TopologyLevel] | None = None


class Topology(views.View, frozen=True):
    """The levels of domains of the nodes of a flavor."""

    metadata: views.Identity = views.Identity()
    spec: TopologySpec = TopologySpec()

    def list_labels(self) -> tuple[str, ...]:
        """Return the labels of its levels."""
        return tuple([level.node_label for level in self.spec.levels or ()])


class Flavor(msgspec.Struct, frozen=True):
    """A flavor with the labels of the levels of its topology."""

    spec: ResourceFlavorSpec
    labels: tuple[str, ...]


# Requested by any pod: a LimitRange or a RuntimeClass may add them after admission.
_ADDED = frozenset({"cpu", "memory", "ephemeral-storage"})


class Queues(msgspec.Struct, frozen=True):
    """Kueue's objects by name. None: they are not known yet."""

    local_queues: Mapping[Key, str] | None = None  # name of the ClusterQueue
    cluster_queues: Mapping[str, ClusterQueueSpec] | None = None
    flavors: Mapping[str, ResourceFlavorSpec] | None = None
    topologies: Mapping[str, tuple[str, ...]] | None = None  # labels of levels

    def find_flavors(self, namespace: str, name: str, requested: Collection[str]) -> tuple[Flavor, ...]:
        """Return the flavors from which Kueue may give pods of a LocalQueue the requested resources.

        Raises ReasonError unless a topology in the pods' annotations can be satisfied by each of them: Kueue rejects a
        flavor without one, and two flavors with one (pkg/scheduler/flavorassigner/tas_flavorassigner.go).
        """
        queue = (self.local_queues or {}).get((namespace, name))
        if queue is None:
            raise _make_unknown("LocalQueue", f"{namespace}/{name}")
        spec = (self.cluster_queues or {}).get(queue)
        if spec is None:
            raise _make_unknown("ClusterQueue", queue)
        needed = _ADDED.union(requested)
        groups = [group for group in spec.resource_groups or () if not needed.isdisjoint(group.covered_resources or ())]
        if len(groups) != 1:
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_QUEUE_GROUPS, queue=queue, groups=len(groups))
        return tuple([self._find_flavor(entry.name, queue) for entry in groups[0].flavors or ()])

    def _find_flavor(self, name: str, queue: str) -> Flavor:
        spec = (self.flavors or {}).get(name)
        if spec is None:
            raise _make_unknown("ResourceFlavor", name)
        if not spec.topology_name:
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_NOT_IN_FLAVOR, flavor=name, queue=queue)
        labels = (self.topologies or {}).get(spec.topology_name)
        if labels is None:
            raise _make_unknown("Topology", spec.topology_name)
        return Flavor(spec, labels)


def _make_unknown(kind: str, name: str) -> reason.ReasonError:
    return reason.ReasonError(AdmissionCode.TOPOLOGY_QUEUE_UNKNOWN, kind=kind, name=name)


# --- the request of a job for quota -----------------------------------------------------------------------

GROUP = "kueue.x-k8s.io"
VERSION = f"{GROUP}/v1beta2"  # from Kueue 0.15 on
_FINISHED = "Finished"  # condition of a Workload
_MAX_POD_SETS = 18  # of a Workload (apis/kueue/v1beta2/workload_types.go)


class PodSet(views.View, frozen=True):
    """Equal pods of a Workload. `name` is that of the replicated job or replica type, in lower case."""

    name: str = ""
    template: views.Pod = views.Pod()


class WorkloadSpec(views.View, frozen=True):
    """spec of a Workload."""

    pod_sets: list[PodSet] | None = None


class WorkloadStatus(views.View, frozen=True):
    """status of a Workload."""

    conditions: list[views.PodCondition] | None = None


class Workload(views.View, frozen=True):
    """The request of a job for quota. Kueue writes it when the job is created, long before its pods."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


def list_pods(workload: Workload) -> Iterator[views.Pod]:
    """Yield a pod for each pod set with claims, as admission of the job's template read it, in the Workload's name.

    A finished Workload has none.
    """
    if any(
        condition.type == _FINISHED and condition.status == "True" for condition in workload.status.conditions or ()
    ):
        return
    for pod_set in (workload.spec.pod_sets or ())[:_MAX_POD_SETS]:
        if pod_set.template.spec.resource_claims:
            yield _build_pod(workload, pod_set)


def _build_pod(workload: Workload, pod_set: PodSet) -> views.Pod:
    template, owner = pod_set.template.metadata, workload.metadata
    metadata = msgspec.structs.replace(
        template,
        name=owner.name,
        namespace=owner.namespace,
        uid=owner.uid,
        labels_or_none={**template.labels, **_build_labels(owner.controller, pod_set.name)},
    )
    return views.Pod(api_version=VERSION, kind="Workload", metadata=metadata, spec=pod_set.template.spec)


def _build_labels(owner: views.OwnerReference | None, part: str) -> frameworks.Labels:
    """Return the labels that the controller of a job adds to the pods of one of its templates."""
    group, _, version = (owner.api_version if owner else "").rpartition("/")
    kind = registry.find_injected(group, version, owner.kind) if owner else None
    if owner is None or kind is None:
        return {}
    spec = kind.spec_view() if kind.spec_view is not None else None
    context = frameworks.TemplateContext(owner.name, part, 0, spec)
    return kind.templates[-1].build_metadata(context).labels
