"""Counts the devices of the rails: how many of which resource, in which containers (docs/interface.md 3.2).

A resource in the annotation of a network is a pool: Multus assigns its devices to the attachments in turn, so it is
requested once and covers every attachment. Any other resource is shared: each target container requests it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import names, quantity
from railwright.fabric.claims import objects
from railwright.fabric.injection import accelerators, applied_pod, context, pod_changes
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.policy import compiled
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

Selection = network_selection.Selection
HUGE_PAGES = "hugepages-"  # prefix of resources, beside the extended ones, that a policy may request
_BASIC = ("cpu", "memory")


def request_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Request the devices that the pod lacks. Raises RefusedError."""
    pools = _find_pools(ctx, (*pod.attached, *_find_default_network(pod)))
    is_skipped = "devices" in ctx.options.skip
    if is_skipped or not ctx.role.rails:  # nothing is added to such a pod
        warnings = (*_warn_of_short_resources(pod, ctx, pools), *_warn_of_stale_requests(pod, ctx))
        skipped = {"devices": context.SKIPPED} if is_skipped and ctx.role.rails else {}
        return pod_changes.Contribution(skipped=skipped, warnings=warnings)
    needed_by_resource = _count_devices(pod, ctx, pools)
    warnings = (*_warn_of_policy(ctx, pools), *_warn_not_allocatable(ctx, pools, needed_by_resource))
    return pod_changes.Contribution(
        changes=tuple(_request_amounts(pod, ctx, needed_by_resource, pools)),
        entries=("devices",) if needed_by_resource else (),
        warnings=(*warnings, *_warn_of_stale_requests(pod, ctx, needed_by_resource)),
    )


def request_resources(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Request the resources of the policy beside those of the rails, in target containers that do not name them.

    The API server rejects a container with huge pages that requests neither CPU nor memory.
    """
    if not ctx.role.rails or "devices" in ctx.options.skip:
        return pod_changes.EMPTY
    changes: list[pod_changes.Change] = []
    entries: list[str] = []
    skipped: dict[str, reasons.Reason] = {}
    for resource, amount in ctx.fabric.resources.items():
        entry = f"resources.{resource}"
        unset = [index for index in ctx.targets if not accelerators.mentions(pod.container(index), resource)]
        if resource.startswith(HUGE_PAGES):
            small = [
                index
                for index in unset
                if not any(accelerators.mentions(pod.container(index), name) for name in _BASIC)
            ]
            if small:
                names_of_small = tuple([pod.container(index).name for index in small])
                skipped[entry] = reasons.make(
                    AdmissionCode.HUGE_PAGES_WITHOUT_MEMORY, containers=names_of_small, resource=resource
                )
            unset = [index for index in unset if index not in small]
        reason = f"fabric {ctx.fabric_name} needs it beside the devices of its rails"
        changes += [
            pod_changes.AddResource(
                entry=entry, reason=reason, container=index, resource=resource, quantity=str(amount)
            )
            for index in unset
        ]
        if entry not in skipped:
            entries.append(entry)
    return pod_changes.Contribution(tuple(changes), tuple(entries), tuple(skipped.values()), skipped=skipped)


class _Pools(msgspec.Struct, frozen=True):
    """The networks that a pod selects, and the resources from which device plugins serve them."""

    attached: tuple[compiled.Network, ...]  # in the order of the attachments
    by_network: Mapping[compiled.Network, str]  # of these and of the rails; networks that no plugin serves are absent
    in_use: frozenset[str]  # of the attached networks


def _find_pools(ctx: context.InjectionContext, selections: Sequence[Selection]) -> _Pools:
    attached = tuple([selection.key for selection in selections])
    find_pool = ctx.policy.compile_once(compiled.compile_policy).find_pool
    networks = {*attached, *[rail.network for rail in ctx.rails if rail.network]} if ctx.known.networks else ()
    by_network = {network: pool for network in networks if (pool := find_pool(network, ctx.known.networks))}
    return _Pools(attached, by_network, frozenset([by_network[key] for key in attached if key in by_network]))


def _find_default_network(pod: applied_pod.AppliedPod) -> tuple[Selection, ...]:
    """Return the network that replaces the cluster's own, at most one. Only its devices count; it is never changed."""
    value = pod.metadata.annotations.get(names.DEFAULT_NETWORK)
    if not value or pod.host_network:
        return ()
    try:
        return annotation.parse(value, names.MULTUS_NAMESPACE)[:1]
    except network_selection.InvalidNetworksError:
        return ()  # Multus reports the user's error


def _warn_of_short_resources(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, pools: _Pools
) -> Iterator[reasons.Reason]:
    """Yield a warning about the pools of which the pod's networks need more devices than its containers request."""
    if not pools.in_use:
        return
    requested = {
        pool: sum(accelerators.read_amount(container, pool) for container in pod.spec.containers)
        for pool in pools.in_use
    }
    needed = _count_devices(pod, ctx, pools)
    short = tuple([name for name in needed if name in requested and requested[name] < needed[name]])
    if short and ctx.role.rails:
        yield reasons.make(AdmissionCode.SKIPPED_DEVICES_NEEDED, resources=short)
    elif short:
        yield reasons.make(AdmissionCode.NETWORK_DEVICES_NOT_REQUESTED, resources=short, role=ctx.role.name)


def _count_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext, pools: _Pools) -> dict[str, int]:
    """Return the number of devices by resource: those of the rails, and one for each further attachment to a pool."""
    needed_by_resource = {**ctx.selected.device_counts}
    for resource in _find_other_pools(ctx, pools) if pools.in_use else ():
        if not context.is_opted_out(pod, resource):
            needed_by_resource[resource] = needed_by_resource.get(resource, 0) + 1
    return needed_by_resource


def _find_other_pools(ctx: context.InjectionContext, pools: _Pools) -> Iterator[str]:
    """Yield the pool of each attachment that no rail's request covers.

    These are the user's own attachments, and those of rails whose network uses another pool than the policy's resource.
    """
    unmatched_networks = [
        rail.network for rail in ctx.rails if rail.network and rail.resource == pools.by_network.get(rail.network)
    ]
    for network in pools.attached:
        if network in unmatched_networks:
            unmatched_networks.remove(network)
        elif pool := pools.by_network.get(network):
            yield pool


def _request_amounts(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, needed_by_resource: Mapping[str, int], pools: _Pools
) -> Iterator[pod_changes.AddResource]:
    mentioned = accelerators.list_mentioned(pod)
    for resource, needed in needed_by_resource.items():
        requested = [0] * len(pod.spec.containers)
        if resource in mentioned:
            requested = [accelerators.read_amount(container, resource) for container in pod.spec.containers]
        if resource in pools.in_use and len(ctx.targets) > 1:
            _check_one_target(pod, ctx, resource, needed - sum(requested))
            continue
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
        raise reasons.RefusedError(
            "containers",
            f"the pod's networks use one request of {resource}, and {selected}; name one in annotation "
            f"{names.CONTAINERS}",
        )
    if missing > 0:
        raise reasons.RefusedError(
            "containers",
            f"annotation {names.NETWORKS}: a network uses {resource}, which no container requests in full, and "
            f"{selected}; request {missing} of it in the container that uses the network",
        )


def _has_amount(pod: applied_pod.AppliedPod, index: int, resource: str, amount: int) -> bool:
    """True if request and limit are both set to `amount`."""
    resources = pod.container(index).resources
    if resources is None or resource not in resources.requests or resource not in resources.limits:
        return False
    return {*map(quantity.parse_units, (resources.requests[resource], resources.limits[resource]))} == {amount}


def _warn_of_policy(ctx: context.InjectionContext, pools: _Pools) -> Iterator[reasons.Reason]:
    """Yield warnings that only the operator can fix.

    `railwright.fabric.policy.shortcomings` reports them to the operator.
    """
    without_resource = [rail for rail in ctx.rails if rail.resource is None and rail.network is not None]
    if without_resource and not ctx.fabric.mounts.dev_infiniband:
        rail_names = tuple([rail.name for rail in without_resource])
        yield reasons.make(AdmissionCode.RAIL_WITHOUT_RESOURCE, rails=rail_names, fabric=ctx.fabric_name)
    for rail in ctx.rails:
        pool = pools.by_network.get(rail.network) if rail.network else None
        if pool and rail.resource and pool != rail.resource:
            yield reasons.make(
                AdmissionCode.RAIL_RESOURCES_DIFFER, rail=rail.name, resource=rail.resource, network_resource=pool
            )
            return


def _warn_not_allocatable(
    ctx: context.InjectionContext, pools: _Pools, needed_by_resource: Mapping[str, int]
) -> Iterator[reasons.Reason]:
    """Yield a warning for each resource that no node offers now.

    Such pods are not rejected: an autoscaler may add a node.
    """
    if ctx.known.offered is None:
        return
    missing = [resource for resource in needed_by_resource if resource not in ctx.known.offered]
    if missing_of_rails := [resource for resource in missing if resource in ctx.selected.resources]:
        rail_names = tuple([rail.name for rail in ctx.rails if rail.resource in missing_of_rails])
        resources = tuple(missing_of_rails)
        yield reasons.make(AdmissionCode.RAIL_DEVICES_NOT_OFFERED, resources=resources, rails=rail_names)
    if missing_of_networks := [resource for resource in missing if resource not in ctx.selected.resources]:
        network_names = [
            "/".join(network) for network in pools.attached if pools.by_network.get(network) in missing_of_networks
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
        unknown = accelerators.list_requested(container) - known_resources
        # a DeviceClass's own name is never in a node's allocatable
        missing = sorted(name for name in unknown if not name.startswith(objects.IMPLICIT_RESOURCE_PREFIX))
        if missing:
            yield reasons.make(
                AdmissionCode.REQUESTED_DEVICES_NOT_OFFERED, container=container.name, resources=tuple(missing)
            )


def check_capacity(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Warn of accelerators beyond `gpusPerNode`. Such a pod is not rejected: a larger node type may be added.

    Raises RefusedError for fewer if the fabric serves one pod on a node.
    """
    limit = ctx.fabric.gpus_per_node
    accelerator_names = ctx.document.accelerators
    count = accelerators.count_at_once(pod, accelerator_names) if limit is not None else 0
    if ctx.fabric.whole_node and ctx.role.rails and limit is not None and count < limit:
        raise reasons.RefusedError(
            "whole-node",
            f"the pod requests {count} of the {limit} accelerators of a node, and fabric {ctx.fabric_name} serves one "
            f"pod on a node (wholeNode); request {limit}",
        )
    if limit is None or count <= limit:
        return pod_changes.EMPTY
    warning = reasons.make(
        AdmissionCode.GPUS_EXCEED_NODE,
        count=str(count),
        resource=" and ".join(accelerator_names),
        fabric=ctx.fabric_name,
        limit=str(limit),
    )
    return pod_changes.Contribution(warnings=(warning,))
