"""Builds the ResourceClaimTemplates of a pod: GPUs and NICs that share what pairs them, one request a device.

GPUs and rails are grouped as the hardware of the node does: P GPUs and R rails make min(P, R) groups. Eight GPUs and
four rails are four groups of two GPUs and a rail, eight GPUs and 32 EFA devices are eight groups of a GPU and four
rails.

A claim has one request for each rail, named like the rail, and one for each GPU, `gpu0` and so on. One constraint for
each group of the hardware makes true pairs; one for all devices would ask that all share a PCIe root. Claims are cut
between groups, because constraints do not reach across claims. A claim holds at most 32 devices, and as many requests,
constraints and configurations.

Chooses the rails of a gang: those on which the nodes have free devices for the most pods.

Names the templates, and reads the claims of a pod that name one. A name has the numbers of GPUs and rails, because the
pods of a mutated workload request no GPUs any more: `railwright-roce-2x4-3f2a91c0de` is two GPUs and four rails of
fabric roce. A pod whose claims were cut has a second template with the suffix `-2`.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import names, views
from railwright.fabric.claims import drivers, node_devices, selectors

# --- names ------------------------------------------------------------------------------------------------

MAX_ACCELERATORS = 1024  # of a pod in claims, above any node (the range of gpusPerNode); a name has four digits
_DIGITS = 10  # of the hash
_MAX_FABRIC = 40  # characters of the fabric's name; the hash has all of it
_MAX_NAME = 100  # characters, above the longest name with all its parts
_INVALID = re.compile(r"[^a-z0-9]+")
_NAME = re.compile(rf"{names.CLAIM_TEMPLATE_PREFIX}.+-(\d{{1,4}})x(\d{{1,4}})-[0-9a-f]{{{_DIGITS}}}(-\d{{1,2}})?")


class OwnClaim(NamedTuple):
    """An entry of a pod's spec.resourceClaims that names a template of railwright."""

    position: int
    name: str
    template: str


def build_names(fabric: str, accelerators: int, rails: int, inputs: bytes, claims: int) -> tuple[str, ...]:
    """Return the names of the templates of a pod. `inputs` is everything that the templates depend on."""
    readable = _INVALID.sub("-", fabric.lower()).strip("-")[:_MAX_FABRIC]
    digest = hashlib.sha256(inputs).hexdigest()[:_DIGITS]
    first = f"{names.CLAIM_TEMPLATE_PREFIX}{readable}-{accelerators}x{rails}-{digest}"
    return (first, *(f"{first}-{number}" for number in range(2, claims + 1)))


def name_claims(count: int) -> tuple[str, ...]:
    """Return the names of a pod's entries in spec.resourceClaims."""
    return (names.POD_CLAIM, *(f"{names.POD_CLAIM}-{number}" for number in range(2, count + 1)))


_CLAIM_NAMES = frozenset(name_claims(99))  # two digits, as in the names of templates


def is_own_name(template: str) -> bool:
    """True if a template has a name that railwright gives."""
    return _match(template) is not None


def read_accelerators(template: str) -> int:
    """Return the number of GPUs in the name of a template of railwright, 0 for another name."""
    match = _match(template)
    return int(match[1]) if match else 0


def is_first(template: str) -> bool:
    """True if a template of railwright is the first one of its pods."""
    match = _match(template)
    return match is not None and match[3] is None


def list_claims(pod: views.Pod) -> Sequence[OwnClaim]:
    """Return the claims of a pod that name a template of railwright, in order.

    Only the names that railwright gives to claims count. A pod that was not validated yet may repeat them: then there
    are none.
    """
    own = [
        OwnClaim(index, entry.name, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims or ())
        if entry.name in _CLAIM_NAMES
    ]
    if len(own) > len(_CLAIM_NAMES):
        return []
    return [claim for claim in own if is_own_name(claim.template)]


def list_templates(pod: views.Pod) -> list[str]:
    """Return the templates of railwright that a pod names."""
    return [claim.template for claim in list_claims(pod)]


def count_accelerators(pod: views.Pod, containers: Sequence[views.Container]) -> list[int]:
    """Return the number of GPUs that each of these containers of a pod gets from claims of railwright."""
    counts = {claim.name: read_accelerators(claim.template) for claim in list_claims(pod)}
    return [  # each name has the GPUs of all claims
        max([0, *[counts[claim.name] for claim in container.resources.claims if claim.name in counts]])
        if counts and container.resources is not None
        else 0
        for container in containers
    ]


def _match(template: str) -> re.Match[str] | None:
    return _NAME.fullmatch(template) if len(template) <= _MAX_NAME else None


# --- templates --------------------------------------------------------------------------------------------

_API_VERSION = "resource.k8s.io/v1"

Tree = dict[str, Any]


class Node(msgspec.Struct, frozen=True):
    """GPUs and rails of a node."""

    accelerators: int
    rails: int

    @property
    def groups(self) -> int:
        """Number of groups."""
        return max(1, min(self.accelerators, self.rails))

    @property
    def accelerators_of_group(self) -> int:
        """Number of GPUs that each group has. If they are not divided evenly, some groups have one more."""
        return self.accelerators // self.groups

    def find_group(self, rail: int) -> int:
        """Return the group of the rail at a position of the fabric."""
        return rail * self.groups // max(1, self.rails)


class Group(msgspec.Struct, frozen=True):
    """Devices that a pod needs from one group of the hardware: GPUs by number, rails by position in the fabric."""

    accelerators: int
    rails: tuple[int, ...] = ()


def group_devices(node: Node, accelerators: int, rails: Sequence[int]) -> tuple[Group, ...]:
    """Return the groups of a pod's devices, in the order of its rails.

    GPUs go to the groups of the pod's rails first, evenly, and no more than each group has. Each of the others is a
    group of its own, because the claim does not say where it is.
    """
    rails_of_group: dict[int, list[int]] = {}
    for rail in rails:
        rails_of_group.setdefault(node.find_group(rail), []).append(rail)
    beside = min(accelerators, len(rails_of_group) * node.accelerators_of_group)
    shares = _divide(beside, len(rails_of_group))
    paired = [Group(share, tuple(members)) for share, members in zip(shares, rails_of_group.values(), strict=True)]
    return (*paired, *[Group(1)] * (accelerators - beside))


def order_rails(node: Node, count: int, groups: Sequence[int], preferred: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of the first `count` rails of hardware groups, in the order of the fabric.

    `groups` are the groups to use, and `preferred` all rails, each in order of preference.
    """
    positions = [rail for group in groups for rail in preferred if node.find_group(rail) == group]
    return tuple(sorted(positions[:count]))


def _divide(number: int, parts: int) -> Iterator[int]:
    """Yield `parts` shares of a number, which differ by one at most."""
    for part in range(parts):
        yield number // parts + (part < number % parts)


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
    node: Node
    devices_per_rail: int = 1
    accelerator_class: str = ""  # "" if the GPUs are extended resources
    pair_attribute: str = ""  # that a GPU and its NIC share; "" if none does


def build_specs(hardware: Hardware, rails: Sequence[RailRequest], accelerators: int) -> tuple[Tree, ...]:
    """Return the `devices` of each claim of a pod. `accelerators` is the number of its GPUs in the claims."""
    requests = {rail.position: rail for rail in rails}
    claims = _cut(hardware, accelerators, list(requests))
    accelerator_names = _name_accelerators({rail.name for rail in rails})
    return tuple(_build_devices(hardware, groups, requests, accelerator_names) for groups in claims)


def count_claims(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> int:
    """Return the number of claims for GPUs and rails, by the positions of the rails."""
    return len(_cut(hardware, accelerators, rails))


def build_template(
    namespace: str, name: str, labels: Mapping[str, str], annotations: Mapping[str, str], devices: Tree
) -> Tree:
    """Return a ResourceClaimTemplate. The labels go to its claims, too."""
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata,
        "spec": {"metadata": {"labels": labels}, "spec": {"devices": devices}},
    }


def _cut(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> list[list[Group]]:
    """Return the groups of each claim: as many as fit, in order."""
    claims: list[list[Group]] = []
    room = 0
    for group in _list_groups(hardware, accelerators, rails):
        size = _measure(hardware, group)
        if not claims or size > room:
            claims.append([])
            room = drivers.MAX_DEVICES
        claims[-1].append(group)
        room -= size
    return claims


def _list_groups(hardware: Hardware, accelerators: int, rails: Sequence[int]) -> Iterator[Group]:
    """Yield the groups. One that is larger than a claim is divided: its GPUs come first, with the rails that fit."""
    for group in group_devices(hardware.node, accelerators, rails):
        rest = group
        while _measure(hardware, rest) > drivers.MAX_DEVICES and (len(rest.rails) > 1 or rest.accelerators):
            beside = min(rest.accelerators, drivers.MAX_DEVICES)
            fitting = max((drivers.MAX_DEVICES - beside) // hardware.devices_per_rail, 0 if beside else 1)
            yield Group(beside, rest.rails[:fitting])
            rest = Group(rest.accelerators - beside, rest.rails[fitting:])
        yield rest


def _measure(hardware: Hardware, group: Group) -> int:
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
    groups: Sequence[Group],
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
        beside = selectors.join([rail.beside for rail in own_rails if rail.beside])
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


class FreeDevices(msgspec.Struct, frozen=True):
    """Devices that no claim holds, and the pods that will take some of them. Rails are positions in the fabric."""

    nodes: Mapping[node_devices.FreeRails, int] = {}  # number of nodes by their free devices
    waiting: Mapping[tuple[int, ...], int] = {}  # number of pods without a node, by the rails of their template


def choose_rails(
    hardware: Hardware, count: int, accelerators: int, free: FreeDevices, *, last_first: bool = False
) -> tuple[int, ...]:
    """Return the positions of the rails of a gang, whose pods need `count` of them and GPUs in their claims.

    Groups of the hardware are added one by one, each time the one that leaves room for the most pods. Of equal groups
    the first is taken, with `last_first` the last. Of a group that is not taken whole, the rails are taken that leave
    room for the most pods each.
    """

    # Greedy, because the sets of groups are too many to try. Each step rates a set as a whole: rails that are free on
    # different nodes make no room for a pod.
    def count_room(rails: Sequence[int]) -> int:
        return _count_room(hardware, count, accelerators, rails, free)

    node = hardware.node
    preferred = sorted(range(node.rails), key=lambda rail: -count_room((rail,)))
    groups: list[int] = []
    chosen: tuple[int, ...] = ()
    while len(chosen) < count and len(groups) < node.groups:
        candidates = {
            group: order_rails(node, count, [*groups, group], preferred)
            for group in range(node.groups)
            if group not in groups
        }
        order = {group: group if last_first else -group for group in candidates}
        best = max(candidates, key=lambda group: (count_room(candidates[group]), order[group]))
        groups.append(best)
        chosen = candidates[best]
    return chosen


def _count_room(hardware: Hardware, count: int, accelerators: int, rails: Sequence[int], free: FreeDevices) -> int:
    """Return the number of pods that can have these rails, less those that wait for one of them.

    If these are only some of the `count` rails of a pod, they need that part of its GPUs beside them.
    """
    beside = -(-accelerators * len(rails) // count)
    groups = group_devices(hardware.node, beside, rails)
    offered = sum(
        number * _count_pods(node, groups, accelerators, hardware.devices_per_rail)
        for node, number in free.nodes.items()
    )
    # Pods that wait hold no device yet. Were they left out, gangs created at once would all get the same rails.
    return offered - sum(number for others, number in free.waiting.items() if not set(rails).isdisjoint(others))


def _count_pods(node: node_devices.FreeRails, groups: Sequence[Group], accelerators: int, devices_per_rail: int) -> int:
    """Return the number of pods for which a node has the rails of all groups, and the GPUs beside them."""
    pods = min(node.rails[rail] for group in groups for rail in group.rails) // devices_per_rail
    if pods and accelerators:
        pods = min(pods, node.accelerators // accelerators)
    if not pods or not node.places:
        return pods
    shares: Counter[int] = Counter()  # GPUs of a pod by place
    free: dict[int, int] = {}
    for group in groups:
        known = {place: rail for rail in group.rails if (place := node.places[rail]) is not None}
        if len(known) > 1 and group.accelerators:
            return 0  # a constraint is for all devices of a group
        for place, rail in known.items():
            shares[place] += group.accelerators
            free[place] = node.accelerators_beside[rail]
    return min([pods, *(free[place] // share for place, share in shares.items() if share)])
