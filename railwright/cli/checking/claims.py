"""Checks of fabrics with rails in claims: DeviceClasses, devices and pairs of each node.

Each runs once for each such fabric and names it in its result.
"""

from collections.abc import Iterator, Mapping, Sequence

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Result, fail, row, warn, warn_of
from railwright.cli.checking.snapshots import Snapshot, require
from railwright.fabric import text
from railwright.fabric.claims import claim_templates, inventory, objects, selectors, slices
from railwright.fabric.policy import compiled

GROUP = "claims"

_CREATE_CLASS = (
    "install the driver with its class (Kubernetes has resource.k8s.io/v1 from 1.34), or correct claims.deviceClass: "
    f"kubectl get deviceclasses; {rows.EDIT_POLICY}"
)


# devices of a node, each with the names of the resources for which it counts
_Named = Sequence[tuple[slices.OfferedDevice, Sequence[str]]]


def _list_claimed_fabrics(snapshot: Snapshot) -> Mapping[str, claim_templates.ClaimedFabric]:
    claimed = {claims.name: claims for claims in compiled.list_claimed_fabrics(snapshot.require_policy())}
    require(claimed, "no rails come as claims")
    snapshot.require("device-classes", "device-slices")
    return claimed


@row(
    f"correct what identifies the rail: kubectl get resourceslices -o yaml; {rows.EDIT_POLICY}",
    after="policy",
    each=_list_claimed_fabrics,
    heals=True,
)
def check_claim_devices(snapshot: Snapshot, claims: claim_templates.ClaimedFabric) -> Result:
    """Each node with ResourceSlices has the devices of each rail, and they can be paired with GPUs.

    For fabrics with `claims`. The DeviceClasses that the policy names exist (Kubernetes serves resource.k8s.io/v1 from
    1.34), and each node with ResourceSlices has `devicesPerRail` devices of each rail. The detail names the node, the
    rail, and the values that the devices have instead. A NIC that is missing in the slice is down or not bound to its
    driver. On nodes without a rail, pods that need it are not placed.

    Of the expressions of a DeviceClass, railwright evaluates comparisons with constants, joined by `&&`. The row warns
    of others: their devices do not count in scores, and kube-scheduler allocates them all the same.

    dranet 1.4 and older publish `dra.net/rdmaDevice` only for NICs without a network interface. Identify RoCE rails
    there by PCI address: set `railAttribute: dra.net/pciAddress`, and `claim` of each rail to its address.

    With `claims.acceleratorClass`, a GPU and a NIC of each node have an equal value of the attribute `claims.pairBy`.
    On AKS ND GB300 and OKE GB200 the PCIe roots are never equal, because GPUs are on NVLink C2C and the virtual
    functions have PCI domains of their own: use `pairBy: numaNode` where both drivers publish it, otherwise `none`.
    """
    classes = {item.metadata.name: item for item in snapshot.get_all("device-classes")}
    required = [name for name in (claims.device_class, claims.accelerator_class) if name]
    if missing := text.join_first((name for name in required if name not in classes), 5):
        detail = f"there is no DeviceClass {missing}; there is {text.join_first(sorted(classes), 5) or 'none'}"
        return fail(detail, _CREATE_CLASS)
    has_driver = any(item.spec.driver == objects.DRANET for item in snapshot.get_all("device-slices"))
    unread = [name for name in required if selectors.parse_terms(classes[name].expressions) is None]
    if unread and has_driver:
        return warn(
            f"the devices of DeviceClass {text.join_first(unread, 2)} do not count in scores, because an expression is "
            "more than comparisons with constants, joined by &&"
        )
    devices = snapshot.cluster.devices
    named = {node: devices.list_node_devices(node) for node in sorted(devices.offered.devices_by_node)}
    nodes = {node: listed for node, listed in named.items() if _list_devices(listed, claims.device_class)}
    if not nodes:
        return fail(
            f"no ResourceSlice has a device of DeviceClass {claims.device_class}: pods stay Pending",
            "check the pods of the driver, and their right to write ResourceSlices: kubectl get resourceslices",
        )
    problems = [
        f"{node}: {problem}" for node, listed in nodes.items() for problem in _find_missing_devices(claims, listed)
    ]
    counts = f"{text.format_count(len(nodes), 'node')}, {text.format_count(len(claims.rails), 'rail')}"
    if not claims.pair_attribute:
        return warn_of(problems, counts)
    with_gpus = {node: listed for node, listed in nodes.items() if _list_devices(listed, claims.accelerator_class)}
    if not with_gpus:
        return fail(f"no node with rails has a device of DeviceClass {claims.accelerator_class}")
    if unpaired := [
        f"{node}: {pair}" for node, listed in with_gpus.items() if (pair := _describe_unpairable(claims, listed))
    ]:
        fix = f"pair by an attribute that both drivers publish: {rows.EDIT_POLICY}"
        waiting = f"{text.join_first(unpaired, 4)}: pods that need a pair stay Pending there"
        return fail("; ".join([waiting, *problems[:4]]), fix)
    return warn_of(problems, f"{counts}, paired by {claims.pair_attribute}")


def _list_devices(named: _Named, device_class: str) -> list[slices.OfferedDevice]:
    return [device for device, own in named if inventory.name_class(device_class) in own]


def _read_values(named: _Named, device_class: str, attribute: str) -> list[str]:
    """Return the values of an attribute that the devices of a class have."""
    values = {device.get_value(attribute) for device in _list_devices(named, device_class)} - {None}
    return sorted(map(str, values))


def _find_missing_devices(claims: claim_templates.ClaimedFabric, named: _Named) -> Iterator[str]:
    """Yield a text for each rail of which a node has too few devices, with the attribute's values of its NICs."""
    for rail in claims.rails.values():
        count = sum(rail.resource in own for _, own in named)
        if count < claims.devices_per_rail:
            devices = text.format_count(claims.devices_per_rail, "device", part=count)
            wanted = text.join_first(map(str, rail.values), 5)
            actual = text.join_first(_read_values(named, claims.device_class, rail.attribute), 3)
            there = actual or "no such attribute"
            yield f"{rail.name} has {devices} with {rail.attribute} {wanted}; there is {there}"


def _describe_unpairable(claims: claim_templates.ClaimedFabric, named: _Named) -> str:
    """Return the values of `pairBy` of a node's GPUs and NICs, if no GPU and NIC have an equal one; otherwise ""."""
    gpus = _read_values(named, claims.accelerator_class, claims.pair_attribute)
    nics = _read_values(named, claims.device_class, claims.pair_attribute)
    if not {*gpus}.isdisjoint(nics):
        return ""
    gpu, nic = (text.join_first(values, 1) or "none" for values in (gpus, nics))
    return f"{claims.pair_attribute} is never equal: GPUs have {gpu}, NICs {nic}"
