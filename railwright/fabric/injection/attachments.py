"""Merges the networks of the rails into the pod's network selection, and adds the annotations of the fabric.

`railwright.fabric.multus` parses and writes the selection. The rules are in docs/interface.md 3.1.
"""

from collections.abc import Iterator, Mapping, Sequence

from railwright.fabric import names, text
from railwright.fabric.injection import context, drafts
from railwright.fabric.multus import network_selection
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_ANNOTATIONS = "metadata.annotations"  # of the pod, in `kept`; no container has this name


def attach_networks(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Attach the pod to the networks of its rails. Raises RefusedError."""
    pod, annotations, existing = draft.pod, draft.pod.metadata.annotations, ctx.known.networks
    user_value, is_on_host = annotations.get(names.NETWORKS, ""), bool(pod.spec.host_network)
    gets_networks = not is_on_host and "networks" not in ctx.options.skip and ctx.role.has_rails
    rail_selections = ctx.selected.attachments if gets_networks else ()
    merged = network_selection.merge_networks(user_value, pod.networks, rail_selections)
    try:
        network_selection.check_interfaces(merged.selections, merged.added)
    except network_selection.InvalidNetworksError as error:
        raise drafts.build_networks_refusal(user_value, error) from None
    for rail in ctx.rails if gets_networks and existing is not None else ():
        if rail.network and rail.network not in (existing or ()):
            raise reasons.RefusedError(
                "missing-network",
                f"NetworkAttachmentDefinition {'/'.join(rail.network)} of fabric {ctx.fabric_name} does not exist; "
                f"create it or correct `network` of rail {rail.rail.name} in the policy",
            )
    if merged.added:
        draft.set_networks(merged.text, merged.selections, "networks")
    if rail_selections:
        draft.add_entry("networks")
    if gets_networks:
        _add_fabric_annotations(draft, ctx, annotations)
    draft.warn(*_list_network_warnings(ctx, merged.selections, is_on_host=is_on_host))
    if ctx.selected.attachments and "networks" in ctx.options.skip:
        draft.record_skip("networks", context.SKIPPED)
    elif ctx.selected.attachments and is_on_host:
        draft.record_skip("networks", _explain_host_network(ctx))


def _list_network_warnings(
    ctx: context.InjectionContext, selections: Sequence[network_selection.Selection], *, is_on_host: bool
) -> Iterator[reasons.Reason]:
    if (
        is_on_host
        and ctx.role.has_rails
        and not ctx.fabric.host_network
        # a fabric without networks and derived variables gives a pod on the host's network the same as others
        and (ctx.fabric.nccl.derive or any(rail.network for rail in ctx.rails))
    ):
        yield _explain_host_network(ctx)
    existing = ctx.known.networks
    for position, selection in enumerate(() if is_on_host else selections, start=1):
        if selection.has_default_route:
            yield reasons.Reason(
                AdmissionCode.DEFAULT_ROUTE,
                f"annotation {names.NETWORKS}: entry {position} has default-route, which takes the default route from "
                "every other interface of the pod",
                fix="remove it unless that is intended",
            )
        if existing is not None and selection.key not in existing:  # those of rails are in it
            network = f"{selection.namespace}/{selection.name}"
            yield reasons.Reason(
                AdmissionCode.NETWORK_MISSING,
                f"annotation {names.NETWORKS}: NetworkAttachmentDefinition {text.join_fitting([network])} of entry "
                f"{position} does not exist, and the pod's sandbox cannot start without it",
                fix="create it or correct the entry",
            )


def _explain_host_network(ctx: context.InjectionContext) -> reasons.Reason:
    """Return why a pod on the host network gets no networks; for a pod without rails, why no NCCL_SOCKET_IFNAME."""
    if ctx.rails:
        variable = " and no NCCL_SOCKET_IFNAME" if ctx.fabric.nccl.derive else ""
        message = f"fabric {ctx.fabric_name} adds no networks{variable}"
        fix = "remove hostNetwork to give the pod network interfaces of its own"
    else:
        message = "NCCL_SOCKET_IFNAME is not set, because the interfaces of the host are not known"
        fix = "remove hostNetwork, or set NCCL_SOCKET_IFNAME in the container"
    return reasons.Reason(AdmissionCode.HOST_NETWORK, f"spec.hostNetwork is true: {message}", fix=fix)


def _add_fabric_annotations(draft: drafts.Draft, ctx: context.InjectionContext, annotations: Mapping[str, str]) -> None:
    """Add the fabric's annotations whose keys the pod does not have."""
    for key, value in ctx.fabric.annotations.items():
        entry = f"annotations.{key}"
        if key not in annotations:
            draft.set_annotation(key, value, entry)
        if annotations.get(key, value) == value:
            draft.add_entry(entry)
        else:
            draft.record_user_values(_ANNOTATIONS, [key])
            if not _list_items(value) <= _list_items(annotations[key]):
                own_annotation = reasons.Reason(
                    AdmissionCode.NETWORK_MISSING,
                    f"annotation {key} {text.quote(annotations[key])} of the pod is kept, but lacks items of "
                    f"{text.quote(value)} of fabric {ctx.fabric_name}: the pod does not get the rails of these items",
                    fix="add the policy's items to the list, or remove the annotation",
                )
                draft.warn(own_annotation)


def _list_items(value: str) -> set[str]:
    """Return the set of items of a comma-separated or JSON list."""
    return {item.strip(" \t\n[]") for item in value.split(",")}
