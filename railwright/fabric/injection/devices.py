"""Counts the devices of the rails: how many of which resource, in which containers (docs/interface.md 3.2).

A resource in the annotation of a network is a pool: Multus assigns its devices to the attachments in turn, so it is
requested once and covers every attachment. Any other resource is shared: each target container requests it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from railwright.fabric import names
from railwright.fabric.injection import accelerators, applied_pod, context, pod_changes, user_options
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.policy import compiled
from railwright.fabric.reasons import reason, rejections
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

Selection = network_selection.Selection


def request_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Request the devices that the pod lacks. Raises RefusedError."""
    selections = (*pod.attached, *_find_default_network(pod))
    if not ctx.role.rails:
        warnings = (*_warn_of_unrequested_devices(pod, ctx, selections), *_warn_of_stale_requests(pod, ctx))
        return pod_changes.Contribution(warnings=warnings) if warnings else pod_changes.EMPTY
    if "devices" in ctx.options.skip:
        warnings = (*_warn_of_missing_devices(pod, ctx, selections), *_warn_of_stale_requests(pod, ctx))
        return pod_changes.Contribution(skipped={"devices": user_options.SKIPPED}, warnings=warnings)
    pools = _find_pools(ctx, selections)
    needed_by_resource = _count_devices(pod, ctx, selections, pools)
    changes = tuple(
        [
            change
            for resource, amount in needed_by_resource.items()
            for change in _build_changes(pod, ctx, resource, amount, pools)
        ]
    )
    return pod_changes.Contribution(
        changes=changes,
        entries=("devices",) if needed_by_resource else (),
        warnings=tuple(_list_warnings(pod, ctx, selections, needed_by_resource)),
    )


def _find_default_network(pod: applied_pod.AppliedPod) -> tuple[Selection, ...]:
    """Return the network that replaces the cluster's own, at most one. Only its devices count; it is never changed."""
    value = pod.metadata.annotations.get(names.DEFAULT_NETWORK)
    if not value or pod.host_network:
        return ()
    try:
        return annotation.parse(value, names.MULTUS_NAMESPACE)[:1]
    except network_selection.InvalidNetworksError:
        return ()  # Multus reports the user's error


def _warn_of_missing_devices(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, selections: Sequence[Selection]
) -> Iterator[reasons.Reason]:
    """Yield a warning if the pod itself requests too few devices of a pool that its networks use."""
    if short_resources := _find_short_resources(pod, ctx, selections):
        yield reasons.make(AdmissionCode.SKIPPED_DEVICES_NEEDED, resources=tuple(short_resources))


def _warn_of_unrequested_devices(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, selections: Sequence[Selection]
) -> Iterator[reasons.Reason]:
    """Yield a warning if a pod without rails requests too few devices for its own networks; nothing is added to it."""
    if short_resources := _find_short_resources(pod, ctx, selections):
        resources = tuple(short_resources)
        yield reasons.make(AdmissionCode.NETWORK_DEVICES_NOT_REQUESTED, resources=resources, role=ctx.role.name)


def _find_short_resources(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, selections: Sequence[Selection]
) -> list[str]:
    """Return the pools of which the pod's networks need more devices than its containers request."""
    pools = _find_pools(ctx, selections)
    if not pools:
        return []
    requested = {
        pool: sum(accelerators.read_amount(container, pool) for container in pod.spec.containers) for pool in pools
    }
    needed_by_resource = _count_devices(pod, ctx, selections, pools)
    return [
        resource
        for resource, needed in needed_by_resource.items()
        if resource in pools and requested[resource] < needed
    ]


def _find_pools(ctx: context.InjectionContext, selections: Sequence[Selection]) -> set[str]:
    """Return the pools that the attachments use."""
    return (
        {pool for selection in selections if (pool := _find_pool(ctx, selection.key))} if ctx.known.networks else set()
    )


def _find_pool(ctx: context.InjectionContext, network: compiled.Network | None) -> str | None:
    """Return the resource from which a device plugin serves a network."""
    if network is None:
        return None
    return ctx.policy.compile_once(compiled.compile_policy).find_pool(network, ctx.known.networks)


def _count_devices(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, selections: Sequence[Selection], pools: Collection[str]
) -> dict[str, int]:
    """Return the number of devices by resource: those of the rails, and one for each further attachment to a pool."""
    needed_by_resource: dict[str, int] = {}
    for rail in ctx.rails:
        if rail.resource is not None and rail.claim is None:
            needed_by_resource[rail.resource] = needed_by_resource.get(rail.resource, 0) + ctx.fabric.devices_per_rail
    for resource in _find_other_pools(ctx, selections) if pools else ():
        if not context.is_opted_out(pod, resource):
            needed_by_resource[resource] = needed_by_resource.get(resource, 0) + 1
    return needed_by_resource


def _find_other_pools(ctx: context.InjectionContext, selections: Sequence[Selection]) -> Iterator[str]:
    """Yield the pool of each attachment that no rail's request covers.

    These are the user's own attachments, and those of rails whose network uses another pool than the policy's resource.
    """
    unmatched_networks = [
        rail.network for rail in ctx.rails if rail.network and rail.resource == _find_pool(ctx, rail.network)
    ]
    for selection in selections:
        if selection.key in unmatched_networks:
            unmatched_networks.remove(selection.key)
        elif pool := _find_pool(ctx, selection.key):
            yield pool


def _build_changes(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, resource: str, needed: int, pools: Collection[str]
) -> Iterator[pod_changes.AddResource]:
    requested = [accelerators.read_amount(container, resource) for container in pod.spec.containers]
    if resource in pools and len(ctx.targets) > 1:
        _check_one_target(pod, ctx, resource, needed - sum(requested))
        return
    requested_elsewhere = sum(requested) - sum([requested[index] for index in ctx.targets])
    for index in ctx.targets:
        current = requested[index]
        if current == 0 and accelerators.mentions(pod.container(index), resource):
            continue  # the container opted out with "0", another one did not
        amount = max(current, needed - requested_elsewhere)  # never lower the user's request
        if amount > 0 and not (amount == current and _has_amount(pod, index, resource, amount)):
            reason = f"{needed} x {resource} for the rails of fabric {ctx.fabric_name}"
            yield pod_changes.AddResource(
                entry="devices", reason=reason, container=index, resource=resource, quantity=amount
            )


def _check_one_target(pod: applied_pod.AppliedPod, ctx: context.InjectionContext, resource: str, missing: int) -> None:
    """Raise RefusedError if a pool must be requested in one container, and several are selected.

    A pool of the rails belongs to the container that computes. A pool of the user's own network may be requested
    anywhere.
    """
    container_names = ", ".join(pod.container(index).name for index in ctx.targets)
    selected = f"{len(ctx.targets)} containers are selected ({container_names})"
    if any(rail.resource == resource for rail in ctx.rails):
        raise rejections.RefusedError(
            "containers",
            f"the pod's networks use one request of {resource}, and {selected}; name one in annotation "
            f"{names.CONTAINERS}",
        )
    if missing > 0:
        raise rejections.RefusedError(
            "containers",
            f"annotation {names.NETWORKS}: a network uses {resource}, which no container requests in full, and "
            f"{selected}; request {missing} of it in the container that uses the network",
        )


def _has_amount(pod: applied_pod.AppliedPod, index: int, resource: str, amount: int) -> bool:
    """True if request and limit are both set to `amount`."""
    resources = pod.container(index).resources
    if resources is None or resource not in resources.requests or resource not in resources.limits:
        return False
    return accelerators.read_request_and_limit(resources, resource) == (amount, amount)


def _list_warnings(
    pod: applied_pod.AppliedPod,
    ctx: context.InjectionContext,
    selections: Sequence[Selection],
    needed_by_resource: Mapping[str, int],
) -> Iterator[reasons.Reason]:
    yield from _warn_of_policy(ctx)
    if ctx.known.offered is not None:
        yield from _warn_not_allocatable(ctx, selections, needed_by_resource, ctx.known.offered)
        yield from _warn_of_stale_requests(pod, ctx, needed_by_resource)


def _warn_of_policy(ctx: context.InjectionContext) -> Iterator[reasons.Reason]:
    """Yield warnings that only the operator can fix.

    `railwright.fabric.policy.shortcomings` reports them to the operator.
    """
    without_resource = [rail for rail in ctx.rails if rail.resource is None and rail.network is not None]
    if without_resource and not ctx.fabric.mounts.dev_infiniband:
        rail_names = tuple([rail.name for rail in without_resource])
        yield reasons.make(AdmissionCode.RAIL_WITHOUT_RESOURCE, rails=rail_names, fabric=ctx.fabric_name)
    for rail in ctx.rails:
        pool = _find_pool(ctx, rail.network)
        if pool and rail.resource and pool != rail.resource:
            yield reasons.make(
                AdmissionCode.RAIL_RESOURCES_DIFFER, rail=rail.name, resource=rail.resource, network_resource=pool
            )
            return


def _warn_not_allocatable(
    ctx: context.InjectionContext,
    selections: Sequence[Selection],
    needed_by_resource: Mapping[str, int],
    allocatable: Collection[str],
) -> Iterator[reasons.Reason]:
    """Yield a warning for each resource that no node offers now.

    Such pods are not rejected: an autoscaler may add a node.
    """
    rail_resources = {rail.resource for rail in ctx.rails}
    missing = [resource for resource in needed_by_resource if resource not in allocatable]
    if missing_of_rails := [resource for resource in missing if resource in rail_resources]:
        rail_names = tuple([rail.name for rail in ctx.rails if rail.resource in missing_of_rails])
        resources = tuple(missing_of_rails)
        yield reasons.make(AdmissionCode.RAIL_DEVICES_NOT_OFFERED, resources=resources, rails=rail_names)
    if missing_of_networks := [resource for resource in missing if resource not in rail_resources]:
        network_names = [
            f"{selection.namespace}/{selection.name}"
            for selection in selections
            if _find_pool(ctx, selection.key) in missing_of_networks
        ]
        yield reasons.make(
            AdmissionCode.NETWORK_DEVICES_NOT_OFFERED,
            resources=tuple(missing_of_networks),
            networks=tuple(network_names),
        )


def _warn_of_stale_requests(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, needed: Collection[str] = ()
) -> Iterator[reasons.Reason]:
    """Yield a warning for requested devices that no node offers, unless they are `needed` by the rails.

    Often the template was mutated under an older policy.
    """
    if ctx.known.offered is None:
        return
    known_resources = {*needed, *ctx.document.accelerators, *ctx.known.offered}
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        missing = sorted(name for name in accelerators.list_requested(container) if name not in known_resources)
        missing = [name for name in missing if not name.startswith(_DEVICE_CLASS)]
        if missing:
            yield reasons.make(
                AdmissionCode.REQUESTED_DEVICES_NOT_OFFERED, container=container.name, resources=tuple(missing)
            )


# The prefix of resource names that stand for a DeviceClass. They are never in a node's allocatable.
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"


def check_capacity(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Warn of accelerators beyond `gpusPerNode`. Such a pod is not rejected: a larger node type may be added."""
    limit = ctx.fabric.gpus_per_node
    accelerator_names = ctx.document.accelerators
    count = accelerators.count_at_once(pod, accelerator_names) if limit is not None else 0
    if limit is None or count <= limit:
        return pod_changes.EMPTY
    warning = reason.make(
        AdmissionCode.GPUS_EXCEED_NODE,
        count=str(count),
        resource=" and ".join(accelerator_names),
        fabric=ctx.fabric_name,
        limit=str(limit),
    )
    return pod_changes.Contribution(warnings=(warning,))
