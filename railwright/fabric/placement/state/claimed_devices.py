"""Adds the devices of ResourceSlices to what kubelet reports of a node, and those of claims to what pods request.

A resource that kubelet reports comes from a device plugin. It counts as kubelet reports it, also where a DeviceClass
maps its name, because kube-scheduler uses the device plugin then.

A device is counted once: by the claim that holds it, and before the allocation by the pod that requests it. The
scheduler writes the claims of a pod one by one, and then binds the pod; the watches may show this in any order.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, inventory
from railwright.fabric.placement.state import pod_info


class NodeAmounts(NamedTuple):
    """Resources of a node."""

    allocatable: resources.Amounts
    capacity: resources.Amounts


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

    def add_requests(self, claims: claim_index.PodKey, container_requests: resources.Amounts) -> resources.Amounts:
        """Return the requests of a pod with those of its claims."""
        claimed = self.inventory.compute_requests(claims)
        return Counter(container_requests) + Counter(claimed) if claimed else container_requests

    def count_used(self, node: str, names: Collection[str], pods: Iterable[pod_info.PodInfo]) -> resources.Amounts:
        """Return how many devices are in use: those that claims hold, and those that pods are still to be allocated."""
        used = Counter(self.inventory.count_devices(node).allocated)
        for pod in pods:
            used.update(self.count_unallocated(pod.claims, pod.container_requests, pod.requests, names))
        return {name: used[name] for name in names}

    def count_unallocated(
        self,
        pod: claim_index.PodKey,
        container_requests: resources.Amounts,
        requests: resources.Amounts,
        names: Collection[str],
    ) -> resources.Amounts:
        """Return the part of a pod's requests for devices that no claim holds for it yet."""
        requested = {name: requests[name] for name in names if name in requests}
        if not requested:  # most pods: daemons and services
            return requested
        allocated: Counter[str] = Counter()
        for claim in self.inventory.list_claims(pod):
            if claim.results:
                is_extended = claim.is_for_extended_resources
                allocated.update(container_requests if is_extended else self.inventory.count_requested(claim))
        return {name: left for name, amount in requested.items() if (left := amount - allocated[name]) > 0}

    def count_held(self, pod: claim_index.PodKey, node: str, names: Collection[str]) -> resources.Amounts:
        """Return the devices of a node that the claims of a pod hold."""
        held = self.inventory.count_held(self.inventory.list_claims(pod), node)
        return {name: held[name] for name in names if name in held}
