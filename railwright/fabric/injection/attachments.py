"""Secondary networks: the rails' networks merged into the pod's selection, and the fabric's own annotations.

Owns rulings 9 to 11 as far as they touch a pod; the grammar is `railwright.fabric.networks`'.
"""

from collections.abc import Iterator

import msgspec

from railwright.fabric import names, networks
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import model, rails


class Attachments(msgspec.Struct, frozen=True):
    """What the pod will be attached to, and the changes that make it so."""

    selections: tuple[networks.Selection, ...]
    part: model.Part


def attach(aim: aims.Aim) -> Attachments:
    """The pod's attachments after ours are added. Raises RefusedError."""
    written = aim.pod.metadata.annotations.get(names.NETWORKS, "")
    ours = tuple(_selection(chosen) for chosen in aim.rails if chosen.network) if _wanted(aim) else ()
    try:
        merged = networks.merge(written, ours, aim.known.namespace)
        if merged.selections:
            networks.check_interfaces(
                merged.selections, aim.document.cluster_wide_networks, aim.document.primary_interface, merged.added
            )
            networks.check_gateways(merged.selections)
    except networks.InvalidNetworksError as error:
        where = f"annotation {names.NETWORKS} {model.quoted(written)}: " if written else ""
        raise model.RefusedError("networks", f"{where}{error}") from None
    _check_known(aim)
    extra = _extra(aim) if _wanted(aim) else model.NOTHING
    change = model.SetAnnotation(
        entry="networks",
        reason=f"attaches the pod to {merged.added} rail networks of fabric {aim.fabric_name}",
        key=names.NETWORKS,
        value=merged.text,
    )
    attached = () if aim.host_network else merged.selections  # Multus leaves such pods alone
    part = model.Part(
        changes=((change,) if merged.added else ()) + extra.changes,
        entries=(("networks",) if ours else ()) + extra.entries,
        warnings=tuple(_warnings(aim, attached)),
        skipped=_skipped(aim),
    )
    return Attachments(attached, part)


def _wanted(aim: aims.Aim) -> bool:
    return not aim.host_network and "networks" not in aim.wishes.skip and aim.role.rails


def _selection(chosen: rails.Chosen) -> networks.Selection:
    namespace, name = chosen.network or ("", "")
    return networks.Selection(namespace, name, chosen.rail.interface or "")


def default_network(aim: aims.Aim) -> tuple[networks.Selection, ...]:
    """The network that stands in for the cluster's own: only its devices concern us, and it is never touched."""
    if aim.host_network:
        return ()
    written = aim.pod.metadata.annotations.get(names.DEFAULT_NETWORK)
    if written is None and _wanted(aim):
        written = aim.fabric.annotations.get(names.DEFAULT_NETWORK)
    try:
        return networks.parse(written, names.MULTUS_NAMESPACE)[:1] if written else ()
    except networks.InvalidNetworksError:
        return ()  # theirs to mend: Multus will say so


def _check_known(aim: aims.Aim) -> None:
    """Raises RefusedError for a rail whose network is not there."""
    there = aim.known.networks
    if there is None or not _wanted(aim):
        return
    for chosen in aim.rails:
        if chosen.network and chosen.network not in there:
            raise model.RefusedError(
                "missing-network",
                f"NetworkAttachmentDefinition {'/'.join(chosen.network)} of fabric {aim.fabric_name} does not exist; "
                f"create it or correct `network` of rail {chosen.name} in the policy",
            )


def _warnings(aim: aims.Aim, selections: tuple[networks.Selection, ...]) -> Iterator[str]:
    if aim.host_network and aim.role.rails:
        yield _on_host_network(aim)
    ours = {chosen.network for chosen in aim.rails} if _wanted(aim) else set()
    for position, selection in enumerate(selections, start=1):
        if selection.gateways is not None:
            yield (
                f"annotation {names.NETWORKS}: entry {position} has default-route, which takes the default route "
                "from every other interface of the pod; remove it unless that is meant"
            )
        if aim.known.networks is not None and selection.key not in aim.known.networks and selection.key not in ours:
            yield (
                f"annotation {names.NETWORKS}: NetworkAttachmentDefinition "
                f"{model.some([f'{selection.namespace}/{selection.name}'])} of entry {position} does not exist, and "
                "the pod's sandbox does not start without it; create it or correct the entry"
            )


def _on_host_network(aim: aims.Aim) -> str:
    if aim.rails:
        return (
            f"spec.hostNetwork is true: fabric {aim.fabric_name} adds no networks and no NCCL_SOCKET_IFNAME; "
            "remove hostNetwork to get rails of the pod's own"
        )
    return (
        "spec.hostNetwork is true: NCCL_SOCKET_IFNAME is not set, because the interfaces of the host are not known; "
        "remove hostNetwork, or set NCCL_SOCKET_IFNAME in the container"
    )


def _skipped(aim: aims.Aim) -> dict[str, str]:
    if not any(chosen.network for chosen in aim.rails):
        return {}
    if "networks" in aim.wishes.skip:
        return {"networks": f"by annotation {names.SKIP}"}
    return {"networks": "hostNetwork"} if aim.host_network else {}


def _extra(aim: aims.Aim) -> model.Part:
    """The fabric's own annotations, where the pod has none of that key."""
    annotations = aim.pod.metadata.annotations
    changes, entries = [], []
    for key, value in aim.fabric.annotations.items():
        entry = f"annotations.{key}"
        if key not in annotations:
            reason = f"fabric {aim.fabric_name} has this annotation on every pod"
            changes.append(model.SetAnnotation(entry=entry, reason=reason, key=key, value=value))
        if annotations.get(key, value) == value:
            entries.append(entry)
    return model.Part(changes=tuple(changes), entries=tuple(entries))
