"""Adds the devices of ResourceSlices to what kubelet reports of a node, and those of claims to what pods request.

A resource that kubelet reports comes from a device plugin. It counts as kubelet reports it, also where a DeviceClass
maps its name, because kube-scheduler uses the device plugin then.

A device is counted once: by the claim that holds it, and before the allocation by the pod that requests it. The
scheduler writes the claims of a pod one by one, and then binds the pod; the watches may show this in any order.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import claim_index, inventory
from railwright.fabric.placement.state import object_info

_MAX_AMOUNTS = 4096  # cached pairs of amounts: nodes of one type, and pods of one gang, have the same

_Pair = tuple[resources.FrozenAmounts, resources.FrozenAmounts]


class NodeAmounts(NamedTuple):
    """Resources of a node."""

    allocatable: resources.Amounts
    capacity: resources.Amounts


class ClaimedDevices:
    """The devices of slices and claims, beside those that kubelet reports."""

    def __init__(self) -> None:
        self.inventory = inventory.Inventory()
        self._names = bounded_cache.BoundedCache[_Pair, frozenset[str]](_MAX_AMOUNTS)
        self._sums = bounded_cache.BoundedCache[_Pair, resources.FrozenAmounts](_MAX_AMOUNTS)

    def list_names(self, node: str, reported: resources.Amounts) -> frozenset[str]:
        """Return the resources that a node has by slices only. `reported` is what kubelet reports as allocatable."""
        capacity, allocatable = self.inventory.count_devices(node).capacity, resources.freeze(reported)
        return self._names.find(
            (capacity, allocatable), lambda: frozenset(name for name in capacity if not allocatable.get(name))
        )

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

    def add_requests(
        self, claims: claim_index.PodKey, container_requests: resources.FrozenAmounts
    ) -> resources.FrozenAmounts:
        """Return the requests of a pod with those of its claims."""
        claimed = self.inventory.compute_requests(claims)
        if not claimed:
            return container_requests
        key = (container_requests, claimed)
        return self._sums.find(key, lambda: resources.freeze(Counter(container_requests) + Counter(claimed)))

    def count_used(
        self, node: str, names: AbstractSet[str], unallocated: Iterable[resources.Amounts]
    ) -> resources.Amounts:
        """Return how many devices are in use: those that claims hold, and those that pods are still to be allocated."""
        allocated = self.inventory.count_devices(node).allocated
        used = {name: allocated.get(name, 0) for name in names}
        for amounts in unallocated:
            for name, amount in amounts.items():
                used[name] += amount
        return used

    def list_unallocated(
        self, names: AbstractSet[str], pods: Iterable[object_info.PodInfo]
    ) -> Mapping[str, resources.Amounts]:
        """Return by UID the requests of pods for devices that no claim holds for them yet, for all pods with such."""
        by_uid = {
            pod.uid: self.count_unallocated(pod.claims, pod.container_requests, pod.requests, names)
            for pod in pods
            if not names.isdisjoint(pod.requests)  # most pods are daemons and services
        }
        return {uid: amounts for uid, amounts in by_uid.items() if amounts}

    def count_unallocated(
        self,
        pod: claim_index.PodKey,
        container_requests: resources.Amounts,
        requests: resources.Amounts,
        names: AbstractSet[str],
    ) -> resources.Amounts:
        """Return the part of a pod's requests for devices that no claim holds for it yet."""
        requested = {name: requests[name] for name in names if name in requests}
        if not requested:
            return requested
        for claim in self.inventory.claims.list_claims(pod):
            if claim.results:
                is_extended = claim.is_for_extended_resources
                allocated = container_requests if is_extended else self.inventory.count_requested(claim)
                requested = {name: amount - allocated.get(name, 0) for name, amount in requested.items()}
        return {name: amount for name, amount in requested.items() if amount > 0}

    def count_held(self, pod: claim_index.PodKey, node: str, names: AbstractSet[str]) -> resources.Amounts:
        """Return the devices of a node that the claims of a pod hold."""
        held = self.inventory.count_held(self.inventory.claims.list_claims(pod), node)
        return {name: held[name] for name in names if name in held}
