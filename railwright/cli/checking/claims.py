"""Checks for pods whose devices come as claims or by slices: DeviceClasses, devices and pairs of each node, schedulers.

Those of fabrics whose rails come as claims run once for each; the subject of the assessment is the fabric.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from railwright.cli.checking import check_rows, policy, scheduling, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, assess_problems, fail, ok, require, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_name, get_path
from railwright.fabric import names, quantity, text
from railwright.fabric.claims import drivers, objects, selectors, slices
from railwright.fabric.policy import claimed_rails, model

_NO_CLAIMS = "no rails come as claims"
_SOURCES = ("device-classes", "device-slices")
_NOT_PLAIN = "because an expression is more than comparisons with constants, joined by &&"
_INJECTOR = "network-resources-injector"
_DRA_PREDICATE = "predicate.DynamicResourceAllocationEnable"  # of Volcano's plugin predicates, read before 1.15
_SEE_VERSION = "slices have no version; the driver's own is in the tag of its image: kubectl get daemonsets -A -o wide"

Device = slices.OfferedDevice


class _Offered(NamedTuple):
    """Devices of a node."""

    node: str
    nics: list[Device]
    accelerators: list[Device]
    counts: Counter[str]  # of NICs, by the resources for which they count


def _for_each_fabric(
    assess: Callable[[Snapshot, model.Fabric, claimed_rails.CompiledClaims], Assessment],
) -> check_rows.Assess:
    """Return a check that runs `assess` for each fabric whose rails come as claims."""

    def assess_fabrics(snapshot: Snapshot) -> Iterator[Assessment]:
        document = policy.require_policy(snapshot).document
        compiled = {name: claimed_rails.compile_claims(name, document) for name in document.fabrics}
        unread = next((snapshot.unread[source] for source in _SOURCES if source in snapshot.unread), None)
        for name, claims in compiled.items():
            if claims is not None and unread is not None:
                yield skip(unread, subject=name, unread=True)
            elif claims is not None:
                assessment = assess(snapshot, document.fabrics[name], claims)
                yield msgspec.structs.replace(assessment, subject=name)
        if not any(compiled.values()):
            yield skip(_NO_CLAIMS)

    return assess_fabrics


# --- classes ----------------------------------------------------------------------------------------------


def _check_classes(snapshot: Snapshot, _fabric: model.Fabric, claims: claimed_rails.CompiledClaims) -> Assessment:
    if "device-classes" in snapshot.unknown:
        return fail("the API server does not serve resource.k8s.io/v1, which Kubernetes has from 1.34")
    required = [name for name in (claims.claims.device_class, claims.accelerator_class) if name]
    existing = sorted(item.metadata.name for item in snapshot.get_all("device-classes"))
    missing = (name for name in required if name not in existing)
    sentence = f"there is no DeviceClass {{}}; there is {text.join_first(existing, 5) or 'none'}"
    return assess_problems(missing, text.join_first(required, 5), sentence, most=5)


# --- devices ----------------------------------------------------------------------------------------------


def _check_devices(snapshot: Snapshot, fabric: model.Fabric, claims: claimed_rails.CompiledClaims) -> Assessment:
    if not any(item.spec.driver == claims.driver.name for item in snapshot.get_all("device-slices")):
        return fail(
            f"no ResourceSlice has the driver {claims.driver.name}: pods stay Pending",
            hint="check the pods of the driver, and their right to write ResourceSlices: kubectl get resourceslices",
        )
    if unread := _list_unread_classes(snapshot, claims):
        return warn(f"the devices of DeviceClass {text.join_first(unread, 2)} do not count in scores, {_NOT_PLAIN}")
    offers = _list_offers(snapshot, claims)
    if not offers:
        return fail(f"no device of driver {claims.driver.name} is in DeviceClass {claims.claims.device_class}")
    problems = [
        f"{offer.node}: {problem}"
        for offer in offers
        for rail in claims.rails.values()
        if (problem := _find_rail_problem(rail, offer, fabric.devices_per_rail))
    ]
    summary = f"{text.format_count(len(offers), 'node')}, {text.format_count(len(claims.rails), 'rail')}"
    return assess_problems(problems, summary, bad=warn, most=4)


def _list_unread_classes(snapshot: Snapshot, claims: claimed_rails.CompiledClaims) -> list[str]:
    """Return the fabric's DeviceClasses with an expression that is not plain."""
    names_of_classes = (claims.claims.device_class, claims.accelerator_class)
    classes = [item for item in snapshot.get_all("device-classes") if item.metadata.name in names_of_classes]
    return [item.metadata.name for item in classes if selectors.read(item.expressions) is None]


def _find_rail_problem(rail: claimed_rails.ClaimedRail, offer: _Offered, devices_per_rail: int) -> str:
    """Return why a node has no device of a rail, or too few; "" if it has them."""
    nics, matching = offer.nics, offer.counts[rail.resource]
    if matching >= devices_per_rail:
        return ""
    if matching:
        return f"{rail.name} has {text.format_count(devices_per_rail, 'device', part=matching)}"
    if selectors.read((rail.expression,)) is None:
        return f"the devices of {rail.name} do not count in scores, {_NOT_PLAIN}"
    attributes = [rail.selector.attribute] if rail.selector.attribute else selectors.list_references(rail.expression)
    for attribute in attributes:
        if not any(nic.get_value(attribute) is not None for nic in nics):
            return f"{rail.name} has no device, because no device has the attribute {attribute}"
    if rail.selector.values:
        values = text.join_first(map(str, rail.selector.values), 5)
        actual = sorted(str(value) for nic in nics if (value := nic.get_value(attributes[0])) is not None)
        return f"{rail.name} has no device with {attributes[0]} {values}; there is {text.join_first(actual, 3)}"
    return f"{rail.name} has no device for which its expression is true"


def _list_offers(snapshot: Snapshot, claims: claimed_rails.CompiledClaims) -> list[_Offered]:
    """Return the devices of each node with a NIC of the fabric's DeviceClass and driver."""
    devices = policy.get_cluster(snapshot).claimed.inventory
    offers: dict[str, _Offered] = {}
    for device in devices.offered.devices.values():
        offer = offers.setdefault(device.node, _Offered(device.node, [], [], Counter()))
        is_nic, own_names = device.id.driver == claims.driver.name, devices.names.find_names(device)
        device_class = claims.claims.device_class if is_nic else claims.accelerator_class
        if f"{objects.IMPLICIT_RESOURCE_PREFIX}{device_class}" in own_names:
            (offer.nics if is_nic else offer.accelerators).append(device)
            offer.counts.update(own_names if is_nic else ())
    return [offers[node] for node in sorted(offers) if offers[node].nics]


# --- pairs ------------------------------------------------------------------------------------------------


def _check_pairs(snapshot: Snapshot, _fabric: model.Fabric, claims: claimed_rails.CompiledClaims) -> Assessment:
    require(claims.accelerator_class, "GPUs do not come in the claims, so that nothing can be paired")
    require(claims.claims.pair_by != claimed_rails.NO_PAIRS, "claims.pairBy is none")
    require(not _list_unread_classes(snapshot, claims), "the devices of a DeviceClass do not count")
    offers = [offer for offer in _list_offers(snapshot, claims) if offer.accelerators]
    if not offers:
        return fail(f"no node with rails has a device of DeviceClass {claims.accelerator_class}")
    problems = {offer.node: _find_pair_problem(claims, offer) for offer in offers}
    summary = f"{text.format_count(len(offers), 'node')}, by {claims.pair_attribute or 'nodeShapes'}"
    return assess_problems(problems, summary, "{}: pods that need a pair stay Pending there")


def _find_pair_problem(claims: claimed_rails.CompiledClaims, offer: _Offered) -> str:
    """Return why no GPU of a node can be paired with a rail, "" if one can."""
    if claims.pair_attribute is None:
        selections = [rail.accelerators for rail in claims.rails.values() if rail.accelerators is not None]
        addresses = {address for selection in selections for address in selection.values}
        if any(gpu.get_value(drivers.PCI_BUS_ID) in addresses for gpu in offer.accelerators):
            return ""
        return f"no GPU has one of the PCI bus IDs in acceleratorsOfRail ({drivers.PCI_BUS_ID})"
    gpus, nics = (
        {value for device in devices if (value := device.get_value(claims.pair_attribute)) is not None}
        for devices in (offer.accelerators, offer.nics)
    )
    if not gpus or not nics:
        return f"no {'NIC' if gpus else 'GPU'} has the attribute {claims.pair_attribute}"
    if gpus & nics:
        return ""
    gpu, nic = (text.join_first(sorted(map(str, values)), 1) for values in (gpus, nics))
    return f"{claims.pair_attribute} is never equal: GPUs have {gpu}, NICs {nic}"


# --- drivers ----------------------------------------------------------------------------------------------


def _check_drivers(snapshot: Snapshot) -> Assessment:
    """List the drivers. The row is never ticked, because the version of a driver that runs is in no slice."""
    nodes: dict[str, set[str]] = {}
    for offered in snapshot.get_all("device-slices"):
        spec = offered.spec
        nodes.setdefault(spec.driver, set()).update({spec.node_name, *(device.node_name for device in spec.devices)})
    require(nodes, "there are no ResourceSlices")
    described = (_describe_driver(name, len(on - {""})) for name, on in sorted(nodes.items()))
    return skip("; ".join([*described, _SEE_VERSION]))


def _describe_driver(name: str, nodes: int) -> str:
    where = f"{name} on {text.format_count(nodes, 'node')}" if nodes else name
    tested = drivers.TESTED_SLICES.get(name)
    return f"{where} ({'tested with slices of ' + ', '.join(tested) if tested else 'not tested'})"


# --- schedulers and other webhooks ------------------------------------------------------------------------


def _check_schedulers(snapshot: Snapshot) -> Assessment:
    require(any(fabric.claims for fabric in snapshot.fabrics.values()), _NO_CLAIMS)
    problems = [*_find_volcano_problems(snapshot), *_find_kube_scheduler_problems(snapshot)]
    return fail("; ".join(problems)) if problems else ok()


def _find_volcano_problems(snapshot: Snapshot) -> Iterator[str]:
    configuration = scheduling.read_volcano(snapshot)
    if snapshot.get_one("volcano") is None or configuration.problem:  # its own row reports the problem
        return
    plugins = scheduling.list_volcano_plugins(configuration)
    arguments = {plugin.get("name"): get_map(plugin, "arguments") for plugin in plugins}
    if _needs_argument(snapshot) and arguments.get("predicates", {}).get(_DRA_PREDICATE) is not True:
        yield (
            f"Volcano's plugin predicates has no argument {_DRA_PREDICATE}: true, without which Volcano before "
            "1.15 allocates no claims"
        )
    managed = arguments.get("extender", {}).get("extender.managedResources")
    if isinstance(managed, list) and names.RAILS not in managed:
        yield (
            f"extender.managedResources lacks {names.RAILS}: Volcano does not call the extender for pods "
            "whose devices all come as claims"
        )


def _needs_argument(snapshot: Snapshot) -> bool:
    """True unless Volcano is 1.15 or newer, which always allocates claims (pkg/scheduler/plugins/predicates)."""
    images = snapshots.list_images(snapshot.get_one("volcano-deployment"))
    versions = (re.match(r"(\d+)\.(\d+)", snapshots.get_image_version(image)) for image in images)
    return not any(match and (int(match[1]), int(match[2])) >= (1, 15) for match in versions)


def _find_kube_scheduler_problems(snapshot: Snapshot) -> Iterator[str]:
    for configuration in scheduling.list_kube_configurations(snapshot):
        for extender in scheduling.list_own_extenders(configuration):
            managed = get_list(extender, "managedResources")
            if managed and names.RAILS not in [get_path(item, "name") for item in managed]:
                yield (
                    f"{configuration.configmap}: managedResources lacks {names.RAILS}: kube-scheduler does not call "
                    "the extender for pods whose devices all come as claims"
                )


def _check_extended_resources(snapshot: Snapshot) -> Assessment:
    """Check that Volcano does not get pods with extended resources that only slices offer (KEP-5004)."""
    resources = {rail.resource for fabric in snapshot.fabrics.values() for rail in fabric.rails if rail.resource}
    mapped = {item.spec.extended_resource_name: item.metadata.name for item in snapshot.get_all("device-classes")}
    reported = {
        name
        for node in snapshot.get_all("nodes")
        for name in resources
        if quantity.read_units(node.status.capacity.get(name, 0))
    }
    by_slices = require(sorted((resources & mapped.keys()) - reported), "no rail's resource comes by slices")
    if snapshot.get_one("volcano") is None:
        return ok(text.join_first(by_slices, 4))
    return warn(
        f"DeviceClass {mapped[by_slices[0]]} maps {text.join_first(by_slices, 4)}, which no node reports: Volcano "
        "schedules no pod that requests it, because its plugins overcommit and proportion count what nodes report"
    )


def _check_injector(snapshot: Snapshot) -> Assessment:
    by_multus = [
        name
        for name, fabric in snapshot.fabrics.items()
        if fabric.claims and any(rail.network for rail in fabric.rails)
    ]
    require(by_multus, "no rails come as claims with networks")
    injectors = [name for item in snapshot.get_all("mutating") if _INJECTOR in (name := get_name(item))]
    if not injectors:
        return ok()
    return warn(
        f"{injectors[0]} adds the extended resource of each network to pods of fabric "
        f"{text.join_first(by_multus, 5)}, beside their claims: no node has it, and they stay Pending"
    )


CHECKS: Checks = {
    "claim-classes": _for_each_fabric(_check_classes),
    "claim-devices": _for_each_fabric(_check_devices),
    "claim-pairs": _for_each_fabric(_check_pairs),
    "claim-drivers": _check_drivers,
    "claim-schedulers": _check_schedulers,
    "claim-injector": _check_injector,
    "extended-resources": _check_extended_resources,
}
