"""Kueue's queues: which ResourceFlavors give a job its resources, and which labels of nodes their topologies have.

A job names a LocalQueue, which names a ClusterQueue. The ClusterQueue has groups of resources, each with flavors, of
which Kueue chooses one for a pod set. A flavor names its nodes by their labels, and a Topology.
"""

from collections.abc import Collection, Mapping

import msgspec

from railwright.fabric import views
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

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

    def find_flavors(self, namespace: str, name: str, requested: Collection[str]) -> tuple[Flavor, ...] | reason.Reason:
        """Return the flavors from which Kueue may give pods of a LocalQueue the requested resources.

        Returns a reason unless a topology in the pods' annotations can be satisfied by each of them: Kueue rejects a
        flavor without one, and two flavors with one (pkg/scheduler/flavorassigner/tas_flavorassigner.go).
        """
        queue = (self.local_queues or {}).get((namespace, name))
        if queue is None:
            return _make_unknown("LocalQueue", f"{namespace}/{name}")
        spec = (self.cluster_queues or {}).get(queue)
        if spec is None:
            return _make_unknown("ClusterQueue", queue)
        needed = _ADDED.union(requested)
        groups = [group for group in spec.resource_groups or () if not needed.isdisjoint(group.covered_resources or ())]
        if len(groups) != 1:
            return reason.make(AdmissionCode.TOPOLOGY_QUEUE_GROUPS, queue=queue, groups=len(groups))
        flavors: list[Flavor] = []
        for entry in groups[0].flavors or ():
            flavor = self._find_flavor(entry.name, queue)
            if isinstance(flavor, reason.Reason):
                return flavor
            flavors.append(flavor)
        return tuple(flavors)

    def _find_flavor(self, name: str, queue: str) -> Flavor | reason.Reason:
        spec = (self.flavors or {}).get(name)
        if spec is None:
            return _make_unknown("ResourceFlavor", name)
        if not spec.topology_name:
            return reason.make(AdmissionCode.TOPOLOGY_NOT_IN_FLAVOR, flavor=name, queue=queue)
        labels = (self.topologies or {}).get(spec.topology_name)
        return _make_unknown("Topology", spec.topology_name) if labels is None else Flavor(spec, labels)


def _make_unknown(kind: str, name: str) -> reason.Reason:
    return reason.make(AdmissionCode.TOPOLOGY_QUEUE_UNKNOWN, kind=kind, name=name)
