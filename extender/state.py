"""The extender's state: the cluster state from watches, and the assumed pods from schedulers.

An assumed pod that is observed bound or deleted is confirmed: from then on the cluster state counts it.
`list_watches` has the kinds that placement needs, watched or read from a snapshot, each with its sink.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from railwright.cluster import resources, sinks, sources
from railwright.fabric import names, scheduling_views, views
from railwright.fabric.claims import inventory
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import claimed_rails, model
from railwright.fabric.workloads import membership


class State:
    """The cluster state and the assumed pods of this process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.cluster = cluster_state.ClusterState()
        self.assumed = self.cluster.assumed
        self.pools: dict[tuple[str, str], str] = {}  # network (namespace, name) -> its resource

    def apply_policy(self, policy: model.Policy | None) -> None:
        """Name the devices of claims by the rails of a policy. Without a policy the last one stays."""
        if policy is not None:
            fabrics = policy.compile_once(claimed_rails.list_fabrics)
            self.cluster.change_devices(lambda devices: devices.replace_fabrics(fabrics))


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
            known = self._cluster.pods.get(assumed_pod.uid)
            # a pod not observed before may be newer than the list
            if known.node if known else assumed_pod.uid in before:
                self._assumed.forget(assumed_pod.uid)
            elif known:
                self._assumed.mark_seen(known.uid, known.requests)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod. Confirm its assumption once it is bound or ended."""
        uid, pods = obj.metadata.identity, self._cluster.pods
        self._cluster.upsert_pod(obj)
        pod = pods.get(uid)
        if pod is not None and not pod.node:
            self._assumed.mark_seen(uid, pod.requests)
        else:
            self._assumed.forget(uid)

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._cluster.remove_pod(obj.metadata.identity)
        self._assumed.forget(obj.metadata.identity)


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


# --- what is watched ------------------------------------------------------------------------------------------

_Row = tuple[resources.Kind, sinks.Sink[Any]]


def list_watches(state: State) -> list[sources.WatchSpec]:
    """Return a watch for each kind."""
    cluster = state.cluster
    table: list[_Row] = [
        (
            resources.NODES,
            sinks.Functions(
                cluster.replace_nodes, cluster.upsert_node, lambda node: cluster.remove_node(node.metadata.name)
            ),
        ),
        (resources.PLACED_PODS, Pods(state)),
        (resources.NADS, Networks(state)),
        (
            resources.HYPER_NODES,
            sinks.Functions(cluster.replace_hyper_nodes, cluster.upsert_hyper_node, cluster.remove_hyper_node),
        ),
        (
            resources.NODE_TOPOLOGIES,
            sinks.Functions(
                cluster.replace_topologies,
                cluster.upsert_topology,
                lambda report: cluster.remove_topology(report.metadata.name),
            ),
        ),
    ]
    table += _list_device_watches(state)
    table += [
        (
            resources.GANG_SIZES[kind.name],
            sinks.Functions(
                functools.partial(cluster.replace_sizes, kind),
                functools.partial(cluster.upsert_size, kind),
                functools.partial(cluster.remove_size, kind),
            ),
        )
        for kind in membership.SIZE_KINDS
    ]
    excerpts: dict[resources.Kind, Callable[[Any], Any]] = {
        resources.PLACED_PODS: scheduling_views.complete,
        resources.RESOURCE_SLICES: cluster.devices.offered.share,
        resources.RESOURCE_CLAIMS: cluster.devices.share,
    }
    large = (resources.NODES, resources.PLACED_PODS)  # applied gradually: a partial cluster state is still consistent
    return [
        sources.WatchSpec(
            kind=kind,
            sink=sink,
            excerpt=excerpts.get(kind, sources.return_whole),
            gradual=kind in large,
        )
        for kind, sink in table
    ]


def _list_device_watches(state: State) -> list[_Row]:
    """Return the kinds of Dynamic Resource Allocation."""
    known = state.cluster.devices

    def build_sink(sink: inventory.Sink[Any]) -> sinks.Functions[Any]:
        def wrap(apply: Callable[[Any], inventory.Changes]) -> Callable[[Any], None]:
            # the devices of assumed pods may then count by their claims
            return lambda changed: state.assumed.record_changes(state.cluster.change_devices(lambda _: apply(changed)))

        return sinks.Functions(*map(wrap, (sink.replace, sink.upsert, sink.remove)))

    return [
        (resources.DEVICE_CLASSES, build_sink(known.class_sink)),
        (resources.RESOURCE_SLICES, build_sink(known.slice_sink)),
        (resources.CLAIM_TEMPLATES, build_sink(known.template_sink)),
        (resources.RESOURCE_CLAIMS, build_sink(known.claim_sink)),
    ]
