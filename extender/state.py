"""The extender's state: the cluster state from watches, and the assumed pods from schedulers.

A pod that is observed bound or deleted confirms its assumption: from then on the cluster state counts it.
"""

from collections.abc import Sequence

from railwright.fabric import names, views
from railwright.fabric.placement.state import assumed_pods, cluster_state


class State:
    """The cluster state and the assumed pods of this process."""

    def __init__(self, *, assume_seconds: float) -> None:
        self.cluster = cluster_state.ClusterState()
        self.assumed = assumed_pods.AssumedPods(assume_seconds=assume_seconds)
        self.pools: dict[tuple[str, str], str] = {}  # network (namespace, name) -> its resource


class Pods:
    """Adds pods to the cluster state, and confirms assumed pods that are bound or deleted."""

    def __init__(self, state: State) -> None:
        self._cluster = state.cluster
        self._assumed = state.assumed

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all objects."""
        before = set(self._cluster.pods)
        self._cluster.replace_pods(objects)
        for assumed_pod in list(self._assumed):
            pod = self._cluster.pods.get(assumed_pod.uid)
            if pod.node if pod else assumed_pod.uid in before:  # a pod not observed before may be newer than the list
                self._assumed.confirm(assumed_pod.uid)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod. Confirm its assumption once it is bound or ended."""
        self._cluster.upsert_pod(obj)
        pod = self._cluster.pods.get(obj.metadata.identity)
        if pod is None or pod.node:
            self._assumed.confirm(obj.metadata.identity)

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._cluster.remove_pod(obj.metadata.identity)
        self._assumed.confirm(obj.metadata.identity)


class Networks:
    """Stores the device pool of each network."""

    def __init__(self, state: State) -> None:
        self._pools = state.pools

    def replace(self, objects: Sequence[views.NetworkAttachmentDefinition]) -> None:
        """Replace all objects."""
        self._pools.clear()
        for network in objects:
            self.upsert(network)

    def upsert(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Add or update a network."""
        self.remove(obj)
        if resource := obj.metadata.annotations.get(names.NAD_RESOURCE_NAME):
            self._pools[obj.metadata.namespace, obj.metadata.name] = resource

    def remove(self, obj: views.NetworkAttachmentDefinition) -> None:
        """Remove a network."""
        self._pools.pop((obj.metadata.namespace, obj.metadata.name), None)
