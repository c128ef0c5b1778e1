"""Builds the fabric context of ranks (`rule_types.FabricContext`) from the policy, the rails and the pod's networks."""

import collections
from collections.abc import Sequence

import msgspec

from railwright.fabric import device_names, intent, names, views
from railwright.fabric.lint import rule_types
from railwright.fabric.multus import network_selection
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model as policies

# Interfaces from another source than Multus (GKE's multi-networking). Their names are not known.
OTHER_INTERFACES = ("networking.gke.io/interfaces",)
_TOPOLOGY_FILE = "NCCL_TOPO_FILE"
Networks = Sequence[network_selection.Selection] | None  # of a pod; None if its annotation is invalid
DEFAULT_ACCELERATORS = ("nvidia.com/gpu",)  # the default of the policy's key `accelerators`


class FabricUse(msgspec.Struct, frozen=True):
    """The policy, the fabric and the rails that a pod uses. All empty without a policy."""

    document: policies.PolicyDocument | None = None
    fabric: policies.Fabric | None = None
    rails: tuple[policies.Rail, ...] = ()
    resources: frozenset[str] = frozenset()  # of the rails, from the policy or from their networks
    awaits_correction: bool = False  # the pod is rejected, or its label has no effect; corrected, it is injected

    @property
    def devices(self) -> dict[str, int]:
        """Return the devices that the rails request, by resource."""
        counts = collections.Counter(rail.resource for rail in self.rails if rail.resource)
        return {resource: self.fabric.count_devices(rails) for resource, rails in counts.items()} if self.fabric else {}

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Return the resources that mark a training container."""
        return self.document.accelerators if self.document else DEFAULT_ACCELERATORS


def use_all_rails(document: policies.PolicyDocument, fabric: policies.Fabric | None) -> FabricUse:
    """Return the use of a fabric by pods with all its rails. `fabric` is None if it is unknown."""
    rails = fabric.rails if fabric else ()
    return FabricUse(document, fabric, rails, frozenset([rail.resource for rail in rails if rail.resource]))


def build_for_pod(pod: views.Pod, attached: Networks, use: FabricUse) -> rule_types.FabricContext:
    """Build the context of a pod with the networks that its annotation selects."""
    context = build(use, pod)
    if pod.spec.host_network or attached is None or awaits_injection(pod, use):
        return context
    own = network_selection.name_interfaces(attached)
    has_other = has_other_interfaces(use.fabric) or any(key in pod.metadata.annotations for key in OTHER_INTERFACES)
    has_unknown = pod.spec.resource_claims or has_other
    interfaces = None if has_unknown else (network_selection.CRI_INTERFACE, *own)
    return msgspec.structs.replace(context, interfaces=interfaces, rail_interfaces=own)


def build(use: FabricUse, pod: views.Pod | None = None) -> rule_types.FabricContext:
    """Build the context of ranks. Without a pod, they are those of a launcher or of a file."""
    fabric, document = use.fabric, use.document
    if fabric is None or document is None:
        return rule_types.FabricContext()
    pod = pod or views.Pod()
    devices = device_names.find_possible(pod, document, use.rails) if use.rails else None
    return rule_types.FabricContext(
        transport=fabric.transport,
        fabric=fabric,
        primary=fabric.primary_interface,
        rails=tuple([rail.name for rail in use.rails]),
        devices=devices,
        found=_list_found(pod, fabric) if use.rails and devices is None else frozenset(),
        topology_file=fabric.env.get(_TOPOLOGY_FILE, ""),
        exclusive=rule_types.are_exclusive(fabric.transport, use.resources),
    )


def _list_found(pod: views.Pod, fabric: policies.Fabric) -> frozenset[str]:
    """Return the variables that the preflight sets in a pod, because the policy does not name its devices."""
    skipped = {word.strip() for word in pod.metadata.annotations.get(names.SKIP, "").split(",")}
    is_left_out = fabric.resolve == "never" or not fabric.nccl.derive or not skipped.isdisjoint(("env", "preflight"))
    # on eRDMA admission writes the prefix that all devices have
    is_known = fabric.transport is policies.Transport.ERDMA
    return frozenset() if is_left_out or is_known else frozenset(derive.list_found(fabric)) - fabric.env.keys()


def has_other_interfaces(fabric: policies.Fabric | None) -> bool:
    """True if another system than Multus attaches rails: they have an interface and no network."""
    return fabric is not None and any(rail.interface and not rail.network for rail in fabric.rails)


def awaits_injection(pod: views.Pod, use: FabricUse) -> bool:
    """True for a pod that is not injected yet, because the policy is unknown or the pod has to be corrected.

    Its networks, mounts and privileges are unknown, because injection adds to them.
    """
    return use.awaits_correction or (use.document is None and intent.has_fabric_label(pod))


def parse_networks(pod: views.Pod, namespace: str) -> Networks:
    """Return the pod's secondary networks, or None if its annotation is invalid."""
    try:
        return network_selection.parse(pod.metadata.annotations.get(names.NETWORKS, ""), namespace)
    except network_selection.InvalidNetworksError:
        return None
