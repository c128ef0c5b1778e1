"""The extender's state: the cluster state from watches, and the assumed pods from schedulers.

A pod that is observed bound or deleted confirms its assumption: from then on the cluster state counts it.
"""

from collections.abc import Sequence

from railwright.fabric import hypernodes, names, views
from railwright.fabric.placement.state import assumed_pods, cluster_state, declared_sizes
from railwright.fabric.workloads import kinds


class State:
    """The cluster state and the assumed pods of this process."""

    def __init__(self, *, assume_seconds: float) -> None:
        self.cluster = cluster_state.ClusterState()
        self.assumed = assumed_pods.AssumedPods(assume_seconds=assume_seconds)
        self.pools: dict[tuple[str, str], str] = {}  # network (namespace, name) -> its resource


class Nodes:
    """Adds nodes to the cluster state."""

    def __init__(self, state: State) -> None:
        self._fleet = state.cluster

    def replace(self, objects: Sequence[views.Node]) -> None:
        """Replace all objects."""
        self._fleet.replace_nodes(objects)

    def upsert(self, obj: views.Node) -> None:
        """Add or update a node."""
        self._fleet.upsert_node(obj)

    def remove(self, obj: views.Node) -> None:
        """Remove a node."""
        self._fleet.remove_node(obj.metadata.name)


class Pods:
    """Adds pods to the cluster state, and confirms assumed pods that are bound or deleted."""

    def __init__(self, state: State) -> None:
        self._fleet = state.cluster
        self._ledger = state.assumed

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all objects."""
        before = set(self._fleet.pods)
        self._fleet.replace_pods(objects)
        for assumed_pod in list(self._ledger):
            pod = self._fleet.pods.get(assumed_pod.uid)
            if pod.node if pod else assumed_pod.uid in before:  # a pod not observed before may be newer than the list
                self._ledger.confirm(assumed_pod.uid)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod. Confirm its assumption once it is bound or ended."""
        self._fleet.upsert_pod(obj)
        pod = self._fleet.pods.get(obj.metadata.identity)
        if pod is None or pod.node:
            self._ledger.confirm(obj.metadata.identity)

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._fleet.remove_pod(obj.metadata.identity)
        self._ledger.confirm(obj.metadata.identity)


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


class Sizes:
    """Adds the gang sizes of one kind of object to the cluster state."""

    def __init__(self, state: State, kind: kinds.SizeKind) -> None:
        self._fleet, self._kind = state.cluster, kind

    def replace(self, objects: Sequence[declared_sizes.SizedObject]) -> None:
        """Replace all objects of this kind."""
        self._fleet.replace_sizes(self._kind, objects)

    def upsert(self, obj: declared_sizes.SizedObject) -> None:
        """Add or update an object."""
        self._fleet.upsert_size(self._kind, obj)

    def remove(self, obj: declared_sizes.SizedObject) -> None:
        """Remove an object."""
        self._fleet.remove_size(self._kind, obj)


class HyperNodes:
    """Adds HyperNodes to the cluster state."""

    def __init__(self, state: State) -> None:
        self._fleet = state.cluster

    def replace(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """Replace all objects."""
        self._fleet.replace_hyper_nodes(objects)

    def upsert(self, obj: hypernodes.HyperNode) -> None:
        """Add or update a HyperNode."""
        self._fleet.upsert_hyper_node(obj)

    def remove(self, obj: hypernodes.HyperNode) -> None:
        """Remove a HyperNode."""
        self._fleet.remove_hyper_node(obj.metadata.name)


class NodeTopologies:
    """Adds NodeResourceTopology reports to the cluster state."""

    def __init__(self, state: State) -> None:
        self._fleet = state.cluster

    def replace(self, objects: Sequence[views.NodeResourceTopology]) -> None:
        """Replace all objects."""
        self._fleet.replace_topologies(objects)

    def upsert(self, obj: views.NodeResourceTopology) -> None:
        """Add or update a report."""
        self._fleet.upsert_topology(obj)

    def remove(self, obj: views.NodeResourceTopology) -> None:
        """Remove a report."""
        self._fleet.remove_topology(obj.metadata.name)
