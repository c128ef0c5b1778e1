"""Compiles a policy document: resolves its rails, and lists its resources and claims.

`policy.compile_once` keeps what a function returns for a version of the policy.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names
from railwright.fabric.claims import claim_templates
from railwright.fabric.policy import model

Network = tuple[str, str]
"""Namespace and name of a NetworkAttachmentDefinition."""


class ResolvedRail(msgspec.Struct, frozen=True):
    """A rail with its resource and network. The resource is None until its network's resource is known.

    The resource of a rail that comes as claims is the one under which its devices count; no pod requests it.
    """

    rail: model.Rail
    resource: str | None
    network: Network | None
    claim: claim_templates.ClaimedRail | None = None

    def with_resource(self, resource_by_network: Mapping[Network, str | None] | None) -> "ResolvedRail":
        """Return the rail with the resource of its network, unless the policy names one."""
        if self.resource is not None or self.network is None or resource_by_network is None:
            return self
        return ResolvedRail(self.rail, resource_by_network.get(self.network), self.network)


def list_resources(document: model.PolicyDocument) -> frozenset[str]:
    """Return the resources that the policy names for all fabrics, which pods may request."""
    fabrics = document.fabrics.values()
    resources = [name for fabric in fabrics for name in (*[rail.resource for rail in fabric.rails], *fabric.resources)]
    return frozenset(filter(None, resources))


def resolve_rails(name: str, document: model.PolicyDocument) -> tuple[ResolvedRail, ...]:
    """Return the rails of a fabric of a valid document, in its order."""
    claims = compile_claims(name, document)
    rails = document.fabrics[name].rails
    return tuple([resolve_rail(rail, claims.rails[rail.name] if claims else None) for rail in rails])


def resolve_rail(rail: model.Rail, claim: claim_templates.ClaimedRail | None = None) -> ResolvedRail:
    """Return the rail with its network and its resource: that of the policy, or the one that stands for its claims."""
    resource = rail.resource if claim is None else claim.resource
    return ResolvedRail(rail, resource, rail.network_key, claim)


# --- rails that come as claims ------------------------------------------------------------------------------

NO_PAIRS = "none"  # the word of `pairBy` that stands for no attribute
_PAIR_ATTRIBUTES = {name: f"resource.kubernetes.io/{name}" for name in ("pcieRoot", "numaNode")} | {NO_PAIRS: ""}


def compile_claims(name: str, document: model.PolicyDocument) -> claim_templates.ClaimedFabric | None:
    """Return the claims of a fabric of a valid document in derived form; None if it has no claims."""
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
    """Return the attribute values of a rail's devices on nodes of all shapes; none if nothing identifies the rail."""
    devices = [rail.device, *(shape.devices.get(rail.name) for shape in shapes)]
    values = devices if rail.claim is None else [rail.claim]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def list_claimed_fabrics(document: model.PolicyDocument) -> tuple[claim_templates.ClaimedFabric, ...]:
    """Return the fabrics of a valid document with rails in claims."""
    return tuple([fabric for name in document.fabrics if (fabric := compile_claims(name, document)) is not None])
