"""Checks that each rail that comes as claims is identified once, and no two rails by the same devices.

Paths are relative to the fabric (docs/interface.md 2.6).
"""

from collections.abc import Iterator, Mapping, Sequence

from railwright.fabric.claims import cel_programs, comparisons, drivers, objects, selectors
from railwright.fabric.policy import claimed_rails, findings, model

Finding = findings.Finding
Shapes = Sequence[model.NodeShape]

_DRIVER: findings.Path = ("fabrics", "*", "claims", "driver")
_RAIL: findings.Path = ("fabrics", "*", "rails", "*")
_SHAPES: findings.Path = ("nodeShapes",)
_KEYS = "deviceName, pciAddress, value or expression"

_HAS_RESULT = frozenset({comparisons.Match.YES, comparisons.Match.NO})


def check(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Yield a finding for each violated rule about what identifies the rails."""
    yield from _check_attribute(claims)
    for index, rail in enumerate(fabric.rails):
        for finding in _check_rail(rail, claims, shapes):
            yield Finding(("rails", index, *finding.path), finding.message, (_DRIVER, *finding.rests_on))
    yield from _check_ambiguity(fabric, claims, shapes)


def _check_attribute(claims: model.Claims) -> Iterator[Finding]:
    if claims.rail_attribute in drivers.WITHDRAWN:
        yield Finding(("claims", "railAttribute"), _describe_withdrawn(claims.rail_attribute))


def _describe_withdrawn(attribute: str) -> str:
    return (
        f"{findings.quote(attribute)} is gone while a pod holds the device, because its interface is in the pod then; "
        "use dra.net/rdmaDevice or dra.net/pciAddress"
    )


def _check_rail(rail: model.Rail, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Yield the findings about one rail. Paths are relative to it."""
    if rail.resource is not None:
        message = (
            f"{findings.quote(rail.resource)} is an extended resource, but the fabric's rails come as claims; "
            "remove it, or remove claims from the fabric"
        )
        yield Finding(("resource",), message, (("fabrics", "*", "claims"),))
    if rail.claim is None:
        yield from _check_identified(rail, claims, shapes)
        return
    keys = [
        key
        for key, value in (
            ("deviceName", rail.claim.device_name),
            ("pciAddress", rail.claim.pci_address),
            ("value", rail.claim.value),
            ("expression", rail.claim.expression),
        )
        if value is not None
    ]
    if len(keys) != 1:
        problem = f"identifies the rail {len(keys)} times, by {', '.join(keys)}" if keys else "identifies nothing"
        yield Finding(("claim",), f"{problem}; set exactly one of {_KEYS}", (_RAIL,))
    elif rail.claim.device_name is not None:
        yield from _check_device_name(rail.claim.device_name, claims)
    elif rail.claim.expression is not None:
        yield from _check_expression(rail.claim.expression, claimed_rails.find_driver(claims).name)
    elif rail.claim.value is not None:
        if isinstance(rail.claim.value, int) and not findings.fits_64_bits(rail.claim.value):
            yield Finding(("claim", "value"), findings.describe_large_number(rail.claim.value))
        yield from _check_has_attribute(rail, claims)


def _check_identified(rail: model.Rail, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    driver = claimed_rails.find_driver(claims)
    if not driver.has_rdma_names:
        message = (
            f"is missing: {driver.rail_attribute}, which identifies rails of driver {claims.driver}, is not the name "
            "of an RDMA device; set its value, such as claim: {value: intel.com/rail0}"
        )
        yield Finding(("claim",), message, (_RAIL,))
    elif not claimed_rails.list_device_names(rail, claims, shapes):
        message = (
            f"is missing: nothing identifies the devices of rail {findings.quote(rail.name)}; set device, such as "
            f"mlx5_0, or claim with one of {_KEYS}"
        )
        yield Finding(("claim",), message, (_RAIL, _SHAPES))
    else:
        yield from _check_has_attribute(rail, claims)


def _check_has_attribute(rail: model.Rail, claims: model.Claims) -> Iterator[Finding]:
    if claims.rail_attribute is None and claimed_rails.find_driver(claims).rail_attribute is None:
        message = (
            f"the value that identifies rail {findings.quote(rail.name)} belongs to no attribute: set "
            "claims.railAttribute, such as example.com/rdmaDevice, or identify the rail by pciAddress or expression"
        )
        yield Finding(("claim",), message, (("fabrics", "*", "claims", "railAttribute"),))


def _check_device_name(name: str, claims: model.Claims) -> Iterator[Finding]:
    path: findings.Path = ("claim", "deviceName")
    if not claimed_rails.find_driver(claims).has_pci_names:
        message = (
            f"{findings.quote(name)} cannot be selected: a ResourceClaim selects by attributes, and only names of "
            "dranet have one, the PCI address; set pciAddress, value or expression"
        )
        yield Finding(path, message)
    elif drivers.read_pci_address(name) is None:
        message = (
            f"{findings.quote(name)} has no PCI address, such as pci-0000-20-1b-0, and a ResourceClaim selects by "
            "attributes only; set value or expression"
        )
        yield Finding(path, message)


def _check_expression(expression: str, driver: str) -> Iterator[Finding]:
    path: findings.Path = ("claim", "expression")
    try:
        if comparisons.parse(expression) is None:
            cel_programs.compile_expression(expression)
    except cel_programs.NotEvaluatedError as error:
        message = f"{findings.quote(expression)} is no expression over `device` that railwright evaluates: {error}; "
        yield Finding(path, f"{message}correct it")
        return
    unguarded = selectors.list_unguarded(expression)
    for attribute in unguarded:
        domain, _, name = attribute.rpartition("/")
        message = (
            f"reads {attribute} without has(): devices may lack it, and pods are then not scheduled at all; "
            f'begin with has(device.attributes["{domain}"].{name}) &&'
        )
        yield Finding(path, message)
    if not unguarded:
        yield from _check_without_attributes(expression, driver)
    for attribute in selectors.list_references(expression):
        if attribute in drivers.WITHDRAWN:
            yield Finding(path, _describe_withdrawn(attribute))


def _check_without_attributes(expression: str, driver: str) -> Iterator[Finding]:
    """Check that the expression has a result for a device that lacks all attributes."""
    plain, empty = comparisons.parse(expression), objects.Device()
    if plain is not None and plain(empty, driver) in _HAS_RESULT:
        return
    result = cel_programs.evaluate(expression, empty, driver)
    if result.match not in _HAS_RESULT:
        message = (
            f"fails for a device without attributes ({result.cause}): devices may lack them, and pods are then not "
            "scheduled at all; test each attribute with has() in the part that reads it"
        )
        yield Finding(("claim", "expression"), message)


def _check_ambiguity(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that no device is selected by two rails."""
    rails_by_expression: dict[str, str] = {}
    rail_by_value: dict[tuple[str, object], model.Rail] = {}
    for index, rail in enumerate(fabric.rails):
        selector = claimed_rails.select_rail(rail, claims, shapes)
        if selector is None:
            continue
        other = rails_by_expression.setdefault(selector.expression, rail.name)
        if not selector.values and other != rail.name:
            message = f"is that of rail {findings.quote(other)}, so that each could get the other's device"
            yield Finding(("rails", index, "claim", "expression"), f"{message}; correct one", (_RAIL,))
        for value in selector.values:
            earlier = rail_by_value.setdefault((selector.attribute, value), rail)
            if earlier.name != rail.name:
                message = _describe_ambiguity(rail, earlier, value, shapes)
                yield Finding(("rails", index), message, (_RAIL, _DRIVER, _SHAPES))
                break


def _describe_ambiguity(rail: model.Rail, earlier: model.Rail, value: object, shapes: Shapes) -> str:
    pair = f"rails {findings.quote(earlier.name)} and {findings.quote(rail.name)}"
    places = [_find_place(either, value, shapes) for either in (earlier, rail)]
    if places[0] == places[1]:
        return f"{pair} are both identified by {findings.quote(value)}, so that each could get the other's device"
    return (
        f"{pair} are ambiguous: {findings.quote(value)} is the device of {findings.quote(earlier.name)} {places[0]} "
        f"and of {findings.quote(rail.name)} {places[1]}, and one claim serves nodes of all shapes; identify them by "
        "an attribute that is equal on all nodes, or use a fabric for each shape"
    )


def _find_place(rail: model.Rail, value: object, shapes: Shapes) -> str:
    of_shape: Mapping[str, str | None] = {shape.name: shape.devices.get(rail.name) for shape in shapes}
    shape = next((name for name, device in of_shape.items() if device == value), None)
    return "by its own key" if shape is None else f"on nodes of shape {findings.quote(shape)}"
