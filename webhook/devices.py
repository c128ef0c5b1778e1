"""The webhook's cache of Dynamic Resource Allocation: slices, claims and device classes."""

from collections.abc import Callable, Sequence
from typing import Any

from railwright.cluster import sinks
from railwright.fabric import node_views, quantity, views
from railwright.fabric.claims import (
    allocation,
    claim_index,
    inventory,
    node_devices,
    objects,
    resource_names,
)


class Devices:
    """Holds what slices offer and claims hold. Used by one event loop.

    `extended` are the extended resources that a DeviceClass maps; `version` grows when they change.
    """

    def __init__(self) -> None:
        self.extended: frozenset[str] = frozenset()
        self.version = 0
        self._inventory = inventory.Inventory()
        self._changes = sinks.Changes()
        self.share_slice = self._inventory.offered.share
        known = self._inventory
        self.slices = self._build_sink(known.slice_sink)
        self.claims = self._build_sink(known.claim_sink)
        self.taint_rules = self._build_sink(known.taint_rule_sink)
        self.classes = self._build_sink(known.class_sink)

    def list_nodes(self) -> Sequence[str]:
        """Return the nodes with devices."""
        return list(self._inventory.offered.ids_by_node)

    def name_resources(self, named: Sequence[resource_names.ClaimResource], pair_attribute: str) -> None:
        """Count devices by these resources of the policy from now on, and pairs by this attribute."""
        self._inventory.replace_claim_resources(named)
        self._inventory.learn_attributes((pair_attribute,))

    def count_free_rails(self, node: str, names: node_devices.DeviceNames) -> node_devices.FreeRails:
        """Return the devices of a node that pods can get: neither held by a claim nor tainted."""
        return self._inventory.count_free_rails(node, names)

    def list_unallocated(self, pod: views.Pod, node: node_views.Node | None) -> tuple[str, ...]:
        """Return the claims of a pod that is bound to `node` whose allocation is not known yet."""
        has_extended = bool(self.extended) and self._requests_extended(pod, node)
        if not pod.spec.resource_claims and not has_extended:
            return ()
        return allocation.list_unallocated(pod, self._list_claims(pod), has_extended=has_extended)

    def list_allocated(self, pod: views.Pod) -> tuple[allocation.AllocatedDevice, ...]:
        """Return the devices that the claims of a pod hold."""
        return allocation.list_devices(
            pod,
            self._list_claims(pod),
            self._inventory.offered,
            self._inventory.names.names_by_class,
        )

    def is_complete(self, pod: views.Pod, node: node_views.Node | None) -> bool:
        """True if the allocations of all claims of a pod are known, and the slices of the devices."""
        return not self.list_unallocated(pod, node) and all(
            device.offered is not None for device in self.list_allocated(pod)
        )

    async def wait(self, pod: views.Pod, node: node_views.Node | None, seconds: float) -> None:
        """Wait until the devices of a pod are known, at most for this time."""
        await self._changes.wait_until(lambda: self.is_complete(pod, node), seconds)

    def _list_claims(self, pod: views.Pod) -> Sequence[objects.ResourceClaim]:
        return self._inventory.claims.list_claims(claim_index.identify_claims(pod))

    def _requests_extended(self, pod: views.Pod, node: node_views.Node | None) -> bool:
        """True if the pod requests an extended resource of a DeviceClass. A device plugin on the node precedes it."""
        reported = node.status.allocatable if node is not None else {}
        return any(
            name in self.extended and quantity.is_positive(amount) and not quantity.is_positive(reported.get(name, 0))
            for container in (*pod.spec.containers, *(pod.spec.init_containers or ()))
            for name, amount in container.requests.items()
        )

    def _build_sink(self, sink: sinks.Sink[Any]) -> sinks.Functions[Any]:
        return sinks.Functions(*map(self._announce, (sink.replace, sink.upsert, sink.remove)))

    def _announce(self, apply: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return a function that applies a change, finds the extended resources of classes, and wakes all waiters."""

        def change(changed: Any) -> None:
            names_by_class = self._inventory.names.names_by_class
            apply(changed)
            if self._inventory.names.names_by_class is not names_by_class:
                extended = frozenset(name for names in self._inventory.names.names_by_class.values() for name in names)
                self.version += extended != self.extended
                self.extended = extended
            self._changes.announce()

        return change
