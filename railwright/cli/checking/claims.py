"""Rows about fabrics with rails in claims: DeviceClasses, devices and pairs of each node.

Each runs once for each such fabric and names it in its result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Assessment, fail, row, warn, warn_of
from railwright.cli.checking.snapshots import Snapshot, require
from railwright.fabric import text
from railwright.fabric.claims import claim_templates, inventory, objects, selectors, slices
from railwright.fabric.policy import compiled

GROUP = "claims"

_CREATE_CLASS = (
    f"install the driver with its class, or correct claims.deviceClass: kubectl get deviceclasses; {rows.EDIT_POLICY}"
)


class _Offer(NamedTuple):
    """Devices of a node that has NICs of a fabric."""

    node: str
    nics: list[slices.OfferedDevice]
    accelerators: list[slices.OfferedDevice]
    counts: Counter[str]  # of NICs, by the resources for which they count


def _list_claimed_fabrics(snapshot: Snapshot) -> Mapping[str, claim_templates.ClaimedFabric]:
    claimed = {claims.name: claims for claims in compiled.list_claimed_fabrics(snapshot.require_policy())}
    require(claimed, "no rails come as claims")
    snapshot.require("device-classes", "device-slices")
    return claimed


@row(
    f"correct what identifies the rail: kubectl get resourceslices -o yaml; {rows.EDIT_POLICY}",
    after="policy",
    each=_list_claimed_fabrics,
)
def check_claim_devices(snapshot: Snapshot, claims: claim_templates.ClaimedFabric) -> Assessment:
    """Each node with slices has the devices of each rail, and they can be paired with GPUs.

    For fabrics with `claims`. The DeviceClasses that the policy names exist (Kubernetes serves resource.k8s.io/v1 from
    1.34), and each node with slices has `devicesPerRail` devices of each rail. The detail names the node, the rail, and
    the values that the devices have instead. A NIC that is missing in the slice is down or not bound to its driver. On
    nodes without a rail, pods that need it are not placed.

    Of the expressions of a DeviceClass, railwright evaluates comparisons with constants, joined by `&&`. The row warns
    of others: their devices do not count in scores, and kube-scheduler allocates them all the same.

    dranet 1.4 and older publish `dra.net/rdmaDevice` only for NICs without a network interface: identify RoCE rails
    there by `railAttribute: dra.net/pciAddress` and `claim`, the PCI address.

    With `claims.acceleratorClass`, a GPU and a NIC of each node have an equal value of the attribute `claims.pairBy`.
    On AKS ND GB300 and OKE GB200 the PCIe roots are never equal, because GPUs are on NVLink C2C and the virtual
    functions have PCI domains of their own: use `pairBy: numaNode` where both drivers publish it, otherwise `none`.
    """
    if "device-classes" in snapshot.unknown:
        return fail("the API server does not serve resource.k8s.io/v1, which Kubernetes has from 1.34", _CREATE_CLASS)
    existing = sorted(item.metadata.name for item in snapshot.get_all("device-classes"))
    required = [name for name in (claims.device_class, claims.accelerator_class) if name]
    if missing := text.join_first((name for name in required if name not in existing), 5):
        detail = f"there is no DeviceClass {missing}; there is {text.join_first(existing, 5) or 'none'}"
        return fail(detail, _CREATE_CLASS)
    if not any(item.spec.driver == objects.DRANET for item in snapshot.get_all("device-slices")):
        return fail(
            f"no ResourceSlice has the driver {objects.DRANET}: pods stay Pending",
            "check the pods of the driver, and their right to write ResourceSlices: kubectl get resourceslices",
        )
    if unread := _list_unread_classes(snapshot, claims):
        return warn(
            f"the devices of DeviceClass {text.join_first(unread, 2)} do not count in scores, because an expression is "
            "more than comparisons with constants, joined by &&"
        )
    offers = _list_offers(snapshot, claims)
    if not offers:
        return fail(f"no device of driver {objects.DRANET} is in DeviceClass {claims.device_class}")
    problems = [
        f"{offer.node}: {problem}"
        for offer in offers
        for rail in claims.rails.values()
        if (problem := _find_rail_problem(rail, offer, claims.devices_per_rail))
    ]
    if claims.pair_attribute:
        if not any(offer.accelerators for offer in offers):
            return fail(f"no node with rails has a device of DeviceClass {claims.accelerator_class}")
        if unpaired := [*_find_unpaired(claims.pair_attribute, offers)]:
            pair = f"pair by an attribute that both drivers publish: {rows.EDIT_POLICY}"
            listed = f"{text.join_first(unpaired, 4)}: pods that need a pair stay Pending there"
            return fail("; ".join([listed, *problems[:4]]), pair)
    counts = f"{text.format_count(len(offers), 'node')}, {text.format_count(len(claims.rails), 'rail')}"
    paired = f", paired by {claims.pair_attribute}" if claims.pair_attribute else ""
    return warn_of(problems, counts + paired)


def _list_unread_classes(snapshot: Snapshot, claims: claim_templates.ClaimedFabric) -> list[str]:
    """Return the fabric's DeviceClasses with an expression that railwright does not evaluate."""
    names_of_classes = (claims.device_class, claims.accelerator_class)
    classes = [item for item in snapshot.get_all("device-classes") if item.metadata.name in names_of_classes]
    return [item.metadata.name for item in classes if selectors.read(item.expressions) is None]


def _list_offers(snapshot: Snapshot, claims: claim_templates.ClaimedFabric) -> list[_Offer]:
    """Return the devices of each node with a NIC of the fabric's DeviceClass and driver."""
    devices = snapshot.cluster.devices
    offers: dict[str, _Offer] = {}
    for device in devices.offered.devices.values():
        offer = offers.setdefault(device.node, _Offer(device.node, [], [], Counter()))
        is_nic, own_names = device.id.driver == objects.DRANET, devices.names.find_names(device)
        device_class = claims.device_class if is_nic else claims.accelerator_class
        if inventory.name_class(device_class or "") in own_names:
            (offer.nics if is_nic else offer.accelerators).append(device)
            offer.counts.update(own_names if is_nic else ())
    return [offers[node] for node in sorted(offers) if offers[node].nics]


def _find_rail_problem(rail: claim_templates.ClaimedRail, offer: _Offer, devices_per_rail: int) -> str:
    """Return why a node has too few devices of a rail; "" if it has enough."""
    matching = offer.counts[rail.resource]
    if matching >= devices_per_rail:
        return ""
    if matching:
        return f"{rail.name} has {text.format_count(devices_per_rail, 'device', part=matching)}"
    actual = sorted(str(value) for nic in offer.nics if (value := nic.get_value(rail.attribute)) is not None)
    missing = f"{rail.name} has no device with {rail.attribute} {text.join_first(map(str, rail.values), 5)}"
    return f"{missing}; there is {text.join_first(actual, 3) or 'no such attribute'}"


def _find_unpaired(attribute: str, offers: list[_Offer]) -> Iterator[str]:
    """Yield each node with GPUs and NICs that never have an equal value of the attribute."""
    for offer in offers:
        gpus, nics = (
            {device.get_value(attribute) for device in devices} for devices in (offer.accelerators, offer.nics)
        )
        if offer.accelerators and not gpus & nics - {None}:
            gpu, nic = (text.join_first(sorted(map(str, values - {None})), 1) or "none" for values in (gpus, nics))
            yield f"{offer.node}: {attribute} is never equal: GPUs have {gpu}, NICs {nic}"
