"""Finds the devices of each rail that comes as claims, and the GPUs that pair with it.

Lists the resources under which they count: those of rails, and of the accelerators beside them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.claims import drivers, resource_names, selectors
from railwright.fabric.policy import model

_PAIR_ATTRIBUTES = {"pcieRoot": drivers.PCIE_ROOT, "numaNode": drivers.NUMA_NODE}
NODE_SHAPE, NO_PAIRS = "nodeShape", "none"  # words of `pairBy` that stand for no attribute

Values = tuple[str | int, ...]


class RailSelector(msgspec.Struct, frozen=True):
    """The devices of a rail: those for which `expression` is true, among those of the fabric's DeviceClass.

    Attribute and values are what the expression reads; they are "" and () if the policy has an expression of its own.
    """

    expression: str
    attribute: str = ""
    values: Values = ()


class ClaimedRail(msgspec.Struct, frozen=True):
    """A rail whose devices come as claims."""

    name: str
    resource: str  # under which its devices count in placement; no pod requests it
    selector: RailSelector
    accelerators: RailSelector | None  # the GPUs beside it, if the node's shape pairs them
    parameters: dict[str, Any] | None  # opaque configuration of the driver

    @property
    def expression(self) -> str:
        """Return the CEL expression that is true for the rail's devices."""
        return self.selector.expression


class CompiledClaims(msgspec.Struct, frozen=True):
    """The claims of a fabric, with what follows from them."""

    claims: model.Claims
    driver: drivers.Driver
    rail_attribute: str
    pair_attribute: str | None  # qualified attribute that a GPU and its NIC share; None if no attribute pairs them
    accelerator_class: str | None  # DeviceClass of the GPUs; None if they are extended resources
    accelerator_resource: str  # under which the GPUs count
    rails: Mapping[str, ClaimedRail]  # by name, in the fabric's order


def compile_claims(name: str, document: model.PolicyDocument) -> CompiledClaims | None:
    """Return what follows from the claims of a fabric of a valid document. None if its rails do not come as claims."""
    fabric = document.fabrics[name]
    claims = fabric.claims
    if claims is None:
        return None
    driver = find_driver(claims)
    return CompiledClaims(
        claims=claims,
        driver=driver,
        rail_attribute=claims.rail_attribute or driver.rail_attribute or "",
        pair_attribute=find_pair_attribute(claims),
        accelerator_class=claims.accelerators.device_class if claims.accelerators else None,
        accelerator_resource=document.accelerators[0],
        rails={rail.name: _compile_rail(name, rail, claims, document.node_shapes) for rail in fabric.rails},
    )


def find_driver(claims: model.Claims) -> drivers.Driver:
    """Return the driver of the NICs."""
    return drivers.KNOWN.get(claims.driver) or drivers.describe_other(claims.driver_name or "")


def find_pair_attribute(claims: model.Claims) -> str | None:
    """Return the attribute that a GPU and its NIC share, or None if no attribute pairs them."""
    if claims.accelerators is None or claims.pair_by in (NODE_SHAPE, NO_PAIRS):
        return None
    return _PAIR_ATTRIBUTES.get(claims.pair_by, claims.pair_by)


def select_rail(rail: model.Rail, claims: model.Claims, shapes: Sequence[model.NodeShape]) -> RailSelector | None:
    """Return the selector of a rail's devices on nodes of all shapes, or None if nothing identifies the rail."""
    claim = rail.claim or model.RailClaim()
    if claim.expression is not None:
        return RailSelector(claim.expression)
    driver = find_driver(claims)
    if address := claim.pci_address or (claim.device_name and drivers.read_pci_address(claim.device_name)):
        return _select(driver.pci_attribute, (address,))
    attribute = claims.rail_attribute or driver.rail_attribute
    values = (claim.value,) if claim.value is not None else list_device_names(rail, claims, shapes)
    return _select(attribute, values) if attribute and values else None


def list_device_names(rail: model.Rail, claims: model.Claims, shapes: Sequence[model.NodeShape]) -> Values:
    """Return the names of the rail's RDMA device on nodes of all shapes, if they identify it; otherwise ()."""
    return rail.list_devices(shapes) if find_driver(claims).has_rdma_names else ()


def _compile_rail(
    fabric: str, rail: model.Rail, claims: model.Claims, shapes: Sequence[model.NodeShape]
) -> ClaimedRail:
    selector = select_rail(rail, claims, shapes)
    return ClaimedRail(
        name=rail.name,
        resource=names.claim_resource(fabric, rail.name),
        selector=selector or RailSelector("false"),
        accelerators=select_accelerators(rail.name, claims, shapes),
        parameters=drivers.build_parameters(
            find_driver(claims).form, rail.interface, rail.network_key, claims.parameters
        ),
    )


def select_accelerators(rail: str, claims: model.Claims, shapes: Sequence[model.NodeShape]) -> RailSelector | None:
    """Return the selector of the GPUs beside a rail on nodes of all shapes. None if the shape does not pair them."""
    if claims.accelerators is None or claims.pair_by != NODE_SHAPE:
        return None
    addresses = tuple(address for shape in shapes for address in shape.accelerators_of_rail.get(rail, ()))
    return _select(drivers.PCI_BUS_ID, addresses) if addresses else None


def _select(attribute: str, values: Values) -> RailSelector:
    return RailSelector(selectors.select_values(attribute, values), attribute, values)


def list_claim_resources(document: model.PolicyDocument) -> tuple[resource_names.ClaimResource, ...]:
    """Return the resources of all fabrics of a valid document whose rails come as claims."""
    named: dict[resource_names.ClaimResource, None] = {}
    for fabric in document.fabrics:
        claims = compile_claims(fabric, document)
        if claims is None:
            continue
        for rail in claims.rails.values():
            device_class = claims.claims.device_class
            named[resource_names.ClaimResource(rail.resource, device_class, (rail.expression,))] = None
        if claims.accelerator_class is not None:
            named[resource_names.ClaimResource(claims.accelerator_resource, claims.accelerator_class)] = None
    return tuple(named)
