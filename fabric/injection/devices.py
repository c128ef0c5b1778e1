"""Devices of the rails: how many of which resource, in which containers (rulings 10 to 13).

Owns the count. A resource that networks draw on (their own annotation names it) is a pool: Multus hands its devices to
attachments in turn, so it is requested once and covers every attachment. Any other is shared: each chosen container
needs it for itself.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from fabric import names, networks
from fabric.injection import accelerators, attachments, model, rails
from fabric.injection import aim as aims


def request(aim: aims.Aim, selections: Sequence[networks.Selection]) -> model.Part:
    """The devices the pod still lacks. Raises RefusedError."""
    if not aim.role.rails:
        return model.NOTHING
    if "devices" in aim.wishes.skip:
        return model.Part(skipped={"devices": f"by annotation {names.SKIP}"})
    selections = (*selections, *attachments.default_network(aim))
    drawn = _drawn(aim, selections)
    wanted = _wanted(aim, selections, drawn)
    changes = tuple(change for resource in wanted for change in _changes(aim, resource, wanted[resource], drawn))
    return model.Part(
        changes=changes,
        entries=("devices",) if wanted else (),
        warnings=tuple(_warnings(aim, wanted)),
    )


def _drawn(aim: aims.Aim, selections: Sequence[networks.Selection]) -> set[str]:
    """The pools that attachments draw on."""
    known = aim.known.networks
    return {resource for selection in selections if (resource := known.get(selection.key))} if known else set()


def _wanted(aim: aims.Aim, selections: Sequence[networks.Selection], drawn: Collection[str]) -> dict[str, int]:
    """Devices by resource: those of the rails, and one for every further attachment that draws on a pool."""
    wanted: dict[str, int] = {}
    for chosen in aim.rails:
        if chosen.resource is not None:
            wanted[chosen.resource] = wanted.get(chosen.resource, 0) + aim.fabric.devices_per_rail
    for resource in _others(aim, selections) if drawn else ():
        if not rails.opted_out(aim.pod, resource):
            wanted[resource] = wanted.get(resource, 0) + 1
    return wanted


def _others(aim: aims.Aim, selections: Sequence[networks.Selection]) -> Iterator[str]:
    """The pool of each attachment that no rail's request covers: the user's own, and a rail's whose network draws on
    another pool than the policy names for it.
    """
    known = aim.known.networks or {}
    of_rails = Counter(each.network for each in aim.rails if each.network and each.resource == known.get(each.network))
    for selection in selections:
        if of_rails[selection.key] > 0:
            of_rails[selection.key] -= 1
        elif resource := known.get(selection.key):
            yield resource


def _changes(aim: aims.Aim, resource: str, needed: int, drawn: Collection[str]) -> Iterator[model.AddResource]:
    asked = [accelerators.amount(container, resource) for container in aim.pod.spec.containers]
    if resource in drawn and len(aim.targets) > 1:
        _check_decided(aim, resource, needed - sum(asked))
        return
    elsewhere = sum(asked) - sum(asked[index] for index in aim.targets)
    for index in aim.targets:
        own = asked[index]
        if own == 0 and accelerators.names(aim.container(index), resource):
            continue  # a "0" of its own, while another container takes part
        wanted = max(own, needed - elsewhere)  # never lowered
        if wanted > 0 and not _has(aim, index, resource, wanted):
            reason = f"{needed} x {resource} for the rails of fabric {aim.fabric_name}"
            yield model.AddResource(entry="devices", reason=reason, container=index, resource=resource, quantity=wanted)


def _check_decided(aim: aims.Aim, resource: str, missing: int) -> None:
    """Raise RefusedError where several containers are chosen and a pool needs one of them.

    A pool of the rails is for the container that computes. One of the user's own networks may be requested anywhere.
    """
    chosen = f"{len(aim.targets)} containers are chosen ({model.listed(aim.container(i).name for i in aim.targets)})"
    if any(rail.resource == resource for rail in aim.rails):
        raise model.RefusedError(
            "containers",
            f"{resource} is handed to the pod's networks once, and {chosen}; name one in annotation {names.CONTAINERS}",
        )
    if missing > 0:
        raise model.RefusedError(
            "containers",
            f"annotation {names.NETWORKS}: a network draws on {resource}, which no container requests in full, and "
            f"{chosen}; request {missing} of it in the container that uses the network",
        )


def _has(aim: aims.Aim, index: int, resource: str, wanted: int) -> bool:
    """True where both request and limit are written and are what is wanted."""
    resources = aim.container(index).resources
    if resources is None or resource not in resources.requests or resource not in resources.limits:
        return False
    return accelerators.quantities(resources, resource) == (wanted, wanted)


def _warnings(aim: aims.Aim, wanted: Mapping[str, int]) -> Iterator[str]:
    known, offered = aim.known.networks, aim.known.offered
    for chosen in aim.rails:
        if chosen.resource is None and chosen.network is not None and not aim.fabric.mounts.dev_infiniband:
            why = "is not known here" if known is None else f"has no annotation {names.NAD_RESOURCE_NAME}"
            yield (
                f"rail {chosen.name}: name its `resource` in the policy: no device is requested without, because "
                f"its network {'/'.join(chosen.network)} {why}"
            )
        pool = known.get(chosen.network) if known and chosen.network else None
        if pool and chosen.resource and pool != chosen.resource:
            yield (
                f"rail {chosen.name}: correct its `resource` in the policy: it is {chosen.resource}, and network "
                f"{'/'.join(chosen.network or ())} draws on {pool}, so that both are requested"
            )
    if offered is None:
        return
    for resource in wanted:
        if resource not in offered:
            of = [chosen.name for chosen in aim.rails if chosen.resource == resource]
            whose = f", for rail {model.listed(of)}" if of else ""
            yield (
                "check the device plugin, or `resource` of the rail in the policy; the pod waits for a node: "
                f"no node offers {resource} now{whose}"
            )
