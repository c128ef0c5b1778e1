"""Builds the ResourceClaimTemplates of a pod: GPUs and NICs that share what pairs them, one request a device.

A claim has one request for each rail, named like the rail, and one for each GPU, `gpu0` and so on. One constraint for
each group of the hardware makes true pairs; one for all devices would ask that all share a PCIe root. Claims are cut
between groups, because constraints do not reach across claims and a claim holds at most 32 devices.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric.claims import expressions, pairing

MAX_DEVICES = 32  # AllocationResultsMaxSize of resource.k8s.io/v1; requests, constraints and configurations too
_API_VERSION = "resource.k8s.io/v1"

Tree = dict[str, Any]


class RailRequest(msgspec.Struct, frozen=True):
    """The NIC of a rail, or of any rail of the fabric."""

    name: str  # of the request
    position: int  # in the fabric
    expression: str  # CEL; true for the devices that may be allocated
    parameters: Mapping[str, Any] | None = None  # opaque configuration of the driver
    beside: str = ""  # CEL; true for the GPUs beside it. "" if an attribute pairs them


class Hardware(msgspec.Struct, frozen=True):
    """Describes the nodes of a fabric, and the classes and attributes of its devices."""

    device_class: str  # of the NICs
    driver: str  # of the NICs, for their configuration
    node: pairing.Node
    devices_per_rail: int = 1
    accelerator_class: str = ""  # "" if the GPUs are extended resources
    pair_attribute: str = ""  # that a GPU and its NIC share; "" if none does


class Labels(msgspec.Struct, frozen=True):
    """Labels and annotations of a template. The labels go to its claims, too."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def build_specs(hardware: Hardware, rails: Sequence[RailRequest], accelerators: int) -> tuple[Tree, ...]:
    """Return the `devices` of each claim of a pod. `accelerators` is the number of its GPUs in the claims."""
    requests = {rail.position: rail for rail in rails}
    claims = _cut(hardware, accelerators, list(requests))
    accelerator_names = _name_accelerators({rail.name for rail in rails})
    return tuple(_build_devices(hardware, groups, requests, accelerator_names) for groups in claims)


def count_claims(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> int:
    """Return the number of claims for GPUs and rails, by the positions of the rails."""
    return len(_cut(hardware, accelerators, rails))


def build_template(namespace: str, name: str, labels: Labels, devices: Tree) -> Tree:
    """Return a ResourceClaimTemplate."""
    metadata = {"name": name, "namespace": namespace, "labels": labels.labels, "annotations": labels.annotations}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"metadata": {"labels": labels.labels}, "spec": {"devices": devices}},
    }


def _cut(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> list[list[pairing.Group]]:
    """Return the groups of each claim: as many as fit, in order."""
    claims: list[list[pairing.Group]] = []
    room = 0
    for group in _list_groups(hardware, accelerators, rails):
        size = _measure(hardware, group)
        if not claims or size > room:
            claims.append([])
            room = MAX_DEVICES
        claims[-1].append(group)
        room -= size
    return claims


def _list_groups(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> Iterator[pairing.Group]:
    """Yield the groups. One that is larger than a claim is divided: its GPUs come first, with the rails that fit."""
    for group in pairing.group_devices(hardware.node, accelerators, rails):
        rest = group
        while _measure(hardware, rest) > MAX_DEVICES and (len(rest.rails) > 1 or rest.accelerators):
            beside = min(rest.accelerators, MAX_DEVICES)
            fitting = max((MAX_DEVICES - beside) // hardware.devices_per_rail, 0 if beside else 1)
            yield pairing.Group(beside, rest.rails[:fitting])
            rest = pairing.Group(rest.accelerators - beside, rest.rails[fitting:])
        yield rest


def _measure(hardware: Hardware, group: pairing.Group) -> int:
    return group.accelerators + len(group.rails) * hardware.devices_per_rail


def _name_accelerators(taken: Collection[str]) -> Iterator[str]:
    """Yield gpu0, gpu1 and so on, without the names of rails."""
    number = 0
    while True:
        if (name := f"gpu{number}") not in taken:
            yield name
        number += 1


def _build_devices(
    hardware: Hardware,
    groups: Sequence[pairing.Group],
    rails: Mapping[int, RailRequest],
    accelerator_names: Iterator[str],
) -> Tree:
    """Return the field `devices` of a claim's spec."""
    requests: list[Tree] = []
    constraints: list[Tree] = []
    configurations: list[Tree] = []
    for group in groups:
        own_rails = [rails[position] for position in group.rails]
        own_accelerators = [next(accelerator_names) for _ in range(group.accelerators)]
        beside = expressions.join([rail.beside for rail in own_rails if rail.beside])
        requests += [_request(name, hardware.accelerator_class, beside) for name in own_accelerators]
        requests += [
            _request(rail.name, hardware.device_class, rail.expression, hardware.devices_per_rail) for rail in own_rails
        ]
        if hardware.pair_attribute and own_accelerators and own_rails:
            members = [*own_accelerators, *(rail.name for rail in own_rails)]
            constraints.append({"requests": members, "matchAttribute": hardware.pair_attribute})
        configurations += [_configure(hardware, rail) for rail in own_rails if rail.parameters is not None]
    devices: Tree = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    if configurations:
        devices["config"] = configurations
    return devices


def _request(name: str, device_class: str, expression: str, count: int = 1) -> Tree:
    exactly: Tree = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def _configure(hardware: Hardware, rail: RailRequest) -> Tree:
    return {"requests": [rail.name], "opaque": {"driver": hardware.driver, "parameters": rail.parameters}}
