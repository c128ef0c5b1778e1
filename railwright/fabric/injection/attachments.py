"""Merges the networks of the rails into the pod's network selection, and adds the annotations of the fabric.

`railwright.fabric.networks` owns the grammar of the selection. The rules are in docs/interface.md 3.1.
"""

from collections.abc import Iterator

import msgspec

from railwright.fabric import names, networks
from railwright.fabric.injection import context, model, rails


class Attachments(msgspec.Struct, frozen=True):
    """The networks that the pod will be attached to, and the changes for it."""

    selections: tuple[networks.Selection, ...]
    contribution: model.Contribution


def attach(ctx: context.InjectionContext) -> Attachments:
    """Return the pod's attachments with those of its rails added. Raises RefusedError."""
    user_value = ctx.pod.metadata.annotations.get(names.NETWORKS, "")
    rail_selections = tuple(_build_selection(rail) for rail in ctx.rails if rail.network) if _gets_networks(ctx) else ()
    try:
        merged = networks.merge(user_value, rail_selections, ctx.known.namespace)
        if merged.selections:
            networks.check_interfaces(
                merged.selections, ctx.document.cluster_wide_networks, ctx.document.primary_interface, merged.added
            )
            networks.check_gateways(merged.selections)
    except networks.InvalidNetworksError as error:
        where = f"annotation {names.NETWORKS} {model.quoted(user_value)}: " if user_value else ""
        raise model.RefusedError("networks", f"{where}{error}") from None
    _check_networks_exist(ctx)
    annotations = _add_fabric_annotations(ctx) if _gets_networks(ctx) else model.EMPTY
    change = model.SetAnnotation(
        entry="networks",
        reason=f"attaches the pod to {merged.added} rail networks of fabric {ctx.fabric_name}",
        key=names.NETWORKS,
        value=merged.text,
    )
    attached = () if ctx.host_network else merged.selections  # Multus ignores pods on the host network
    contribution = model.Contribution(
        changes=((change,) if merged.added else ()) + annotations.changes,
        entries=(("networks",) if rail_selections else ()) + annotations.entries,
        warnings=tuple(_list_warnings(ctx, attached)),
        skipped=_explain_skipped(ctx),
    )
    return Attachments(attached, contribution)


def _gets_networks(ctx: context.InjectionContext) -> bool:
    return not ctx.host_network and "networks" not in ctx.options.skip and ctx.role.rails


def _build_selection(rail: rails.Chosen) -> networks.Selection:
    namespace, name = rail.network or ("", "")
    return networks.Selection(namespace, name, rail.rail.interface or "")


def find_default_network(ctx: context.InjectionContext) -> tuple[networks.Selection, ...]:
    """Return the network that replaces the cluster's own, at most one. Only its devices count; it is never changed."""
    if ctx.host_network:
        return ()
    user_value = ctx.pod.metadata.annotations.get(names.DEFAULT_NETWORK)
    if user_value is None and _gets_networks(ctx):
        user_value = ctx.fabric.annotations.get(names.DEFAULT_NETWORK)
    try:
        return networks.parse(user_value, names.MULTUS_NAMESPACE)[:1] if user_value else ()
    except networks.InvalidNetworksError:
        return ()  # Multus reports the user's error


def _check_networks_exist(ctx: context.InjectionContext) -> None:
    """Raise RefusedError if the NetworkAttachmentDefinition of a rail does not exist."""
    existing = ctx.known.networks
    if existing is None or not _gets_networks(ctx):
        return
    for rail in ctx.rails:
        if rail.network and rail.network not in existing:
            raise model.RefusedError(
                "missing-network",
                f"NetworkAttachmentDefinition {'/'.join(rail.network)} of fabric {ctx.fabric_name} does not exist; "
                f"create it or correct `network` of rail {rail.name} in the policy",
            )


def _list_warnings(ctx: context.InjectionContext, selections: tuple[networks.Selection, ...]) -> Iterator[str]:
    if ctx.host_network and ctx.role.rails:
        yield _warn_of_host_network(ctx)
    rail_networks = {rail.network for rail in ctx.rails} if _gets_networks(ctx) else set()
    for position, selection in enumerate(selections, start=1):
        if selection.gateways is not None:
            yield (
                f"annotation {names.NETWORKS}: entry {position} has default-route, which takes the default route "
                "from every other interface of the pod; remove it unless that is intended"
            )
        if (
            ctx.known.networks is not None
            and selection.key not in ctx.known.networks
            and selection.key not in rail_networks
        ):
            yield (
                f"annotation {names.NETWORKS}: NetworkAttachmentDefinition "
                f"{model.format_some([f'{selection.namespace}/{selection.name}'])} of entry {position} does not exist, "
                "and the pod's sandbox cannot start without it; create it or correct the entry"
            )


def _warn_of_host_network(ctx: context.InjectionContext) -> str:
    if ctx.rails:
        return (
            f"spec.hostNetwork is true: fabric {ctx.fabric_name} adds no networks and no NCCL_SOCKET_IFNAME; "
            "remove hostNetwork to give the pod network interfaces of its own"
        )
    return (
        "spec.hostNetwork is true: NCCL_SOCKET_IFNAME is not set, because the interfaces of the host are not known; "
        "remove hostNetwork, or set NCCL_SOCKET_IFNAME in the container"
    )


def _explain_skipped(ctx: context.InjectionContext) -> dict[str, str]:
    if not any(rail.network for rail in ctx.rails):
        return {}
    if "networks" in ctx.options.skip:
        return {"networks": f"by annotation {names.SKIP}"}
    return {"networks": "hostNetwork"} if ctx.host_network else {}


def _add_fabric_annotations(ctx: context.InjectionContext) -> model.Contribution:
    """Add the fabric's annotations whose keys the pod does not have."""
    annotations = ctx.pod.metadata.annotations
    changes, entries = [], []
    for key, value in ctx.fabric.annotations.items():
        entry = f"annotations.{key}"
        if key not in annotations:
            reason = f"fabric {ctx.fabric_name} has this annotation on every pod"
            changes.append(model.SetAnnotation(entry=entry, reason=reason, key=key, value=value))
        if annotations.get(key, value) == value:
            entries.append(entry)
    return model.Contribution(changes=tuple(changes), entries=tuple(entries))
