"""Builds the ResourceClaimTemplates of a pod: a request for each GPU and rail, and constraints that pair them.

GPUs and rails are grouped as in the hardware of the node: P GPUs and R rails make min(P, R) groups. Eight GPUs and
four rails are four groups of two GPUs and a rail, eight GPUs and 32 EFA devices are eight groups of a GPU and four
rails.

A claim has one request for each rail, named like the rail, and one for each GPU, `gpu0` and so on. Each group of the
hardware has its own constraint; a single constraint for all devices would require one PCIe root for all. A group is
never split between claims, because constraints do not reach across claims. A claim holds at most 32 devices, requests,
constraints and configurations.

The name of a template contains a hash of its content. A template whose content does not match its name is not used. The
name also contains the numbers of GPUs and rails, because injection removes the GPUs from the containers of a workload:
`railwright-roce-2x4-3f2a91c0de` is two GPUs and four rails of fabric roce.
"""

import hashlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import names, views
from railwright.fabric.claims import objects, selectors

Tree = dict[str, Any]

# --- names ------------------------------------------------------------------------------------------------

MAX_ACCELERATORS = 1024  # of a pod in claims, above any node (the range of gpusPerNode); a name has four digits
_DIGITS = 10  # of the hash
_MAX_FABRIC = 40  # characters of the fabric's name; the hash has all of it
_INVALID = re.compile(r"[^a-z0-9]+")
_NAME = re.compile(
    rf"{names.CLAIM_TEMPLATE_PREFIX}.{{1,{_MAX_FABRIC}}}-(\d{{1,4}})x(\d{{1,4}})-([0-9a-f]{{{_DIGITS}}})"
)
_encode = msgspec.json.Encoder(order="sorted").encode


class RailwrightClaim(NamedTuple):
    """Entry of a pod's spec.resourceClaims that names a ResourceClaimTemplate written by railwright."""

    position: int
    name: str
    template: str


def build_template_name(fabric: str, accelerators: int, rails: int, devices: Tree) -> str:
    """Return the name of the ResourceClaimTemplate with this spec.devices.

    The numbers of GPUs and rails are those of all claims of the pod together.
    """
    readable = _INVALID.sub("-", fabric.lower()).strip("-")[:_MAX_FABRIC]
    return f"{names.CLAIM_TEMPLATE_PREFIX}{readable}-{accelerators}x{rails}-{_hash_devices(devices)}"


def has_matching_hash(name: str, devices: Any) -> bool:
    """True if the hash in a ResourceClaimTemplate's name is the hash of its spec.devices."""
    match = _NAME.fullmatch(name)
    return match is not None and match[3] == _hash_devices(devices)


def _hash_devices(devices: Any) -> str:
    return hashlib.sha256(_encode(devices)).hexdigest()[:_DIGITS]


def name_claim_entries(count: int) -> tuple[str, ...]:
    """Return the names of the entries in a pod's spec.resourceClaims for this number of claims."""
    return (names.POD_CLAIM, *(f"{names.POD_CLAIM}-{number}" for number in range(2, count + 1)))


_CLAIM_NAMES = frozenset(name_claim_entries(99))  # more than a pod has


def read_gpu_count(template: str) -> int | None:
    """Return the number of GPUs in the name of railwright's ResourceClaimTemplate; None for any other template."""
    match = _NAME.fullmatch(template)
    return int(match[1]) if match else None


def list_railwright_claims(pod: views.Pod) -> Sequence[RailwrightClaim]:
    """Return the entries of a pod's spec.resourceClaims that railwright has added, in their order.

    Such an entry has one of railwright's names and names a template of railwright. A pod that the API server has not
    validated may repeat names: the result is then empty.
    """
    own = [
        RailwrightClaim(index, entry.name, entry.resource_claim_template_name)
        for index, entry in enumerate(pod.spec.resource_claims or ())
        if entry.name in _CLAIM_NAMES
    ]
    if len(own) > len(_CLAIM_NAMES):
        return []
    return [claim for claim in own if read_gpu_count(claim.template) is not None]


def count_accelerators(pod: views.Pod, containers: Sequence[views.Container]) -> list[int]:
    """Return how many GPUs each of these containers of a pod gets from claims that railwright has added."""
    counts = {claim.name: read_gpu_count(claim.template) or 0 for claim in list_railwright_claims(pod)}
    return [  # each name has the GPUs of all claims
        max([0, *[counts[claim.name] for claim in container.resources.claims if claim.name in counts]])
        if counts and container.resources is not None
        else 0
        for container in containers
    ]


# --- templates --------------------------------------------------------------------------------------------


class ClaimedRail(msgspec.Struct, frozen=True):
    """Rail that pods request by claims. Its devices are those whose `attribute` has one of `values`."""

    name: str  # of the rail, and of its request
    position: int  # in the fabric
    attribute: str
    values: tuple[str | int, ...]
    resource: str = ""  # under which its devices count in placement; no pod requests it
    interface: str = ""  # its name in the pod; "" if the driver chooses it

    @property
    def expression(self) -> str:
        """CEL expression that selects the rail's devices."""
        return selectors.build_expression(self.attribute, self.values)


class ClaimPlan(msgspec.Struct, frozen=True):
    """ResourceClaimTemplates that a pod needs: spec.devices by name of the template, and the number of GPUs in all."""

    fabric: str
    accelerators: int
    templates: dict[str, Tree]

    def build_templates(self, namespace: str) -> list[Tree]:
        """Return the ResourceClaimTemplates for a namespace. Claims that are made from them get the same labels."""
        labels = {names.FABRIC: self.fabric, names.MANAGED_BY: names.OWNER}
        return [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {"metadata": {"labels": labels}, "spec": {"devices": devices}},
            }
            for name, devices in self.templates.items()
        ]


class ClaimedFabric(msgspec.Struct, frozen=True):
    """Fabric whose rails pods request by claims: DeviceClasses, rails, and the number of GPUs of a node."""

    name: str
    device_class: str  # of the NICs
    rails: Mapping[str, ClaimedRail]  # by name, in the fabric's order
    accelerators: int  # GPUs of a node
    devices_per_rail: int = 1
    accelerator_class: str = ""  # "" if the GPUs are extended resources
    accelerator_resource: str = ""  # under which the GPUs count
    pair_attribute: str = ""  # that a GPU and its NIC share; "" if none does

    def plan_claims(self, rails: int | Collection[str], accelerators: int) -> ClaimPlan:
        """Return the claims of a pod. `rails` has the names of its rails, or their number if any rails will do."""
        own = [*self.rails.values()]
        if isinstance(rails, int):  # requests are named nic0 and so on, and may get any rail's device
            values = tuple([value for rail in own for value in rail.values])
            named = zip(_generate_names("nic", self.rails), own[:rails], strict=False)
            requested = [msgspec.structs.replace(rail, name=name, values=values) for name, rail in named]
        else:
            requested = [rail for rail in own if rail.name in rails]
        specs = build_claim_devices(self, requested, accelerators)
        templates = {build_template_name(self.name, accelerators, len(requested), spec): spec for spec in specs}
        return ClaimPlan(self.name, accelerators, templates)


class DeviceGroup(NamedTuple):
    """GPUs and rails that a pod needs from one group of the hardware, such as one PCIe root."""

    accelerators: int
    rails: tuple[ClaimedRail, ...] = ()


def build_claim_devices(fabric: ClaimedFabric, rails: Sequence[ClaimedRail], accelerators: int) -> Sequence[Tree]:
    """Return spec.devices of each claim of a pod. A claim gets as many groups of devices as fit into 32 devices.

    `accelerators` is the number of GPUs in all claims. A group of more than 32 devices gets a claim of its own, which
    the API server rejects.
    """
    accelerator_names = _generate_names("gpu", [rail.name for rail in rails])
    specs: list[Tree] = []
    room = 0
    for group in group_devices(fabric, accelerators, rails):
        size = group.accelerators + len(group.rails) * fabric.devices_per_rail
        if not specs or size > room:
            specs.append({"requests": [], "constraints": [], "config": []})
            room = objects.MAX_DEVICES
        _add_group_requests(specs[-1], fabric, group, [next(accelerator_names) for _ in range(group.accelerators)])
        room -= size
    return [{key: items for key, items in spec.items() if items} for spec in specs]


def group_devices(fabric: ClaimedFabric, accelerators: int, rails: Sequence[ClaimedRail]) -> Sequence[DeviceGroup]:
    """Return the groups of a pod's devices, in the order of its rails.

    GPUs are spread evenly over the groups that have a rail of the pod, up to the number of GPUs of such a group on a
    node. Each GPU above that is a group of its own, which may come from anywhere on the node. If the fabric does not
    pair GPUs with rails, each device is a group of its own.
    """
    if not fabric.pair_attribute:
        return (*[DeviceGroup(0, (rail,)) for rail in rails], *[DeviceGroup(1)] * accelerators)
    groups, rails_of_group = max(1, min(fabric.accelerators, len(fabric.rails))), dict[int, list[ClaimedRail]]()
    for rail in rails:
        rails_of_group.setdefault(rail.position * groups // len(fabric.rails), []).append(rail)
    count = len(rails_of_group)
    beside = min(accelerators, count * (fabric.accelerators // groups))
    shares = [beside // count + (part < beside % count) for part in range(count)]
    paired = [
        DeviceGroup(share, tuple(members)) for share, members in zip(shares, rails_of_group.values(), strict=True)
    ]
    return (*paired, *[DeviceGroup(1)] * (accelerators - beside))


def _add_group_requests(spec: Tree, fabric: ClaimedFabric, group: DeviceGroup, gpus: Sequence[str]) -> None:
    """Add the requests of a group to spec.devices of a claim, with the constraint and the interface names."""
    spec["requests"] += [_build_request(name, fabric.accelerator_class) for name in gpus]
    for rail in group.rails:
        spec["requests"].append(
            _build_request(rail.name, fabric.device_class, rail.expression, fabric.devices_per_rail)
        )
        if rail.interface:
            opaque = {"driver": objects.DRANET, "parameters": {"interface": {"name": rail.interface}}}
            spec["config"].append({"requests": [rail.name], "opaque": opaque})
    if gpus and group.rails:
        members = [*gpus, *[rail.name for rail in group.rails]]
        spec["constraints"].append({"requests": members, "matchAttribute": fabric.pair_attribute})


def _build_request(name: str, device_class: str, expression: str = "", count: int = 1) -> Tree:
    exactly: Tree = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def _generate_names(prefix: str, taken: Collection[str]) -> Iterator[str]:
    """Yield PREFIX0, PREFIX1 and so on, except the names in `taken`."""
    return (name for number in itertools.count() if (name := f"{prefix}{number}") not in taken)
