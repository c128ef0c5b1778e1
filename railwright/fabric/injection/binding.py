"""Builds the annotations of a pod at binding: its placement on the fabric, and the device list of its node or claims.

The rules are in docs/interface.md 3.3. Binding never rejects a pod: a pod without an annotation is better than a pod
that is not bound, and a scheduler tries a pod with allocated claims on the same node for ever.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import device_names, intent, names, node_views, quantity, resources, topology, views
from railwright.fabric.claims import allocation, drivers, selectors
from railwright.fabric.injection import claim_requests, context, env_tables, environment, facts, opt_in, plan, record
from railwright.fabric.nccl import derive
from railwright.fabric.policy import claimed_rails, compiled, model, presets
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import AdmissionCode

_NIC_DRIVERS = frozenset(driver.name for driver in drivers.KNOWN.values())


class Binding(msgspec.Struct, frozen=True):
    """The annotations of a pod at binding, and warnings.

    Annotations that exceed the limit are left out: the API server would reject every later update of the pod.
    """

    annotations: Mapping[str, str]
    warnings: tuple[reasons.Reason, ...] = ()


class Claims(msgspec.Struct, frozen=True):
    """The devices that the claims of a pod hold. `unallocated` names claims of which no allocation is known."""

    devices: tuple[allocation.AllocatedDevice, ...] = ()
    unallocated: tuple[str, ...] = ()


NO_CLAIMS = Claims()


def bind(  # noqa: PLR0913, PLR0917 - the inputs of a binding
    pod: views.Pod,
    policy: policies.Policy,
    cluster: facts.ClusterFacts,
    node: node_views.Node,
    claims: Claims = NO_CLAIMS,
    problem: reasons.Reason | None = None,
) -> Binding | None:
    """Return what is written to a pod bound to `node`, or None if it did not opt in.

    `problem` says why the extender did not place the pod, None if it did.
    """
    try:
        ctx = _build_context(pod, policy, cluster)
    except reasons.RefusedError:  # the pod was admitted under another policy
        return _build_binding(pod, {names.PLACEMENT: _build_fallback_placement(pod, policy.document, node)})
    if ctx is None:
        return None
    skipped = {"extender": rendering.record(problem)} if problem is not None else msgspec.UNSET
    rails, nics, unknown = _find_rails(pod, ctx, node, claims)
    placement = _format_placement(ctx.document, ctx.fabric, node, [rail.name for rail in rails], nics, skipped)
    if unknown is not None:
        return _build_binding(pod, {names.PLACEMENT: placement}, (unknown,))
    policy_rails = [rail.rail for rail in rails]
    if nics:
        held = tuple(nic.rdma_device for nic in nics)
        devices = held if all(held) else None
    else:
        devices = device_names.resolve_on_node(ctx.document, policy_rails, node.metadata.labels)
    return _build_binding(pod, {names.PLACEMENT: placement, **_write_devices(pod, ctx, policy_rails, devices)})


def _find_rails(
    pod: views.Pod, ctx: context.InjectionContext, node: node_views.Node, claims: Claims
) -> tuple[Sequence[compiled.ResolvedRail], tuple[intent.AllocatedRail, ...], reasons.Reason | None]:
    """Return the pod's rails, the NICs that its claims hold, and why their RDMA devices are not known.

    A pod whose claims hold no NIC gets its rails by its node.
    """
    rails = _select_allocatable(ctx.rails, node)
    if not ctx.role.rails or not (claims.devices or claims.unallocated):
        return rails, (), None
    fabric = ctx.policy.compile_once(compiled.compile_policy).fabrics[ctx.fabric_name]
    nics = assign(claims.devices, ctx.document, fabric, node.metadata.labels)
    unnamed = tuple(f"{nic.device} ({nic.claim}/{nic.request})" for nic in nics if not nic.rdma_device)
    problem = None
    if claims.unallocated and claim_requests.has_claimed_rails(pod, ctx):
        problem = reasons.make(AdmissionCode.ALLOCATION_UNKNOWN, claims=claims.unallocated)
    elif unnamed and has_names(fabric):
        problem = reasons.make(AdmissionCode.ALLOCATED_DEVICES_UNNAMED, devices=unnamed)
    held = [fabric.rails[name] for name in dict.fromkeys(nic.rail for nic in nics) if name]
    return held or rails, nics, problem


def awaits_devices(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> bool:
    """True if the pod's device list depends on its node and is written at binding."""
    try:
        ctx = _build_context(pod, policy, cluster)
        return (
            ctx is not None
            and ctx.role.rails
            and "env" not in ctx.options.skip
            and environment.build_route(pod, ctx).per_node
        )
    except reasons.RefusedError:
        return False


def _build_context(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts
) -> context.InjectionContext | None:
    """Build the context of a pod as at its admission. Raises RefusedError.

    Return None if the pod did not opt in, or was admitted unchanged while its fabric is in mode `warn`.
    """
    pod = _remove_placement(pod)
    name = opt_in.find_fabric(pod, policy.document, cluster)
    is_injected = intent.read_record(pod).rails is not None
    if name is None or not (is_injected or intent.is_enforced(policy.document, name)):
        return None
    options = context.read_options(pod, [row.skip for row in plan.MUTATORS if row.skip])
    return context.build(pod, policy, cluster, name, options)


def _format_placement(  # noqa: PLR0913, PLR0917 - the fields of a placement
    document: policies.PolicyDocument,
    fabric: policies.Fabric | None,
    node: node_views.Node,
    rail_names: Sequence[str],
    nics: tuple[intent.AllocatedRail, ...] = (),
    skipped: Mapping[str, reasons.RecordedReason] | msgspec.UnsetType = msgspec.UNSET,
) -> str:
    labels = node.metadata.labels
    shape = model.find_shape(document.node_shapes, labels)
    placement = intent.Placement(
        node=node.metadata.name,
        shape=shape.name if shape else None,
        rails=tuple(rail_names),
        domains=_find_domains(fabric, labels) if fabric else (),
        devices=nics or msgspec.UNSET,
        skipped=skipped,
    )
    return msgspec.json.encode(placement).decode()


def _find_domains(fabric: policies.Fabric, labels: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return the node's domain for each label, closest first, up to the last label that the node has.

    The index is the tier, so a missing label in between is None.
    """
    keys = presets.list_domain_keys(fabric.placement)
    domains = [value or None for value in topology.read_domains(labels, keys, [rail.name for rail in fabric.rails])]
    while domains and domains[-1] is None:
        domains.pop()
    return tuple(domains)


def _select_allocatable(
    selected: Sequence[compiled.ResolvedRail], node: node_views.Node
) -> Sequence[compiled.ResolvedRail]:
    """Return the rails of which the node has allocatable devices, free or used. Return all rails if it has none.

    With an empty device list, NCCL uses every device of the node.
    """
    allocatable = node.status.allocatable
    available = [
        rail for rail in selected if rail.resource is None or quantity.is_positive(allocatable.get(rail.resource, 0))
    ]
    return available or selected


def _write_devices(
    pod: views.Pod,
    ctx: context.InjectionContext,
    policy_rails: Sequence[policies.Rail],
    devices: tuple[str, ...] | None,
) -> Mapping[str, str]:
    """Return the annotations that deliver the device lists. Without `devices`, NCCL and UCX choose."""
    annotations = {}
    nccl_conf = _format_file(pod, ctx, policy_rails, devices)
    if nccl_conf is not None:
        annotations[names.NCCL_CONF] = nccl_conf
    if names.UCX_NET_DEVICES in pod.metadata.annotations:
        annotations[names.UCX_NET_DEVICES] = derive.format_ucx_devices(devices) if devices else environment.UCX_ALL
    return annotations


def _format_file(
    pod: views.Pod,
    ctx: context.InjectionContext,
    policy_rails: Sequence[policies.Rail],
    devices: tuple[str, ...] | None,
) -> str | None:
    """Return the pod's nccl.conf with these devices, or None if binding does not change it."""
    if not ctx.role.rails or "env" in ctx.options.skip:
        return None
    route = environment.build_route(pod, ctx)
    if not route.per_node:
        return None
    settings = ctx.policy.compile_once(env_tables.Tables).get_rank_settings(
        ctx.fabric_name, policy_rails, devices, host_network=bool(pod.spec.host_network)
    )
    lines = [*route.in_file, *(setting for setting in settings.file_vars if setting.name == env_tables.HCA)]
    text = env_tables.format_file(lines)
    return text if text != pod.metadata.annotations.get(names.NCCL_CONF, "") else None


def _build_fallback_placement(pod: views.Pod, document: policies.PolicyDocument, node: node_views.Node) -> str:
    """Return the placement of a pod that the current policy would reject: by its requests, otherwise by its record."""
    _, fabric = intent.find_fabric(pod, document)
    if fabric is None:
        return _format_placement(document, None, node, intent.read_record(pod).rails or ())
    needs = intent.find_needs(pod, resources.compute_requests(pod.spec), fabric)
    return _format_placement(document, fabric, node, [rail for need in needs for rail in need.rails])


def _build_binding(
    pod: views.Pod, annotations: Mapping[str, str], warnings: tuple[reasons.Reason, ...] = ()
) -> Binding:
    """Return a binding. Leave out the placement, with a warning, if the pod's annotations would exceed the limit."""
    if _fits(pod, annotations):
        return Binding(annotations, warnings)
    devices = {key: value for key, value in annotations.items() if key != names.PLACEMENT}
    return Binding(devices if _fits(pod, devices) else {}, (*warnings, reasons.make(AdmissionCode.PLACEMENT_TOO_LARGE)))


def _fits(pod: views.Pod, annotations: Mapping[str, str]) -> bool:
    return record.measure({**pod.metadata.annotations, **annotations}) <= record.MAX_ANNOTATIONS


def _remove_placement(pod: views.Pod) -> views.Pod:
    """Return the pod as admission saw it: without a placement of an earlier attempt to bind."""
    if names.PLACEMENT not in pod.metadata.annotations:
        return pod
    annotations = {key: value for key, value in pod.metadata.annotations.items() if key != names.PLACEMENT}
    metadata = msgspec.structs.replace(pod.metadata, annotations_or_none=annotations)
    return msgspec.structs.replace(pod, metadata=metadata)


# --- the NICs that claims hold, by rail -------------------------------------------------------------------


def assign(
    devices: Sequence[allocation.AllocatedDevice],
    document: policies.PolicyDocument,
    fabric: compiled.CompiledFabric,
    labels: Mapping[str, str],
) -> tuple[intent.AllocatedRail, ...]:
    """Return the NICs among allocated devices. `labels` are those of the node."""
    names_on_node = {name: _find_name(rail.rail, document, labels) for name, rail in fabric.rails.items()}
    positions = {name: position for position, name in enumerate(fabric.rails)}
    nics = []
    for device in devices:
        rdma_device = _read_rdma_device(device, fabric)
        rail = _find_rail(device, rdma_device, fabric, names_on_node)
        if rail or rdma_device or _may_have_rdma(device):
            interface = fabric.rails[rail].rail.interface if rail else None
            nics.append(
                intent.AllocatedRail(
                    rail=rail,
                    claim=device.claim,
                    request=device.request,
                    device=device.device,
                    rdma_device=rdma_device or names_on_node.get(rail, ""),
                    interface=device.interface or interface or "",
                )
            )
    return tuple(sorted(nics, key=lambda nic: positions.get(nic.rail, len(positions))))


def has_names(fabric: compiled.CompiledFabric) -> bool:
    """True if the driver's slices have the names of RDMA devices. Those of SR-IOV functions have none."""
    return fabric.claims is None or fabric.claims.driver.has_rdma_names


def _find_rail(
    device: allocation.AllocatedDevice,
    rdma_device: str,
    fabric: compiled.CompiledFabric,
    names_on_node: Mapping[str, str],
) -> str:
    """Return the rail of a device, "" if it has none.

    The first match counts: the rail's selector in the policy, its RDMA device on the node, its resource that the pod
    requested, and the request's name.
    """
    for name, rail in fabric.rails.items():
        if rail.claim is not None and _selects(rail.claim.selector, device):
            return name
    by_device = next((name for name, known in names_on_node.items() if known and known == rdma_device), "")
    by_resource = [name for name, rail in fabric.rails.items() if rail.resource in device.resources]
    if by_device or len(by_resource) == 1:
        return by_device or by_resource[0]
    return device.request if device.request in fabric.rails else ""


def _selects(selector: claimed_rails.RailSelector, device: allocation.AllocatedDevice) -> bool:
    if selector.attribute:
        return device.get_attribute(selector.attribute) in selector.values
    selection = selectors.read((selector.expression,))
    return (
        selection is not None
        and device.offered is not None
        and selectors.matches(selection, device.offered, device.driver)
    )


def _read_rdma_device(device: allocation.AllocatedDevice, fabric: compiled.CompiledFabric) -> str:
    """Return the name of a device's RDMA device by its slice, "" if the slice does not have it.

    The attribute that identifies the rails has such names only if a rail is identified by its `device`. It may also be
    that of a PCIe root.
    """
    attributes = [drivers.DRANET.rail_attribute]
    claims = fabric.claims
    if claims is not None and claims.driver.has_rdma_names and device.driver == claims.driver.name:
        has_names = any(rail.rail.claim is None for rail in fabric.rails.values())
        attributes[:0] = [claims.rail_attribute] if has_names else []
    values = (device.get_attribute(attribute) for attribute in attributes if attribute)
    return next((value for value in values if isinstance(value, str) and value), "")


def _may_have_rdma(device: allocation.AllocatedDevice) -> bool:
    """True for a NIC whose slice does not deny RDMA, as it does for the interface of a storage network."""
    is_denied = any(device.get_attribute(name) is False for name in drivers.RDMA_CAPABLE)
    return device.driver in _NIC_DRIVERS and not is_denied


def _find_name(rail: policies.Rail, document: policies.PolicyDocument, labels: Mapping[str, str]) -> str:
    known = device_names.resolve_on_node(document, (rail,), labels)
    return known[0] if known else ""
