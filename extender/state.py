"""What this server knows: the fleet from the watches, the ledger from the schedulers, and their meeting point.

A pod seen bound, or gone, confirms its ledger entry: from then on the fleet counts it.
"""

from collections.abc import Sequence

from railwright.fabric import hypernodes, names, views
from railwright.fabric.placement import fleet, ledger, sizes


class State:
    """The fleet and the ledger of this process."""

    def __init__(self, *, assume_seconds: float) -> None:
        self.fleet = fleet.Fleet()
        self.ledger = ledger.Ledger(assume_seconds=assume_seconds)
        self.pools: dict[tuple[str, str], str] = {}  # network (namespace, name) -> the resource it draws on


class Nodes:
    """Feeds nodes into the fleet."""

    def __init__(self, state: State) -> None:
        self._fleet = state.fleet

    def replace(self, objects: Sequence[views.Node]) -> None:
        """The full list."""
        self._fleet.replace_nodes(objects)

    def upsert(self, obj: views.Node) -> None:
        """One node appeared or changed."""
        self._fleet.upsert_node(obj)

    def remove(self, obj: views.Node) -> None:
        """One node is gone."""
        self._fleet.remove_node(obj.metadata.name)


class Pods:
    """Feeds pods into the fleet and confirms the ledger by them."""

    def __init__(self, state: State) -> None:
        self._fleet = state.fleet
        self._ledger = state.ledger

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """The full list."""
        before = set(self._fleet.pods)
        self._fleet.replace_pods(objects)
        for entry in list(self._ledger):
            pod = self._fleet.pods.get(entry.uid)
            if pod.node if pod else entry.uid in before:  # a pod never seen may just be newer than the list
                self._ledger.confirm(entry.uid)

    def upsert(self, obj: views.Pod) -> None:
        """One pod appeared, changed, was bound or ended."""
        self._fleet.upsert_pod(obj)
        pod = self._fleet.pods.get(obj.metadata.identity)
        if pod is None or pod.node:
            self._ledger.confirm(obj.metadata.identity)

    def remove(self, obj: views.Pod) -> None:
        """One pod is gone."""
        self._fleet.remove_pod(obj.metadata.identity)
        self._ledger.confirm(obj.metadata.identity)


class Networks:
    """Feeds the device pools that networks draw on."""

    def __init__(self, state: State) -> None:
        self._pools = state.pools

    def replace(self, objects: Sequence[views.NetworkAttachmentDefinition]) -> None:
        """The full list."""
        self._pools.clear()
        for network in objects:
            self.upsert(network)

    def upsert(self, obj: views.NetworkAttachmentDefinition) -> None:
        """One network appeared or changed."""
        self.remove(obj)
        if resource := obj.metadata.annotations.get(names.NAD_RESOURCE_NAME):
            self._pools[obj.metadata.namespace, obj.metadata.name] = resource

    def remove(self, obj: views.NetworkAttachmentDefinition) -> None:
        """One network is gone."""
        self._pools.pop((obj.metadata.namespace, obj.metadata.name), None)


class Sizes:
    """Feeds one kind of object that tells how many pods a gang has."""

    def __init__(self, state: State, kind: sizes.Kind) -> None:
        self._fleet, self._kind = state.fleet, kind

    def replace(self, objects: Sequence[sizes.Sized]) -> None:
        """The full list of this kind."""
        self._fleet.replace_sizes(self._kind, objects)

    def upsert(self, obj: sizes.Sized) -> None:
        """One object appeared or changed."""
        self._fleet.upsert_size(self._kind, obj)

    def remove(self, obj: sizes.Sized) -> None:
        """One object is gone."""
        self._fleet.remove_size(self._kind, obj)


class HyperNodes:
    """Feeds HyperNodes into the fleet."""

    def __init__(self, state: State) -> None:
        self._fleet = state.fleet

    def replace(self, objects: Sequence[hypernodes.HyperNode]) -> None:
        """The full list."""
        self._fleet.replace_hyper_nodes(objects)

    def upsert(self, obj: hypernodes.HyperNode) -> None:
        """One HyperNode appeared or changed."""
        self._fleet.upsert_hyper_node(obj)

    def remove(self, obj: hypernodes.HyperNode) -> None:
        """One HyperNode is gone."""
        self._fleet.remove_hyper_node(obj.metadata.name)


class NodeTopologies:
    """Feeds what kubelets report of their NUMA nodes into the fleet."""

    def __init__(self, state: State) -> None:
        self._fleet = state.fleet

    def replace(self, objects: Sequence[views.NodeResourceTopology]) -> None:
        """The full list."""
        self._fleet.replace_topologies(objects)

    def upsert(self, obj: views.NodeResourceTopology) -> None:
        """One appeared or changed."""
        self._fleet.upsert_topology(obj)

    def remove(self, obj: views.NodeResourceTopology) -> None:
        """One is gone."""
        self._fleet.remove_topology(obj.metadata.name)
