"""Builds the fabric context of ranks (`rule_types.FabricContext`) from the policy, the rails and the pod's networks."""

import functools
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import device_names, intent, names, views
from railwright.fabric.lint import rule_types
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.policy import model as policies

# Interfaces from another source than Multus (GKE's multi-networking). Their names are not known.
OTHER_INTERFACES = ("networking.gke.io/interfaces",)
Networks = Sequence[network_selection.Selection] | None  # of a pod; None if its annotation is invalid
DEFAULT_ACCELERATORS = ("nvidia.com/gpu",)  # the default of the policy's key `accelerators`


class FabricUse(msgspec.Struct, frozen=True, dict=True):
    """The policy, the fabric and the rails that a pod uses. All empty without a policy."""

    document: policies.PolicyDocument | None = None
    fabric: policies.Fabric | None = None
    rails: tuple[policies.Rail, ...] = ()
    resources: frozenset[str] = frozenset()  # of the rails, from the policy or from their networks
    awaits_correction: bool = False  # the pod is rejected, or its label has no effect; corrected, it is injected

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Return the resources that mark a training container."""
        return self.document.accelerators if self.document else DEFAULT_ACCELERATORS

    @functools.cached_property
    def rail_names(self) -> tuple[str, ...]:
        """Return the names of the rails."""
        return tuple([rail.name for rail in self.rails])

    @functools.cached_property
    def same_devices(self) -> tuple[device_names.Devices, ...] | None:
        """Return the RDMA devices of the rails under a policy without node shapes; None if they are unknown."""
        if self.document is None or not self.rails:
            return None
        return device_names.find_possible(views.Pod(), self.document, self.rails)

    @functools.cached_property
    def are_exclusive(self) -> bool | None:
        """True if the devices are assigned to pods one by one; None if unknown."""
        return rule_types.are_exclusive(self.fabric.transport if self.fabric else None, self.resources)


def use_all_rails(document: policies.PolicyDocument, fabric: policies.Fabric) -> FabricUse:
    """Return the use of a fabric by pods that get all its rails."""
    return FabricUse(
        document, fabric, fabric.rails, frozenset([rail.resource for rail in fabric.rails if rail.resource])
    )


def compile_uses(document: policies.PolicyDocument) -> Mapping[str, FabricUse]:
    """Return the use of each fabric by pods that get all its rails, by the fabric's name."""
    return {name: use_all_rails(document, fabric) for name, fabric in document.fabrics.items()}


def build_for_pod(pod: views.Pod, attached: Networks, use: FabricUse) -> rule_types.FabricContext:
    """Build the context of a pod with the networks that its annotation selects."""
    context = build(use, pod)
    if pod.spec.host_network or attached is None or awaits_injection(pod, use):
        return context
    cluster_wide = use.document.cluster_wide_networks if use.document else 0
    primary = use.document.primary_interface if use.document else context.primary
    own = network_selection.name_interfaces(attached, cluster_wide)
    common = [f"net{number}" for number in range(1, cluster_wide + 1)]
    other = use.fabric.network_annotation if use.fabric else None
    has_other = other is not None and other.key in pod.metadata.annotations
    has_unknown = pod.spec.resource_claims or has_other or has_other_interfaces(pod.metadata.annotations)
    interfaces = None if has_unknown else (primary, *common, *own)
    return msgspec.structs.replace(context, interfaces=interfaces, rail_interfaces=own)


def has_other_interfaces(annotations: Mapping[str, str]) -> bool:
    """True if an annotation gives the pod interfaces with unknown names."""
    return any(key in annotations for key in OTHER_INTERFACES)


def build(use: FabricUse, pod: views.Pod | None = None) -> rule_types.FabricContext:
    """Build the context of ranks. Without a pod, they are those of a launcher or of a file."""
    fabric, document = use.fabric, use.document
    if fabric is None or document is None:
        return rule_types.FabricContext()
    return rule_types.FabricContext(
        transport=fabric.transport,
        fabric=fabric,
        primary=policies.find_primary_interface(document, fabric),
        rails=use.rail_names,
        devices=_find_devices(pod, document, use),
        topology_files=device_names.find_topology_files(pod or views.Pod(), document, fabric),
        exclusive=use.are_exclusive,
    )


def _find_devices(
    pod: views.Pod | None, document: policies.PolicyDocument, use: FabricUse
) -> tuple[device_names.Devices, ...] | None:
    if not use.rails or not document.node_shapes:
        return use.same_devices
    return device_names.find_possible(pod or views.Pod(), document, use.rails)


def awaits_injection(pod: views.Pod, use: FabricUse) -> bool:
    """True for a pod that is to be injected by an unknown policy, or once it is corrected.

    Its networks, mounts and privileges are unknown, because injection adds to them.
    """
    return use.awaits_correction or (use.document is None and intent.has_fabric_label(pod))


def parse_networks(pod: views.Pod, namespace: str) -> Networks:
    """Return the pod's secondary networks, or None if its annotation is invalid."""
    try:
        return annotation.parse(pod.metadata.annotations.get(names.NETWORKS, ""), namespace)
    except network_selection.InvalidNetworksError:
        return None
