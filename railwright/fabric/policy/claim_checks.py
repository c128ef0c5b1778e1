"""Checks fabrics whose rails come as claims: driver, pairs and configuration (docs/interface.md 2.6).

Paths are relative to the fabric. What identifies each rail is checked in `rail_identity_checks`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from railwright.fabric.claims import drivers
from railwright.fabric.policy import claimed_rails, findings, model, rail_identity_checks

Finding = findings.Finding
Shapes = Sequence[model.NodeShape]

_DRIVER: findings.Path = ("fabrics", "*", "claims", "driver")
_PARAMETERS: findings.Path = ("claims", "parameters")
# keys that would be equal for all rails of a pod, and that railwright writes for each
_KEYS_OF_ONE_RAIL = {
    drivers.Form.NETWORK_CONFIG: ("name", "addresses", "hardwareAddr"),
    drivers.Form.VF_CONFIG: ("apiVersion", "kind", "ifName", "netAttachDefName", "netAttachDefNamespace"),
}


def check(fabric: model.Fabric, shapes: Shapes) -> Iterator[Finding]:
    """Yield a finding for each violated rule about the claims of a fabric."""
    if fabric.claims is None:
        yield from _check_without_claims(fabric)
        return
    for rule in _RULES:
        yield from rule(fabric, fabric.claims, shapes)


def _check_without_claims(fabric: model.Fabric) -> Iterator[Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.claim is not None:
            message = "has no effect: the fabric has no claims; add `claims` with its deviceClass, or remove the key"
            yield Finding(("rails", index, "claim"), message, (("fabrics", "*", "claims"),))


def _check_transport(fabric: model.Fabric, _claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    if fabric.transport is model.Transport.TCP:
        message = "has no effect: transport tcp has no rails; remove claims, or set the transport of the rails"
        yield Finding(("claims",), message, (("fabrics", "*", "transport"),))


def _check_driver(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    path: findings.Path = ("claims", "driverName")
    if claims.driver == "other" and claims.driver_name is None:
        message = (
            "is missing: driver other needs the name in spec.driver of its ResourceSlices, such as nic.example.com"
        )
        yield Finding(path, message, (_DRIVER,))
    elif claims.driver != "other" and claims.driver_name is not None:
        known = claimed_rails.find_driver(claims).name
        message = f"is for driver other only: driver {claims.driver} is {known}; remove the key, or set driver: other"
        yield Finding(path, message, (_DRIVER,))


def _check_networks(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    form = claimed_rails.find_driver(claims).form
    for index, rail in enumerate(fabric.rails):
        path: findings.Path = ("rails", index, "network")
        if form is drivers.Form.NETWORK_CONFIG and rail.network is not None:
            message = (
                f"{findings.quote(rail.network)} would attach a second device: dranet moves the interface into the pod "
                "without Multus; remove the key"
            )
            yield Finding(path, message, (_DRIVER,))
        elif form in (drivers.Form.VF_CONFIG, drivers.Form.NONE) and rail.network is None:
            message = (
                f"is missing: driver {claims.driver} attaches rail {findings.quote(rail.name)} by its "
                "NetworkAttachmentDefinition; name it, such as prod/rdma-lan2"
            )
            yield Finding(path, message, (_DRIVER,))


def _check_pairs(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    if claims.accelerators is None:
        if claims.pair_by not in ("pcieRoot", claimed_rails.NO_PAIRS):  # the default cannot be told from pcieRoot
            message = (
                "has no effect: only GPUs of the same claim can be paired with rails; "
                "add accelerators with the DeviceClass of the GPUs, or remove the key"
            )
            yield Finding(("claims", "pairBy"), message, (("fabrics", "*", "claims", "accelerators"),))
        return
    if claims.pair_by == claimed_rails.NO_PAIRS:
        return
    if fabric.gpus_per_node is None:
        message = (
            f"is missing: pairBy {claims.pair_by} needs the number of GPUs of a node, such as 8; "
            "without it, the GPUs of a rail are unknown"
        )
        yield Finding(("gpusPerNode",), message, (("fabrics", "*", "claims", "pairBy"),))
    if claims.pair_by == claimed_rails.NODE_SHAPE:
        yield from _check_shape_pairs(fabric, shapes)


def _check_shape_pairs(fabric: model.Fabric, shapes: Shapes) -> Iterator[Finding]:
    rail_names = [rail.name for rail in fabric.rails]
    if not any(shape.accelerators_of_rail.keys() & set(rail_names) for shape in shapes):
        message = (
            '"nodeShape" needs the GPUs beside each rail; add acceleratorsOfRail to nodeShapes, '
            'such as {rail0: ["0008:01:00.0"]}'
        )
        yield Finding(("claims", "pairBy"), message, (("nodeShapes",), ("fabrics", "*", "rails", "*", "name")))
    of_rail = {
        name: {address for shape in shapes for address in shape.accelerators_of_rail.get(name, ())}
        for name in rail_names
    }
    for shape in shapes:
        for name in rail_names:
            own = shape.accelerators_of_rail.get(name, ())
            others = {address for rail in rail_names for address in shape.accelerators_of_rail.get(rail, ())}
            if wrong := sorted((of_rail[name] & others) - set(own)):
                message = (
                    f"rail {findings.quote(name)} has the GPU {wrong[0]} on nodes of another shape, but on those of "
                    f"shape {findings.quote(shape.name)} the GPU belongs to another rail: one claim serves nodes of "
                    "all shapes; use a fabric for each shape"
                )
                yield Finding(("claims", "pairBy"), message, (("nodeShapes",),))
                return


def _check_size(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    """Check that a rail's devices fit into a claim, and those of a pair: constraints do not reach across claims."""
    gpus, rails = fabric.gpus_per_node, len(fabric.rails)
    if fabric.devices_per_rail > drivers.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} devices of a rail are one request, but a ResourceClaim has at most "
            f"{drivers.MAX_DEVICES} devices; lower it"
        )
        yield Finding(("devicesPerRail",), message, (("fabrics", "*", "claims"),))
        return
    if claims.accelerators is None or claims.pair_by == claimed_rails.NO_PAIRS or gpus is None or not rails:
        return
    groups = min(gpus, rails)
    devices = gpus // groups + -(-rails // groups) * fabric.devices_per_rail
    if devices > drivers.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} makes {devices} devices of each pair of GPUs and rails, but a ResourceClaim "
            f"has at most {drivers.MAX_DEVICES}; lower it, or set claims.pairBy: none"
        )
        yield Finding(("devicesPerRail",), message, (("fabrics", "*", "rails"), ("fabrics", "*", "gpusPerNode")))


def _check_parameters(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    form = claimed_rails.find_driver(claims).form
    if form is drivers.Form.NONE and claims.parameters:
        message = (
            "has no effect: in the mode MULTUS, dra-driver-sriov reads no configuration; "
            "configure the rails' NetworkAttachmentDefinitions instead"
        )
        yield Finding(_PARAMETERS, message, (_DRIVER,))
    interface = claims.parameters.get("interface")
    nested = interface if form is drivers.Form.NETWORK_CONFIG and isinstance(interface, dict) else {}
    for key in _KEYS_OF_ONE_RAIL.get(form, ()):
        for path, keys in ((_PARAMETERS, claims.parameters), ((*_PARAMETERS, "interface"), nested)):
            if key in keys:
                message = "would be equal for all rails of a pod; railwright sets the interface's name of each rail"
                yield Finding((*path, key), f"{message}; remove the key", (_DRIVER,))
    if form is drivers.Form.NETWORK_CONFIG and "interface" in claims.parameters and not isinstance(interface, dict):
        yield Finding((*_PARAMETERS, "interface"), "is not a mapping; write its keys, such as {mtu: 9000}", (_DRIVER,))
    for path, number in _list_large_numbers(claims.parameters, _PARAMETERS):
        yield Finding(path, findings.describe_large_number(number), (_DRIVER,))
    size = len(json.dumps(claims.parameters).encode())
    if size > drivers.MAX_PARAMETERS:
        message = f"has {size} bytes, but the configuration of a claim has at most {drivers.MAX_PARAMETERS}; shorten it"
        yield Finding(_PARAMETERS, message)


def _list_large_numbers(value: Any, path: findings.Path) -> Iterator[tuple[findings.Path, int]]:
    """Yield the integers in a value that the API server cannot read, with their paths."""
    if isinstance(value, int) and not findings.fits_64_bits(value):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _list_large_numbers(item, (*path, key))


_RULES: tuple[Callable[[model.Fabric, model.Claims, Shapes], Iterator[Finding]], ...] = (
    _check_transport,
    _check_driver,
    _check_networks,
    _check_pairs,
    _check_size,
    _check_parameters,
    rail_identity_checks.check,
)
