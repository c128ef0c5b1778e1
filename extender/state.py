"""The extender's state: the cluster state from watches, and the assumed pods from schedulers.

An assumed pod that is observed bound or deleted is confirmed: from then on the cluster state counts it.
`list_watches` lists the kinds of objects that placement reads from the API server or a snapshot.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from railwright.cluster import reflector, resources, sinks
from railwright.fabric import names, views
from railwright.fabric.claims import inventory
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import compiled, model
from railwright.fabric.workloads import membership


class State:
    """The cluster state and the assumed pods of this process."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.cluster = cluster_state.ClusterState()
        self.assumed = self.cluster.assumed
        self.pools: dict[tuple[str, str], str | None] = {}  # network (namespace, name) -> its resource
        self.networks = sinks.ValueCache[views.NetworkAttachmentDefinition, str | None](
            lambda network: network.metadata.key,
            lambda network: network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None,
            self.pools,
        )

    def apply_policy(self, policy: model.Policy | None) -> None:
        """Assign the devices of claims to the rails of a policy. Without a policy, the last one stays in use."""
        if policy is not None:
            fabrics = policy.compile_once(compiled.list_claimed_fabrics)
            self.cluster.change_devices(lambda devices: devices.replace_fabrics(fabrics))


class PodSink:
    """Adds pods to the cluster state, and confirms assumed pods that are bound or deleted."""

    def __init__(self, state: State) -> None:
        self._cluster = state.cluster
        self._assumed = state.assumed

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Replace all pods."""
        self._cluster.replace_pods(objects)
        for assumed_pod in list(self._assumed):
            known = self._cluster.pods.get(assumed_pod.uid)
            if known is None or known.node:
                self._assumed.forget(assumed_pod.uid)

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod. A pod that is bound or has ended is no longer assumed."""
        self._cluster.upsert_pod(obj)
        pod = self._cluster.pods.get(obj.metadata.identity)
        if pod is None or pod.node:
            self._assumed.forget(obj.metadata.identity)

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod."""
        self._cluster.remove_pod(obj.metadata.identity)
        self._assumed.forget(obj.metadata.identity)


# --- what is watched ------------------------------------------------------------------------------------------


def list_watches(state: State) -> list[reflector.WatchSpec]:
    """Return a watch for each kind of objects that placement reads.

    Nodes, pods and objects with sizes of gangs are added one by one while their list arrives (`gradual`): a partial
    list is consistent, and the specs of thousands of workloads are not in memory at once.
    """
    cluster, watch = state.cluster, reflector.WatchSpec
    nodes = sinks.CallbackSink(
        cluster.replace_nodes, cluster.upsert_node, lambda node: cluster.remove_node(node.metadata.name)
    )
    topologies = sinks.CallbackSink(
        cluster.replace_topologies,
        cluster.upsert_topology,
        lambda report: cluster.remove_topology(report.metadata.name),
    )
    return [
        watch(resources.NODES, nodes, gradual=True),
        watch(resources.PLACED_PODS, PodSink(state), gradual=True),
        watch(resources.NADS, state.networks),
        watch(resources.HYPER_NODES, cluster.hyper_nodes),
        watch(resources.NODE_TOPOLOGIES, topologies),
        *_list_device_watches(state),
        *(
            watch(
                resources.GANG_SIZES[kind.name],
                sinks.CallbackSink(
                    functools.partial(cluster.sizes.replace, kind),
                    functools.partial(cluster.sizes.upsert, kind),
                    functools.partial(cluster.sizes.remove, kind),
                ),
                gradual=True,
            )
            for kind in membership.SIZE_KINDS
        ),
    ]


def _list_device_watches(state: State) -> list[reflector.WatchSpec]:
    """Return the watches for Dynamic Resource Allocation."""
    known, watch = state.cluster.devices, reflector.WatchSpec

    def build_sink(sink: inventory.Sink[Any]) -> sinks.CallbackSink[Any]:
        def record_change(apply: Callable[[Any], inventory.Changes]) -> Callable[[Any], None]:
            # the devices of assumed pods may then count by their claims
            return lambda changed: state.assumed.record_changes(state.cluster.change_devices(lambda _: apply(changed)))

        return sinks.CallbackSink(*map(record_change, (sink.replace, sink.upsert, sink.remove)))

    return [
        watch(resources.DEVICE_CLASSES, build_sink(known.class_sink)),
        watch(resources.RESOURCE_SLICES, build_sink(known.slice_sink), excerpt=known.offered.share_attributes),
        watch(resources.CLAIM_TEMPLATES, build_sink(known.template_sink)),
        watch(resources.RESOURCE_CLAIMS, build_sink(known.claim_sink), excerpt=known.share_spec),
    ]
