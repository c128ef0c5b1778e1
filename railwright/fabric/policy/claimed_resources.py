"""Lists the resources under which the devices of claims count: those of rails, and of the accelerators beside them."""

from railwright.fabric.claims import claim_resources
from railwright.fabric.policy import claimed_rails, model


def list_claim_resources(document: model.FabricPolicy) -> tuple[claim_resources.ClaimResource, ...]:
    """Return the resources of all fabrics of a valid document whose rails come as claims."""
    named: dict[claim_resources.ClaimResource, None] = {}
    for fabric in document.fabrics:
        claims = claimed_rails.compile_claims(fabric, document)
        if claims is None:
            continue
        for rail in claims.rails.values():
            device_class = claims.claims.device_class
            named[claim_resources.ClaimResource(rail.resource, device_class, (rail.expression,), fabric)] = None
        if claims.accelerator_class is not None:
            named[claim_resources.ClaimResource(claims.accelerator_resource, claims.accelerator_class)] = None
    return tuple(named)


def list_rail_expressions(document: model.FabricPolicy) -> tuple[str, ...]:
    """Return the expressions by which rails are identified that the policy has itself, of all fabrics."""
    expressions = [
        rail.selector.expression
        for fabric in document.fabrics
        if (claims := claimed_rails.compile_claims(fabric, document)) is not None
        for rail in claims.rails.values()
        if not rail.selector.attribute
    ]
    return tuple(dict.fromkeys(expressions))
