"""Checks of fabrics whose rails come as claims: DeviceClasses, devices of each node, and pairs.

They run once for each of these fabrics; the subject of the assessment is the fabric.
"""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from railwright.cli.checking import check_rows, offered_devices, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.cluster import expression_process
from railwright.fabric import text
from railwright.fabric.claims import comparisons, drivers, evaluations, objects, selectors, slices, unknown_selectors
from railwright.fabric.policy import claimed_rails, model

_NO_CLAIMS = "no rails come as claims"
_SOURCES = ("device-classes", "device-slices")

Device = slices.OfferedDevice


class Offered(msgspec.Struct, frozen=True):
    """Devices of a node by name, and what is known about which expressions they match."""

    node: str
    nics: Mapping[str, Device]
    accelerators: Mapping[str, Device]
    results: evaluations.Evaluations

    def has_match(self, expression: str, device: Device) -> bool:
        """True if a device matches an expression, or if that is unknown: a row of its own tells this."""
        return self.results.evaluate(expression, device).may_match


Assess = Callable[[snapshots.ClusterSnapshot, model.Fabric, claimed_rails.CompiledClaims], check_rows.Assessment]


def _for_each_fabric(assess: Assess) -> check_rows.Assess:
    """Return a check that runs `assess` for each fabric whose rails come as claims."""

    def assess_fabrics(snapshot: snapshots.ClusterSnapshot) -> Iterator[check_rows.Assessment]:
        document = snapshot.policy
        if document is None or not any(fabric.claims for fabric in document.fabrics.values()):
            yield skip(_NO_CLAIMS)
            return
        unread = next((snapshot.unread[source] for source in _SOURCES if source in snapshot.unread), None)
        for name, fabric in document.fabrics.items():
            claims = claimed_rails.compile_claims(name, document)
            if claims is None:
                continue
            if unread is not None:
                yield skip(unread, subject=name, unread=True)
            else:
                yield msgspec.structs.replace(assess(snapshot, fabric, claims), subject=name)

    return assess_fabrics


# --- classes ----------------------------------------------------------------------------------------------


def _check_classes(
    snapshot: snapshots.ClusterSnapshot, _fabric: model.Fabric, claims: claimed_rails.CompiledClaims
) -> check_rows.Assessment:
    if "device-classes" in snapshot.unknown:
        return fail("the API server does not serve resource.k8s.io/v1, which Kubernetes has from 1.34")
    classes = _list_classes(claims)
    missing = [name for name in classes if _find_class(snapshot, name) is None]
    if missing:
        existing = (
            snapshots.join_limited(sorted(item.metadata.name for item in snapshot.get_all("device-classes"))) or "none"
        )
        return fail(f"there is no DeviceClass {snapshots.join_limited(missing)}; there is {existing}")
    return ok(snapshots.join_limited(classes))


def _list_classes(claims: claimed_rails.CompiledClaims) -> list[str]:
    return [name for name in (claims.claims.device_class, claims.accelerator_class) if name]


def _find_class(snapshot: snapshots.ClusterSnapshot, name: str) -> objects.DeviceClass | None:
    return next((item for item in snapshot.get_all("device-classes") if item.metadata.name == name), None)


def _get_expressions(snapshot: snapshots.ClusterSnapshot, name: str | None) -> tuple[str, ...]:
    device_class = _find_class(snapshot, name) if name else None
    return device_class.expressions if device_class else ()


# --- devices ----------------------------------------------------------------------------------------------


def _check_devices(
    snapshot: snapshots.ClusterSnapshot, fabric: model.Fabric, claims: claimed_rails.CompiledClaims
) -> check_rows.Assessment:
    if not any(item.spec.driver == claims.driver.name for item in snapshot.get_all("device-slices")):
        return fail(
            f"no ResourceSlice has the driver {claims.driver.name}: pods stay Pending",
            hint="check the pods of the driver, and their right to write ResourceSlices: kubectl get resourceslices",
        )
    offers = _list_offers(snapshot, claims)
    if not offers:
        return fail(f"no device of driver {claims.driver.name} is in DeviceClass {claims.claims.device_class}")
    problems = [
        f"{offer.node}: {problem}"
        for offer in offers
        for rail in claims.rails.values()
        if (problem := _find_rail_problem(rail, offer, fabric.devices_per_rail))
    ]
    if problems:
        return warn(snapshots.join_limited(problems, 4))
    return ok(f"{text.format_count(len(offers), 'node')}, {text.format_count(len(claims.rails), 'rail')}")


def _find_rail_problem(rail: claimed_rails.ClaimedRail, offer: Offered, devices_per_rail: int) -> str:
    """Return why a node has no device of a rail, or too few; "" if it has them."""
    nics = offer.nics
    matching = [name for name, nic in nics.items() if offer.has_match(rail.expression, nic)]
    if len(matching) >= devices_per_rail:
        return ""
    if matching:
        return f"{rail.name} has {text.format_count(devices_per_rail, 'device', part=len(matching))}"
    attributes = [rail.selector.attribute] if rail.selector.attribute else selectors.list_references(rail.expression)
    for attribute in attributes:
        if not any(_get_value(nic, attribute) is not None for nic in nics.values()):
            return f"{rail.name} has no device, because no device has the attribute {attribute}"
    if rail.selector.values:
        values = snapshots.join_limited(str(value) for value in rail.selector.values)
        actual = sorted(str(value) for nic in nics.values() if (value := _get_value(nic, attributes[0])) is not None)
        return f"{rail.name} has no device with {attributes[0]} {values}; there is {snapshots.join_limited(actual, 3)}"
    return f"{rail.name} has no device for which its expression is true"


def _list_offers(snapshot: snapshots.ClusterSnapshot, claims: claimed_rails.CompiledClaims) -> list[Offered]:
    """Return the devices of each node with a NIC of the fabric's DeviceClass and driver."""
    index = slices.SliceIndex()
    index.replace(snapshot.get_all("device-slices"))
    of_nics = _get_expressions(snapshot, claims.claims.device_class)
    of_accelerators = _get_expressions(snapshot, claims.accelerator_class)
    selections = [rail.accelerators.expression for rail in claims.rails.values() if rail.accelerators is not None]
    rails = [rail.expression for rail in claims.rails.values()]
    results = evaluations.Evaluations()
    for device in index.devices.values():  # asks what cannot be evaluated here, so that one process answers it all
        is_nic = device.id.driver == claims.driver.name
        for expression in (*of_nics, *rails) if is_nic else (*of_accelerators, *selections):
            results.evaluate(expression, device)
    if questions := results.list_questions():
        results.answer(expression_process.answer_all(questions))
    nics: dict[str, dict[str, Device]] = {}
    accelerators: dict[str, dict[str, Device]] = {}
    for device in index.devices.values():
        if device.id.driver == claims.driver.name:
            if results.match_all(of_nics, device).may_match:
                nics.setdefault(device.node, {})[device.id.device] = device
        elif claims.accelerator_class and results.match_all(of_accelerators, device).may_match:
            accelerators.setdefault(device.node, {})[device.id.device] = device
    return [Offered(node, nics[node], accelerators.get(node, {}), results) for node in sorted(nics)]


def _get_value(device: Device, attribute: str) -> object:
    attributes = device.device.attributes or {}
    domain, _, name = attribute.rpartition("/")
    value = attributes.get(attribute) or (attributes.get(name) if domain == device.id.driver else None)
    return value.value if value is not None else None


# --- expressions ------------------------------------------------------------------------------------------


def _check_expressions(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if not snapshot.get_all("device-classes") or not snapshot.get_all("device-slices"):
        return skip("there are no DeviceClasses, or no devices")
    unknown = offered_devices.list_unknown(snapshot)
    if not unknown:
        return ok(f"DeviceClasses: {len(snapshot.get_all('device-classes'))}")
    problems = [f"{row.kind} {row.metadata.name or 'railwright-policy'}: {_describe_unknown(row)}" for row in unknown]
    return warn(snapshots.join_limited(problems, 3))


def _describe_unknown(row: unknown_selectors.UnknownSelector) -> str:
    verb = "fails" if row.match is comparisons.Match.FAILS else "is unknown"
    return f"{row.expression} {verb} for device {row.device} ({row.cause})"


# --- pairs ------------------------------------------------------------------------------------------------


def _check_pairs(
    snapshot: snapshots.ClusterSnapshot, _fabric: model.Fabric, claims: claimed_rails.CompiledClaims
) -> check_rows.Assessment:
    if claims.accelerator_class is None:
        return skip("GPUs do not come in the claims, so that nothing can be paired")
    if claims.claims.pair_by == claimed_rails.NO_PAIRS:
        return skip("claims.pairBy is none")
    offers = [offer for offer in _list_offers(snapshot, claims) if offer.accelerators]
    if not offers:
        return fail(f"no node with rails has a device of DeviceClass {claims.accelerator_class}")
    problems = [f"{offer.node}: {problem}" for offer in offers if (problem := _find_pair_problem(claims, offer))]
    if problems:
        return fail(f"{snapshots.join_limited(problems, 3)}: pods that need a pair stay Pending there")
    return ok(f"{text.format_count(len(offers), 'node')}, by {claims.pair_attribute or 'nodeShapes'}")


def _find_pair_problem(claims: claimed_rails.CompiledClaims, offer: Offered) -> str:
    """Return why no GPU of a node can be paired with a rail, "" if one can."""
    if claims.pair_attribute is None:
        selections = [rail.accelerators.expression for rail in claims.rails.values() if rail.accelerators is not None]
        gpus = offer.accelerators.values()
        if any(offer.has_match(expression, gpu) for expression in selections for gpu in gpus):
            return ""
        return f"no GPU has one of the PCI bus IDs in acceleratorsOfRail ({drivers.PCI_BUS_ID})"
    values = [
        {value for device in devices.values() if (value := _get_value(device, claims.pair_attribute)) is not None}
        for devices in (offer.accelerators, offer.nics)
    ]
    for noun, own in zip(("GPU", "NIC"), values, strict=True):
        if not own:
            return f"no {noun} has the attribute {claims.pair_attribute}"
    if values[0] & values[1]:
        return ""
    gpu, nic = (snapshots.join_limited(sorted(map(str, own)), 1) for own in values)
    return f"{claims.pair_attribute} is never equal: GPUs have {gpu}, NICs {nic}"


CHECKS: check_rows.Checks = {
    "claim-classes": _for_each_fabric(_check_classes),
    "claim-expressions": _check_expressions,
    "claim-devices": _for_each_fabric(_check_devices),
    "claim-pairs": _for_each_fabric(_check_pairs),
}
