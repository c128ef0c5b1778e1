"""The webhook's caches of the cluster: sinks for the sources, and the facts for the handlers.

Decides which parts of each object are stored. Not thread-safe: used by one event loop. Handlers read without waiting.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from railwright.cluster import sinks
from railwright.fabric import bounded_cache, names, node_views, resources, views
from railwright.fabric.claims import claim_templates, objects
from railwright.fabric.injection import facts
from railwright.fabric.multus import ipam
from railwright.fabric.policy import shortcomings
from webhook import file_keys


class _Resources(NamedTuple):
    """The resources of a node: those with allocatable devices, the number of devices, and those of an old kubelet."""

    offered: frozenset[str]
    devices: frozenset[tuple[str, int]]
    by_old: frozenset[str]


class Nodes:
    """The resources that at least one node offers and the devices that nodes have, None until the first full list.

    Also the resources of nodes with an old kubelet, even with the number 0. `version` grows with every change.
    """

    def __init__(self) -> None:
        self.offered: frozenset[str] | None = None
        self.devices: Sequence[Mapping[str, int]] | None = None  # once for all nodes that have the same
        self.offered_by_old: frozenset[str] = frozenset()
        self.version = 0
        self._nodes: dict[str, _Resources] = {}
        self._of_all: tuple[frozenset[Any], ...] = ()  # each field over all nodes

    def excerpt(self, node: node_views.Node) -> node_views.Node:
        """Return name, resources and kubelet of a node, interned, because most nodes share them."""
        status = node_views.NodeStatus(
            capacity_or_none=bounded_cache.intern_strings(node.status.capacity),
            allocatable_or_none=bounded_cache.intern_strings(node.status.allocatable),
            node_info=node.status.node_info,
        )
        return node_views.Node(metadata=views.ObjectMeta(name=node.metadata.name), status=status)

    def replace(self, objects: Sequence[node_views.Node]) -> None:
        """Replace all nodes."""
        self._nodes = {node.metadata.name: _read_resources(node) for node in objects}
        self._update_resources()

    def upsert(self, obj: node_views.Node) -> None:
        """Add or update a node. Most updates are heartbeats with unchanged resources."""
        name, now = obj.metadata.name, _read_resources(obj)
        if self._nodes.get(name) != now:
            self._nodes[name] = now
            if self.offered is not None:
                self._update_resources()

    def remove(self, obj: node_views.Node) -> None:
        """Remove a node."""
        if self._nodes.pop(obj.metadata.name, None):
            self._update_resources()

    def _update_resources(self) -> None:
        nodes = self._nodes.values()
        offered = frozenset[str]().union(*[node.offered for node in nodes])
        by_old = frozenset[str]().union(*[node.by_old for node in nodes])
        devices = frozenset(node.devices for node in nodes)
        if self.offered is None or (offered, devices, by_old) != self._of_all:
            self._of_all = (offered, devices, by_old)
            self.offered, self.offered_by_old = offered, by_old
            self.devices = [dict(of_node) for of_node in devices]
            self.version += 1


def _read_resources(node: node_views.Node) -> _Resources:
    """Return the resources of a node. A snapshot may lack the capacity.

    While a device plugin is stopped, kubelet reports 0 allocatable of its resource.
    """
    allocatable = resources.parse_amounts(node.status.allocatable)
    devices = frozenset(
        (name, amount // resources.UNIT)
        for name, amount in (resources.parse_amounts(node.status.capacity) or allocatable).items()
        if "/" in name and amount > 0
    )
    is_new = file_keys.is_known_to(node.status.node_info.kubelet_version)
    return _Resources(
        frozenset(name for name, amount in allocatable.items() if amount > 0),
        devices,
        frozenset() if is_new else frozenset(allocatable),
    )


Key = tuple[str, str]  # namespace, name


class ClaimTemplates:
    """ResourceClaimTemplates: names of those with railwright's content, and the DeviceClasses of all others.

    `version` grows with every change of the others.
    """

    def __init__(self) -> None:
        self.own: set[Key] = set()
        self.classes: dict[Key, frozenset[str]] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, objects_listed: Sequence[objects.ResourceClaimTemplate]) -> None:
        """Replace all claim templates."""
        self.own, self.classes = set(), {}
        self.version += 1
        for template in objects_listed:
            self._store_template(template)
        self.on_change()

    def upsert(self, obj: objects.ResourceClaimTemplate) -> None:
        """Add or update a template."""
        self._forget(obj.metadata.key)
        self._store_template(obj)
        self.on_change()

    def remove(self, obj: objects.ResourceClaimTemplate) -> None:
        """Remove a template."""
        self._forget(obj.metadata.key)
        self.on_change()

    def _store_template(self, template: objects.ResourceClaimTemplate) -> None:
        key = template.metadata.key
        if claim_templates.has_content_of_name(template.metadata.name, template.spec.spec.devices):
            self.own.add(key)
        else:
            self.classes[key] = template.device_classes
            self.version += 1

    def _forget(self, key: Key) -> None:
        self.own.discard(key)
        self.version += self.classes.pop(key, None) is not None


class WaitingPods:
    """Pods that wait for a node and name claim templates of railwright: `by_template` has them by template and pod."""

    def __init__(self) -> None:
        self.by_template: dict[Key, dict[Key, views.Pod]] = {}
        self._templates_by_pod: dict[Key, Sequence[Key]] = {}
        self.on_change: Callable[[], None] = lambda: None

    def replace(self, objects_listed: Sequence[views.Pod]) -> None:
        """Replace all waiting pods."""
        self.by_template.clear()
        self._templates_by_pod.clear()
        for pod in objects_listed:
            self.upsert(pod)
        self.on_change()

    def upsert(self, obj: views.Pod) -> None:
        """Add or update a pod; one that no longer waits is removed."""
        self.remove(obj)
        templates = list_templates(obj)
        if templates and not obj.spec.node_name and not obj.status.has_ended:
            self._templates_by_pod[obj.metadata.key] = templates
            for template in templates:
                self.by_template.setdefault(template, {})[obj.metadata.key] = obj
            self.on_change()

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod by its metadata, because a deletion event may have no more."""
        for template in self._templates_by_pod.pop(obj.metadata.key, ()):
            pods = self.by_template[template]
            pods.pop(obj.metadata.key, None)
            if not pods:
                del self.by_template[template]


def list_templates(pod: views.Pod) -> Sequence[Key]:
    """Return the keys of railwright's claim templates that a pod names."""
    return [(pod.metadata.namespace, claim.template) for claim in claim_templates.list_claims(pod)]


class State:
    """All caches, and the facts that an admission reads from them."""

    def __init__(self) -> None:
        self.image = os.environ.get("RAILWRIGHT_IMAGE") or names.IMAGE  # of the init container; manifests set it
        self.file_keys = False  # True if the API server knows `fileKeyRef`
        self.watched = False  # True if an API server feeds the caches; a snapshot file is less complete
        self.namespaces = sinks.Values[views.Namespace, Mapping[str, str]](
            lambda known: known.metadata.name, lambda known: known.metadata.labels, {}
        )
        self.networks = sinks.Values[views.NetworkAttachmentDefinition, str | None](
            lambda network: network.metadata.key,
            lambda network: network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None,
        )
        self.subnets = sinks.Values[views.NetworkAttachmentDefinition, tuple[ipam.Subnet, ...]](
            lambda network: network.metadata.key,
            lambda network: ipam.read_subnets((network.spec and network.spec.config) or ""),
        )
        self.nodes = Nodes()
        self.claim_templates = ClaimTemplates()
        self.claiming_pods = WaitingPods()
        self.is_without_templates: Callable[[], bool] = lambda: False  # True while it may not read claim templates

    def set_file_keys(self, known: bool) -> None:  # noqa: FBT001 - called with the answer alone
        """Record whether the API server stores `fileKeyRef`."""
        self.file_keys = known

    @property
    def cluster(self) -> shortcomings.Cluster:
        """Return the networks and nodes that a policy is compared with."""
        return shortcomings.Cluster(self.networks.by_key, self.subnets.by_key, self.nodes.offered, self.nodes.devices)

    def build_facts(self, namespace: str) -> facts.ClusterFacts:
        """Return the current facts. Valid until the caller's next await, because the maps are not copied."""
        return facts.ClusterFacts(
            namespace=namespace,
            namespace_labels=(self.namespaces.by_key or {}).get(namespace),
            watched=self.watched,
            image=self.image,
            networks=self.networks.by_key,
            offered=self.nodes.offered,
            node_devices=self.nodes.devices,
            file_keys=self.file_keys,
            offered_by_old=self.nodes.offered_by_old,
            claim_templates=self.claim_templates.classes,
            without_templates=self.is_without_templates(),
            # none shrinks, so equal sums mean equal versions
            version=self.networks.version + self.nodes.version + self.claim_templates.version,
        )
