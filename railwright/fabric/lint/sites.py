"""Builds the fabric context of ranks (`model.Site`) from the policy, the rails and the pod's networks."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, networks, views
from railwright.fabric.injection import rails as chosen_rails
from railwright.fabric.injection import shapes
from railwright.fabric.lint import hardware, model
from railwright.fabric.policy import model as policies

# Interfaces that come from elsewhere than Multus: GKE's multi-networking. They have names we cannot foresee.
_OTHER_INTERFACES = ("networking.gke.io/interfaces",)
DEFAULT_ACCELERATORS = ("nvidia.com/gpu",)  # as the policy's own default


class Ground(msgspec.Struct, frozen=True):
    """The policy and which fabric of it, with the rails of the pod; nothing of it without a policy."""

    document: policies.FabricPolicy | None = None
    fabric: policies.Fabric | None = None
    rails: tuple[chosen_rails.Chosen, ...] = ()

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Resources that mark a training container."""
        return self.document.accelerators if self.document else DEFAULT_ACCELERATORS


def whole(document: policies.FabricPolicy, fabric: policies.Fabric) -> Ground:
    """The ground of pods that get all rails of a fabric."""
    rails = tuple(chosen_rails.Chosen(rail, rail.resource, chosen_rails.network_of(rail)) for rail in fabric.rails)
    return Ground(document, fabric, rails)


def of_pod(pod: views.Pod, namespace: str, ground: Ground) -> model.Site:
    """The site of a pod, with the networks its annotation has by now."""
    site = of_fabric(ground, pod)
    if pod.spec.host_network or to_be_injected(pod, ground):
        return site
    attached = selections(pod, namespace)
    if attached is None:
        return site
    cluster_wide = ground.document.cluster_wide_networks if ground.document else 0
    own = networks.interfaces(attached, cluster_wide)
    common = tuple(f"net{number}" for number in range(1, cluster_wide + 1))
    others = pod.spec.resource_claims or unforeseen(pod.metadata.annotations)
    return msgspec.structs.replace(
        site, interfaces=None if others else (site.primary, *common, *own), rail_interfaces=own
    )


def unforeseen(annotations: Mapping[str, str]) -> bool:
    """True where a pod's annotations bring it interfaces whose names we cannot foresee."""
    return any(key in annotations for key in _OTHER_INTERFACES)


def of_fabric(ground: Ground, pod: views.Pod | None = None) -> model.Site:
    """The site of ranks whose pod is not seen: a launcher's, or a file's."""
    fabric, document = ground.fabric, ground.document
    if fabric is None or document is None:
        return model.Site()
    rails = [each.rail for each in ground.rails]
    resources = frozenset(each.resource for each in ground.rails if each.resource)
    return model.Site(
        transport=fabric.transport,
        fabric=fabric,
        primary=document.primary_interface,
        devices=shapes.possible(pod or views.Pod(), document, rails) if rails else None,
        exclusive=hardware.exclusive(fabric.transport, resources),
    )


def to_be_injected(pod: views.Pod, ground: Ground) -> bool:
    """True where the pod opted in to a policy we do not have: its networks, mounts and rights are still to come."""
    return ground.document is None and pod.metadata.labels.get(names.FABRIC, names.FABRIC_NONE) != names.FABRIC_NONE


def selections(pod: views.Pod, namespace: str) -> Sequence[networks.Selection] | None:
    """The pod's secondary networks; None where its annotation cannot be read."""
    try:
        return networks.parse(pod.metadata.annotations.get(names.NETWORKS, ""), namespace)
    except networks.InvalidNetworksError:
        return None
