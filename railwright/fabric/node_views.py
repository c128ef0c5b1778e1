"""Views of nodes and of NodeResourceTopologies, decoded by msgspec as those in `views`."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import views

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class Taint(views.View, frozen=True):
    """A taint of a node or a device."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def is_blocking(self, tolerations: Sequence[views.Toleration] = ()) -> bool:
        """True if the taint keeps away pods with these tolerations."""
        return self.effect in _BLOCKING_EFFECTS and not any(
            toleration.effect in ("", self.effect)
            and toleration.key in ("", self.key)
            and (  # other operators tolerate nothing; Gt and Lt are off by default
                toleration.operator == "Exists"
                or (toleration.operator in ("", "Equal") and toleration.value == self.value)
            )
            for toleration in tolerations
        )


class NodeSpec(views.View, frozen=True):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeCondition(views.View, frozen=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""


class NodeInfo(views.View, frozen=True):
    """status.nodeInfo of a node: the version of its kubelet."""

    kubelet_version: str = ""


class NodeStatus(views.View, frozen=True):
    """status of a node: its capacity, and the part of it that pods may use."""

    capacity_or_none: dict[str, views.RawQuantity] | None = msgspec.field(default=None, name="capacity")
    allocatable_or_none: dict[str, views.RawQuantity] | None = msgspec.field(default=None, name="allocatable")
    conditions: list[NodeCondition] | None = None
    node_info: NodeInfo = NodeInfo()

    @property
    def capacity(self) -> Mapping[str, views.RawQuantity]:
        """Capacity; empty if absent."""
        return self.capacity_or_none or views.EMPTY

    @property
    def allocatable(self) -> Mapping[str, views.RawQuantity]:
        """Allocatable resources; empty if absent."""
        return self.allocatable_or_none or views.EMPTY


class Node(views.View, frozen=True):
    """A node."""

    metadata: views.ObjectMeta = views.ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ZoneResource(views.View, frozen=True):
    """A resource of a zone of a NodeResourceTopology."""

    name: str = ""
    allocatable: views.RawQuantity = 0
    available: views.RawQuantity | None = None


class TopologyZone(views.View, frozen=True):
    """A zone of a NodeResourceTopology. Zones of type Node are NUMA nodes, named node-0, node-1, ..."""

    name: str = ""
    type: str = ""
    resources_or_none: list[ZoneResource] | None = msgspec.field(default=None, name="resources")

    @property
    def resources(self) -> list[ZoneResource]:
        """Resources of the zone; empty if absent."""
        return self.resources_or_none or []


class ManagedZones(views.View, frozen=True):
    """fieldsV1 of a managed field. The key `f:zones` exists if the field's manager wrote the zones."""

    zones: views.Source = msgspec.field(default=None, name="f:zones")


class ManagedField(views.View, frozen=True):
    """An entry of metadata.managedFields, with the time of its last write (RFC 3339, in seconds)."""

    time: str | None = None
    fields: ManagedZones | None = msgspec.field(default=None, name="fieldsV1")


class TopologyMeta(views.ObjectMeta, frozen=True):
    """metadata of a NodeResourceTopology, with the times of its writes."""

    managed_fields: list[ManagedField] | None = None


class NodeResourceTopology(views.View, frozen=True):
    """An exporter's report of a node's NUMA nodes (topology.node.k8s.io/v1alpha2). It has the name of the node."""

    metadata: TopologyMeta = TopologyMeta()
    zones_or_none: list[TopologyZone] | None = msgspec.field(default=None, name="zones")

    @property
    def zones(self) -> list[TopologyZone]:
        """Zones; empty if absent."""
        return self.zones_or_none or []

    @property
    def written_at(self) -> str:
        """Time of the last write of the zones, RFC 3339 in seconds; "" if no managed field states it."""
        fields = self.metadata.managed_fields or ()
        return max(
            (entry.time or "" for entry in fields if entry.fields and entry.fields.zones is not None), default=""
        )
