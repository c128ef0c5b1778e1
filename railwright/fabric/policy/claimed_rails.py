"""Finds the devices of each rail that comes as claims, the GPUs that pair with it, and the resources of both."""

from collections.abc import Sequence

from railwright.fabric import names
from railwright.fabric.claims import claim_templates, objects
from railwright.fabric.policy import model

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
                attribute=find_rail_attribute(claims),
                values=list_values(rail, document.node_shapes),
                resource=names.claim_resource(name, rail.name),
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


def find_rail_attribute(claims: model.Claims) -> str:
    """Return the attribute whose value identifies a rail."""
    return claims.rail_attribute or objects.RDMA_DEVICE


def list_values(rail: model.Rail, shapes: Sequence[model.NodeShape]) -> tuple[str | int, ...]:
    """Return the attribute values of a rail's devices on nodes of all shapes; none if nothing identifies the rail."""
    return rail.list_devices(shapes) if rail.claim is None else (rail.claim,)


def list_fabrics(document: model.PolicyDocument) -> tuple[claim_templates.ClaimedFabric, ...]:
    """Return the fabrics of a valid document with rails in claims."""
    return tuple([fabric for name in document.fabrics if (fabric := compile_claims(name, document)) is not None])
