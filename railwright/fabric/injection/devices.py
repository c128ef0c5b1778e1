"""Requests the devices of the rails: the amount of each resource in each container (docs/interface.md 3.2).

A resource in the annotation of a network is a pool: Multus assigns its devices to the attachments in turn, so it is
requested once and covers every attachment. Any other resource is shared: each target container requests it.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import names, text
from railwright.fabric.injection import accelerators, context, drafts
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import compiled
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

Selection = network_selection.Selection
HUGE_PAGES = "hugepages-"  # prefix of resources, beside the extended ones, that a policy may request
_CPU_AND_MEMORY = ("cpu", "memory")


def request_devices(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Request the devices that the pod lacks. Raises RefusedError."""
    pools = _find_pools(draft.pod, ctx)
    needed = _count_devices(draft.pod, ctx, pools)
    _request_device_amounts(draft, ctx, needed, pools)
    if needed:
        draft.add_entry("devices")
    draft.warn(*_warn_of_unoffered_resources(ctx, pools, needed))


def request_resources(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Request the policy's `resources`, such as huge pages, in target containers that do not name them.

    The API server rejects a container with huge pages that requests neither CPU nor memory.
    """
    if "devices" in ctx.options.skip:
        return
    pod = draft.pod
    for resource, amount in ctx.fabric.resources.items():
        entry = f"resources.{resource}"
        unset = [
            index for index in ctx.targets if not accelerators.mentions_resource(pod.spec.containers[index], resource)
        ]
        small = [
            index
            for index in unset
            if resource.startswith(HUGE_PAGES)
            and not any(accelerators.mentions_resource(pod.spec.containers[index], name) for name in _CPU_AND_MEMORY)
        ]
        for index in unset:
            if index not in small:
                draft.edit_container(index).request_resources([(resource, str(amount), entry)])
        if not small:
            draft.add_entry(entry)
            continue
        small_names = text.join_fitting([pod.spec.containers[index].name for index in small])
        without = reasons.Reason(
            AdmissionCode.HUGE_PAGES_WITHOUT_MEMORY,
            f"container {small_names} requests neither cpu nor memory, without which the API server rejects {resource}",
            fix="request one of them",
        )
        draft.record_skip_and_warn(entry, without)


class _Pools(msgspec.Struct, frozen=True):
    """The networks that a pod selects, and the resources from which device plugins serve them."""

    attached: tuple[compiled.Network, ...]  # in the order of the attachments
    by_network: Mapping[compiled.Network, str]  # of these and of the rails; networks that no plugin serves are absent
    in_use: frozenset[str]  # of the attached networks


def _find_pools(pod: drafts.EditedPod, ctx: context.InjectionContext) -> _Pools:
    """Return the pools of the rails, of the pod's networks, and of the default network that the pod names."""
    default: Sequence[Selection] = ()
    if (value := pod.metadata.annotations.get(names.DEFAULT_NETWORK)) and not pod.spec.host_network:
        with contextlib.suppress(network_selection.InvalidNetworksError):  # Multus reports the user's error
            default = network_selection.parse_networks(value, names.MULTUS_NAMESPACE)[:1]
    attached = tuple([selection.key for selection in (*pod.attached, *default)])
    known = ctx.known.networks or {}
    networks = {*attached, *[rail.network for rail in ctx.rails if rail.network]}
    by_network = {network: pool for network in networks if (pool := known.get(network))}
    return _Pools(attached, by_network, frozenset([by_network[key] for key in attached if key in by_network]))


def _count_devices(pod: drafts.EditedPod, ctx: context.InjectionContext, pools: _Pools) -> dict[str, int]:
    """Return the number of devices by resource: those of the rails, and one for each other attachment.

    Other attachments are the user's own, and those of rails whose network uses another pool than the policy's resource.
    """
    needed = {**ctx.selected.device_counts}
    rails = [rail for rail in ctx.rails if rail.network]
    covered = [rail.network for rail in rails if rail.resource == pools.by_network.get(rail.network or ("", ""))]
    for network in pools.attached if pools.in_use else ():
        if network in covered:
            covered.remove(network)
        elif (pool := pools.by_network.get(network)) and not context.opts_out_of_resource(pod, pool):
            needed[pool] = needed.get(pool, 0) + 1
    return needed


def _request_device_amounts(
    draft: drafts.Draft, ctx: context.InjectionContext, needed_by_resource: Mapping[str, int], pools: _Pools
) -> None:
    pod, containers = draft.pod, draft.pod.spec.containers
    rows: dict[int, list[tuple[str, int, str]]] = {index: [] for index in ctx.targets}
    for resource, needed in needed_by_resource.items():
        is_mentioned = resource in ctx.mentioned
        requested = [accelerators.read_amount(container, resource) if is_mentioned else 0 for container in containers]
        if resource in pools.in_use and len(ctx.targets) > 1:
            _check_one_target(pod, ctx, resource, needed - sum(requested))
            continue
        requested_elsewhere = sum(requested) - sum([requested[index] for index in ctx.targets])
        for index in ctx.targets:
            current = requested[index]
            if current == 0 and is_mentioned and accelerators.mentions_resource(containers[index], resource):
                continue  # the container opted out with "0", another one did not
            amount = max(current, needed - requested_elsewhere)  # never lower the user's request
            if amount > 0:
                rows[index].append((resource, amount, "devices"))
    for index, requests in rows.items():
        draft.edit_container(index).request_resources(requests)


def _check_one_target(pod: drafts.EditedPod, ctx: context.InjectionContext, resource: str, missing: int) -> None:
    """Raise RefusedError if several containers are selected, but only one may request a pool.

    A pool of the rails belongs to the container that computes. Any container may request a pool of the user's networks.
    """
    container_names = ", ".join(pod.spec.containers[index].name for index in ctx.targets)
    if any(rail.resource == resource for rail in ctx.rails):
        raise reasons.RefusedError(
            "annotation",
            f"one container must request {resource} for the pod's networks, and {len(ctx.targets)} containers are "
            f"selected ({container_names}); name one in annotation {names.CONTAINERS}",
        )
    if missing > 0:
        raise reasons.RefusedError(
            "annotation",
            f"annotation {names.NETWORKS}: networks need {missing} more of {resource}, and railwright cannot choose "
            f"among {len(ctx.targets)} containers ({container_names}); add {missing} to the request of the container "
            "that uses the network",
        )


def _warn_of_unoffered_resources(
    ctx: context.InjectionContext, pools: _Pools, needed_by_resource: Mapping[str, int]
) -> Iterator[reasons.Reason]:
    """Yield warnings about resources that no node offers now. The pod is not rejected: an autoscaler may add a node."""
    if ctx.known.offered is None:
        return
    missing = [resource for resource in needed_by_resource if resource not in ctx.known.offered]
    of_rails = [resource for resource in missing if resource in ctx.selected.resources]
    of_networks = [resource for resource in missing if resource not in ctx.selected.resources]
    rail_names = [rail.rail.name for rail in ctx.rails if rail.resource in of_rails]
    networks = [
        f"network {'/'.join(network)}" for network in pools.attached if pools.by_network.get(network) in of_networks
    ]
    for resources, users, fix in (
        (of_rails, rail_names, "ask the operator to check the device plugin and `resource` of the rail"),
        (
            of_networks,
            networks,
            f"correct annotation {names.NETWORKS}, or ask the operator for the network's device plugin",
        ),
    ):
        if resources:
            yield reasons.Reason(
                AdmissionCode.DEVICES_NOT_OFFERED,
                f"no node offers {text.join_fitting(resources)}, needed by {text.join_fitting(users)}: the pod stays "
                "Pending until one does",
                fix=fix,
            )
