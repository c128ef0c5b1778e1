"""The webhook's caches of the cluster: the watches fill them, and the handlers read facts from them.

Decides which parts of each object are stored. Not thread-safe: used by one event loop. Handlers read without waiting.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from railwright.cluster import sinks
from railwright.fabric import bounded_cache, names, node_views, resources, views
from railwright.fabric.claims import claim_templates, objects
from railwright.fabric.injection import facts
from railwright.fabric.multus import ipam
from railwright.fabric.policy import shortcomings
from webhook import file_keys

Key = tuple[str, str]  # namespace, name


class _NodeResources(NamedTuple):
    """Resources of a node: `offered` have an allocatable device, `devices` are names with numbers of devices.

    `by_old` are all names if the node's kubelet does not support `fileKeyRef`, otherwise none.
    """

    offered: frozenset[str]
    devices: frozenset[tuple[str, int]]
    by_old: frozenset[str]


class _ClusterResources(NamedTuple):
    """Resources of all nodes together. `offered` and `devices` are None before the first full list."""

    offered: frozenset[str] | None = None
    devices: Sequence[Mapping[str, int]] | None = None  # once for all nodes that have the same
    by_old: frozenset[str] = frozenset()


def excerpt_node(node: node_views.Node) -> node_views.Node:
    """Return a node with only name, resources and kubelet. Strings are interned, because most nodes share them."""
    status = node_views.NodeStatus(
        capacity_or_none=bounded_cache.intern_strings(node.status.capacity),
        allocatable_or_none=bounded_cache.intern_strings(node.status.allocatable),
        node_info=node.status.node_info,
    )
    return node_views.Node(metadata=views.ObjectMeta(name=node.metadata.name), status=status)


def _read_resources(node: node_views.Node) -> _NodeResources:
    """Return the resources of a node. Devices are counted by its capacity, or by allocatable in a snapshot without it.

    While a device plugin is stopped, kubelet reports 0 allocatable of its resource.
    """
    allocatable = resources.parse_amounts(node.status.allocatable)
    devices = frozenset(
        (name, amount // resources.UNIT)
        for name, amount in (resources.parse_amounts(node.status.capacity) or allocatable).items()
        if "/" in name and amount > 0
    )
    is_new = file_keys.is_supported_by(node.status.node_info.kubelet_version)
    return _NodeResources(
        frozenset(name for name, amount in allocatable.items() if amount > 0),
        devices,
        frozenset() if is_new else frozenset(allocatable),
    )


def _read_device_classes(template: objects.ResourceClaimTemplate) -> frozenset[str] | None:
    """Return the DeviceClasses of a claim template; None if railwright wrote it and nobody has changed it."""
    if claim_templates.has_matching_hash(template.metadata.name, template.spec.spec.devices):
        return None
    return template.device_classes


def _list_awaited_templates(pod: views.Pod) -> Mapping[Key, views.Pod]:
    """Map each claim template of railwright that a pod names to the pod; {} if the pod has a node or has ended."""
    if pod.spec.node_name or pod.status.has_ended:
        return {}
    return {(pod.metadata.namespace, claim.template): pod for claim in claim_templates.list_railwright_claims(pod)}


class State:
    """The webhook's caches of the cluster, and the facts that an admission reads from them."""

    def __init__(self) -> None:
        self.image = os.environ.get("RAILWRIGHT_IMAGE") or names.IMAGE  # of the init container; manifests set it
        self.file_keys = False  # True if the API server knows `fileKeyRef`
        self.watched = False  # True if an API server feeds the caches; a snapshot file is less complete
        self.namespaces = sinks.ValueCache[views.Namespace, Mapping[str, str]](
            lambda known: known.metadata.name, lambda known: known.metadata.labels, {}
        )
        self.networks = sinks.ValueCache[views.NetworkAttachmentDefinition, str | None](
            lambda network: network.metadata.key,
            lambda network: network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None,
        )
        self.configurations = sinks.ValueCache[views.NetworkAttachmentDefinition, ipam.NetworkConfiguration](
            lambda network: network.metadata.key,
            lambda network: ipam.read_configuration((network.spec and network.spec.config) or ""),
        )
        self.nodes = sinks.ValueCache[node_views.Node, _NodeResources](lambda node: node.metadata.name, _read_resources)
        self._all_nodes, self._all_nodes_version = _ClusterResources(), 0
        self.claim_templates = sinks.ValueCache[objects.ResourceClaimTemplate, frozenset[str] | None](
            lambda template: template.metadata.key, _read_device_classes, {}
        )
        # by pod: the pods that wait for claim templates of railwright, by template
        self.claiming_pods = sinks.ValueCache[views.Pod, Mapping[Key, views.Pod]](
            lambda pod: pod.metadata.key, _list_awaited_templates, {}
        )
        self.is_without_templates: Callable[[], bool] = lambda: False  # True while it may not read claim templates

    def set_file_keys(self, known: bool) -> None:  # noqa: FBT001 - called with the answer alone
        """Record whether the API server stores `fileKeyRef`."""
        self.file_keys = known

    @property
    def cluster(self) -> shortcomings.Cluster:
        """Return the networks and nodes that a policy is compared with."""
        nodes = self._combine_nodes()
        return shortcomings.Cluster(self.networks.by_key, self.configurations.by_key, nodes.offered, nodes.devices)

    def _combine_nodes(self) -> _ClusterResources:
        """Return the resources of all nodes together. Combines them only after a node has changed."""
        if self.nodes.by_key is not None and self.nodes.version != self._all_nodes_version:
            each = self.nodes.by_key.values()
            self._all_nodes = _ClusterResources(
                frozenset[str]().union(*[node.offered for node in each]),
                [dict(devices) for devices in {node.devices for node in each}],
                frozenset[str]().union(*[node.by_old for node in each]),
            )
            self._all_nodes_version = self.nodes.version
        return self._all_nodes

    def build_facts(self, namespace: str) -> facts.ClusterFacts:
        """Return the facts of the cluster for pods of a namespace.

        Valid until the caller's next await, because the maps are not copied.
        """
        nodes = self._combine_nodes()
        return facts.ClusterFacts(
            namespace=namespace,
            namespace_labels=(self.namespaces.by_key or {}).get(namespace),
            watched=self.watched,
            image=self.image,
            networks=self.networks.by_key,
            offered=nodes.offered,
            node_devices=nodes.devices,
            file_keys=self.file_keys,
            offered_by_old=nodes.by_old,
            claim_templates=self.claim_templates.by_key,
            without_templates=self.is_without_templates(),
            # none shrinks, so equal sums mean equal versions
            version=self.networks.version + self.nodes.version + self.claim_templates.version,
        )
