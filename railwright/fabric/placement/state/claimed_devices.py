"""Adds the devices of ResourceSlices to what kubelet reports of a node, and those of claims to what pods request.

A resource that kubelet reports comes from a device plugin. It counts as kubelet reports it, also where a DeviceClass
maps its name, because kube-scheduler uses the device plugin then.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, inventory


class NodeAmounts(NamedTuple):
    """Resources of a node."""

    allocatable: resources.Amounts
    capacity: resources.Amounts


class Requester(NamedTuple):
    """A pod that is bound to a node: the key of its claims, and its requests."""

    claims: claim_index.PodKey
    requests: resources.Amounts


class ClaimedDevices:
    """The devices of slices and claims, beside those that kubelet reports."""

    def __init__(self) -> None:
        self.inventory = inventory.Inventory()

    def list_names(self, node: str, reported: resources.Amounts) -> Collection[str]:
        """Return the resources that a node has by slices only. `reported` is what kubelet reports as allocatable."""
        return [name for name in self.inventory.count_devices(node).capacity if not reported.get(name)]

    def complete(self, node: str, reported: NodeAmounts) -> NodeAmounts:
        """Return what a node has, with the devices of its slices."""
        names = self.list_names(node, reported.allocatable)
        if not names:
            return reported
        offered = self.inventory.count_devices(node)
        return NodeAmounts(
            allocatable={**reported.allocatable, **{name: offered.allocatable.get(name, 0) for name in names}},
            capacity={**reported.capacity, **{name: offered.capacity[name] for name in names}},
        )

    def count_used(self, node: str, names: Collection[str], pods: Iterable[Requester]) -> resources.Amounts:
        """Return how many devices are in use: those that claims hold, and those of pods without an allocation.

        The binding of a pod may be observed before the allocation of its claims.
        """
        allocated = self.inventory.count_devices(node).allocated
        early = [pod.requests for pod in pods if not self.inventory.has_allocation(pod.claims)]
        return {name: allocated.get(name, 0) + sum(requests.get(name, 0) for requests in early) for name in names}

    def add_requests(self, claims: claim_index.PodKey, container_requests: resources.Amounts) -> resources.Amounts:
        """Return the requests of a pod with those of its claims."""
        claimed = self.inventory.compute_requests(claims)
        return Counter(container_requests) + Counter(claimed) if claimed else container_requests
