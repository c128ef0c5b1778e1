"""Derives rails with their resources, claims, and the keys of domains from a valid policy document.

Callers pass these functions to `policy.compile_once`, so that each runs once for a version of the policy.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import hypernodes, names, topology
from railwright.fabric.claims import claim_templates
from railwright.fabric.policy import model

Network = tuple[str, str]
"""Namespace and name of a NetworkAttachmentDefinition."""


class ResolvedRail(msgspec.Struct, frozen=True):
    """Rail with its resource and network. `resource` is None until the network that names it is read.

    If pods request the rail by claims, no pod requests `resource`; placement counts the rail's devices under this name.
    """

    rail: model.Rail
    resource: str | None
    network: Network | None
    claim: claim_templates.ClaimedRail | None = None

    def with_resource(self, resource_by_network: Mapping[Network, str | None] | None) -> "ResolvedRail":
        """Return the rail with the resource that its network names, unless the policy names one."""
        if self.resource is not None or self.network is None or resource_by_network is None:
            return self
        return ResolvedRail(self.rail, resource_by_network.get(self.network), self.network)


def list_resources(document: model.PolicyDocument) -> frozenset[str]:
    """Return the resources in `rails` and `resources` of all fabrics."""
    fabrics = document.fabrics.values()
    resources = [name for fabric in fabrics for name in (*[rail.resource for rail in fabric.rails], *fabric.resources)]
    return frozenset(filter(None, resources))


def resolve_rails(name: str, document: model.PolicyDocument) -> tuple[ResolvedRail, ...]:
    """Return the resolved rails of a fabric, in the order of the policy."""
    claims = compile_claims(name, document)
    rails = document.fabrics[name].rails
    return tuple([resolve_rail(rail, claims.rails[rail.name] if claims else None) for rail in rails])


def resolve_rail(rail: model.Rail, claim: claim_templates.ClaimedRail | None = None) -> ResolvedRail:
    """Return a rail with its network and its resource: that of its claim, if any, else that of the policy."""
    resource = rail.resource if claim is None else claim.resource
    return ResolvedRail(rail, resource, rail.network_key, claim)


# --- rails that come as claims ------------------------------------------------------------------------------

NO_PAIRS = "none"  # the word of `pairBy` that stands for no attribute
_PAIR_ATTRIBUTES = {name: f"resource.kubernetes.io/{name}" for name in ("pcieRoot", "numaNode")} | {NO_PAIRS: ""}


def compile_claims(name: str, document: model.PolicyDocument) -> claim_templates.ClaimedFabric | None:
    """Return how pods claim the rails of a fabric; None if the rails are extended resources."""
    fabric = document.fabrics[name]
    claims = fabric.claims
    if claims is None:
        return None
    return claim_templates.ClaimedFabric(
        name=name,
        device_class=claims.device_class,
        rails={
            rail.name: claim_templates.ClaimedRail(
                name=rail.name,
                position=position,
                attribute=claims.rail_attribute,
                values=list_attribute_values(rail, document.node_shapes),
                resource=names.name_resource(name, rail.name),
                interface=rail.interface or "",
            )
            for position, rail in enumerate(fabric.rails)
        },
        accelerators=fabric.gpus_per_node or len(fabric.rails),
        devices_per_rail=fabric.devices_per_rail,
        accelerator_class=claims.accelerator_class or "",
        accelerator_resource=document.accelerators[0],
        pair_attribute=_PAIR_ATTRIBUTES.get(claims.pair_by, claims.pair_by) if claims.accelerator_class else "",
    )


def list_attribute_values(rail: model.Rail, shapes: Sequence[model.NodeShape]) -> tuple[str | int, ...]:
    """Return the values of `railAttribute` that a rail's devices have on any node shape; none if no key states one."""
    devices = [rail.device, *(shape.devices.get(rail.name) for shape in shapes)]
    values = devices if rail.claim is None else [rail.claim]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def list_claimed_fabrics(document: model.PolicyDocument) -> tuple[claim_templates.ClaimedFabric, ...]:
    """Return the fabrics whose rails pods request by claims."""
    return tuple([fabric for name in document.fabrics if (fabric := compile_claims(name, document)) is not None])


# --- keys of domains ----------------------------------------------------------------------------------------

# What each value of `placement.preset` stands for, closest domain first.
# Sources: NVIDIA topograph and the cloud providers' documentation of their node labels.
DOMAINS: Mapping[str, tuple[str, ...]] = {
    # topograph 1.0 and newer numbers tiers from the node upwards; nodes may have fewer labels
    "topograph": tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(3)),
    "topograph-legacy": tuple(f"network.topology.nvidia.com/{tier}" for tier in ("leaf", "spine", "core")),
    # AWS numbers layers from the top: layer 3 is closest to the instance
    "aws": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
    # without gce-topology-host, which is a domain of a single node
    "gke": ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    "oci": ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    "coreweave": tuple(f"backend.coreweave.cloud/{tier}" for tier in ("leafgroup", "superpod", "fabric")),
    "volcano": hypernodes.LEVELS,  # not labels, but keys for the levels of HyperNode objects
}


def list_domain_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the label keys or HyperNode levels of a fabric's domains, closest first. `domains` overrides `preset`."""
    if placement.domains or placement.preset is None:
        return placement.domains
    return DOMAINS[placement.preset]


def list_shared_domain_keys(placement: model.Placement) -> tuple[str, ...]:
    """Return the keys of a fabric's domains, closest first, without those that have a label for each rail ({rail})."""
    return tuple([key for key in list_domain_keys(placement) if topology.RAIL not in key])


def has_own_uplinks(placement: model.Placement) -> bool:
    """True if each rail has its own leaf and uplinks, because a domain's key contains {rail}."""
    return any(topology.RAIL in key for key in list_domain_keys(placement))
