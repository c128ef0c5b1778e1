"""Merges the networks of the rails into the pod's network selection, and adds the annotations of the fabric.

A fabric may attach rails by the annotation of another system than Multus instead: a list in JSON with an item for each
rail.

`railwright.fabric.multus` owns the grammar of the selection. The rules are in docs/interface.md 3.1.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, text, topology
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.multus import annotation, network_selection
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode


def attach(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Attach the pod to the networks of its rails. Raises RefusedError."""
    user_value = pod.metadata.annotations.get(names.NETWORKS, "")
    gets_networks = not pod.host_network and "networks" not in ctx.options.skip and ctx.role.rails
    rail_selections = ctx.selected.attachments if gets_networks else ()
    merged = annotation.merge(user_value, pod.networks, rail_selections)
    if merged.selections:
        _check_selections(ctx, merged, user_value)
    if gets_networks:
        _check_networks_exist(ctx)
    annotations = _add_fabric_annotations(pod, ctx) if gets_networks else pod_changes.EMPTY
    attached = () if pod.host_network else merged.selections
    return pod_changes.Contribution(
        changes=(*_set_networks(ctx, merged), *annotations.changes),
        entries=(("networks",) if rail_selections else ()) + annotations.entries,
        warnings=tuple(_list_warnings(pod, ctx, attached, rail_selections)),
        skipped=_explain_skipped(pod, ctx),
    )


def _set_networks(ctx: context.InjectionContext, merged: annotation.Merged) -> tuple[pod_changes.Change, ...]:
    if not merged.added:
        return ()
    change = pod_changes.SetNetworks(
        entry="networks",
        reason=f"attaches the pod to {merged.added} rail networks of fabric {ctx.fabric_name}",
        key=names.NETWORKS,
        value=merged.text,
        selections=merged.selections,
    )
    return (change,)


def _check_selections(ctx: context.InjectionContext, merged: annotation.Merged, user_value: str) -> None:
    document = ctx.document
    try:
        network_selection.check_interfaces(
            merged.selections, document.cluster_wide_networks, document.primary_interface, merged.added
        )
        network_selection.check_gateways(merged.selections)
    except network_selection.InvalidNetworksError as error:
        raise applied_pod.refuse_networks(user_value, error) from None


def _check_networks_exist(ctx: context.InjectionContext) -> None:
    """Raise RefusedError if the NetworkAttachmentDefinition of a rail does not exist."""
    existing = ctx.known.networks
    for rail in ctx.rails:
        if existing is not None and rail.network and rail.network not in existing:
            raise reasons.RefusedError(
                "missing-network",
                f"NetworkAttachmentDefinition {'/'.join(rail.network)} of fabric {ctx.fabric_name} does not exist; "
                f"create it or correct `network` of rail {rail.name} in the policy",
            )


def _list_warnings(
    pod: applied_pod.AppliedPod,
    ctx: context.InjectionContext,
    attached: Sequence[network_selection.Selection],
    rail_selections: Sequence[network_selection.Selection],
) -> Iterator[reasons.Reason]:
    if pod.host_network and ctx.role.rails and not ctx.fabric.pod.host_network:
        yield _explain_host_network(ctx)
    existing = ctx.known.networks
    rail_networks = {selection.key for selection in rail_selections}
    for position, selection in enumerate(attached, start=1):
        if selection.gateways is not None:
            yield reasons.make(AdmissionCode.DEFAULT_ROUTE, entry=position)
        if existing is not None and selection.key not in existing and selection.key not in rail_networks:
            network = f"{selection.namespace}/{selection.name}"
            yield reasons.make(AdmissionCode.NETWORK_MISSING, network=network, entry=position)


def _explain_host_network(ctx: context.InjectionContext) -> reasons.Reason:
    """Return the reason why a pod gets no networks. Without rails it would get none in any case."""
    return reasons.make(AdmissionCode.HOST_NETWORK, fabric=ctx.fabric_name if ctx.rails else "")


def _explain_skipped(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> dict[str, reasons.Reason]:
    if not ctx.selected.attachments:
        return {}
    if "networks" in ctx.options.skip:
        return {"networks": context.SKIPPED}
    return {"networks": _explain_host_network(ctx)} if pod.host_network else {}


def _add_fabric_annotations(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the fabric's annotations whose keys the pod does not have."""
    annotations = pod.metadata.annotations
    changes, entries = [], []
    for key, value in ctx.fabric.annotations.items():
        entry = f"annotations.{key}"
        if key not in annotations:
            reason = f"fabric {ctx.fabric_name} has this annotation on every pod"
            changes.append(pod_changes.SetAnnotation(entry=entry, reason=reason, key=key, value=value))
        if annotations.get(key, value) == value:
            entries.append(entry)
    return pod_changes.Contribution(changes=tuple(changes), entries=tuple(entries))


# --- networks by the annotation of another system than Multus ---------------------------------------------

Item = Mapping[str, Any]

_INTERFACE = "{interface}"
_MAX_ITEMS = 256  # no pod has as many networks, and each is compared with the rails
_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_item_decoder = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder(order="sorted").encode


def attach_by_annotation(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the items of the pod's rails that it does not have. Raises RefusedError for a value that is no such list.

    The user's items stay first and as they are written. A rail for whose interface the user has an item is the user's
    (docs/interface.md 3.1).
    """
    other = ctx.fabric.network_annotation
    if other is None or not ctx.rails or pod.host_network or "networks" in ctx.options.skip:
        return pod_changes.EMPTY
    entry = f"annotations.{other.key}"
    own = _read_items(other.key, pod.metadata.annotations.get(other.key, "[]"))
    required = (*other.first, *[_fill(other.item, rail.rail) for rail in ctx.rails])
    missing = [*_find_missing(own, required, [key for key, value in other.item.items() if value == _INTERFACE])]
    if not missing:
        return pod_changes.Contribution(entries=(entry,))
    change = pod_changes.SetAnnotation(
        entry=entry,
        reason=f"attaches the pod to the rails of fabric {ctx.fabric_name}",
        key=other.key,
        value=msgspec.json.encode([*own, *missing]).decode(),
    )
    return pod_changes.Contribution((change,), (entry,))


def _read_items(key: str, value: str) -> list[msgspec.Raw]:
    try:
        items = _decoder.decode(value)
        for item in items if len(items) <= _MAX_ITEMS else ():
            _item_decoder.decode(item)
    except (msgspec.MsgspecError, RecursionError):
        message = f"annotation {key} {text.quote(value)} is not a list of JSON objects, to which rails could be added"
        raise reasons.RefusedError("networks", f"{message}; correct or remove it") from None
    if len(items) > _MAX_ITEMS:
        message = f"annotation {key} has {len(items)} items, and the limit is {_MAX_ITEMS}"
        raise reasons.RefusedError("networks", f"{message}; remove some")
    return items


def _fill(value: Any, rail: policies.Rail) -> Any:
    """Return an item of the policy for one rail."""
    if isinstance(value, str):
        return value.replace(topology.RAIL, rail.name).replace(_INTERFACE, rail.interface or "")
    if isinstance(value, dict):
        return {key: _fill(part, rail) for key, part in value.items()}
    return [_fill(part, rail) for part in value] if isinstance(value, list) else value


def _find_missing(
    own: Sequence[msgspec.Raw], required: Sequence[Item], interface_keys: Sequence[str]
) -> Iterator[Item]:
    """Yield the required items that are not among the user's. An equal item counts as often as it occurs."""
    decoded = [_item_decoder.decode(item) for item in own]
    counts = Counter(map(_encode, decoded))
    names_by_key = {key: {name for item in decoded if isinstance(name := item.get(key), str)} for key in interface_keys}
    for item in required:
        encoded = _encode(item)
        if counts[encoded] > 0:
            counts[encoded] -= 1
        elif not any(isinstance(name := item.get(key), str) and name in taken for key, taken in names_by_key.items()):
            yield item
