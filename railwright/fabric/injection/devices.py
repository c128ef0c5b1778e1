"""Devices of the rails: how many of which resource, in which containers (rulings 10 to 13).

Owns the count. A resource that networks draw on (their own annotation names it) is a pool: Multus hands its devices to
attachments in turn, so it is requested once and covers every attachment. Any other is shared: each chosen container
needs it for itself.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from railwright.fabric import names, networks
from railwright.fabric.injection import accelerators, attachments, model, rails
from railwright.fabric.injection import aim as aims


def request(aim: aims.Aim, selections: Sequence[networks.Selection]) -> model.Part:
    """The devices the pod still lacks. Raises RefusedError."""
    selections = (*selections, *attachments.default_network(aim))
    if not aim.role.rails:
        warnings = tuple(_unrequested(aim, selections))
        return model.Part(warnings=warnings) if warnings else model.NOTHING
    if "devices" in aim.wishes.skip:
        warnings = tuple(_undrawn(aim, selections))
        return model.Part(skipped={"devices": f"by annotation {names.SKIP}"}, warnings=warnings)
    drawn = _drawn(aim, selections)
    wanted = _wanted(aim, selections, drawn)
    changes = tuple(change for resource in wanted for change in _changes(aim, resource, wanted[resource], drawn))
    return model.Part(
        changes=changes,
        entries=("devices",) if wanted else (),
        warnings=tuple(_warnings(aim, selections, wanted)),
    )


def _undrawn(aim: aims.Aim, selections: Sequence[networks.Selection]) -> Iterator[str]:
    """The warning where the pod itself requests too few devices of a pool that its networks draw on."""
    if lacking := _lacking(aim, selections):
        yield (
            f"annotation {names.SKIP} leaves out devices, and the pod requests too few of {model.some(lacking)} for "
            "its networks: its sandbox does not start; request them, or add networks to the annotation"
        )


def _unrequested(aim: aims.Aim, selections: Sequence[networks.Selection]) -> Iterator[str]:
    """The same for a pod without rails, to whose own networks nothing is added."""
    if lacking := _lacking(aim, selections):
        yield (
            f"annotation {names.NETWORKS}: the networks draw on {model.some(lacking)}, and the pod requests too few: "
            f"its sandbox does not start; request them, or remove the networks from this {aim.role.word} without rails"
        )


def _lacking(aim: aims.Aim, selections: Sequence[networks.Selection]) -> list[str]:
    """The pools on which the pod's networks draw more than its containers request."""
    drawn = _drawn(aim, selections)
    if not drawn:
        return []
    asked = {each: sum(accelerators.amount(of, each) for of in aim.pod.spec.containers) for each in drawn}
    return [each for each, needed in _wanted(aim, selections, drawn).items() if each in drawn and asked[each] < needed]


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


def _warnings(aim: aims.Aim, selections: Sequence[networks.Selection], wanted: Mapping[str, int]) -> Iterator[str]:
    yield from _of_the_policy(aim)
    if aim.known.offered is not None:
        yield from _not_offered(aim, selections, wanted, aim.known.offered)


def _of_the_policy(aim: aims.Aim) -> Iterator[str]:
    """Yield what only the operator can fix; `railwright.fabric.policy.shortcomings` reports it to the operator."""
    known = aim.known.networks or {}
    lacking = [each for each in aim.rails if each.resource is None and each.network is not None]
    if lacking and not aim.fabric.mounts.dev_infiniband:
        yield (
            f"no device is requested for {model.some(each.name for each in lacking)}, because neither the policy nor a "
            "network names a resource for it; ask the operator to set `resource` of the rail in the policy of fabric "
            f"{aim.fabric_name}"
        )
    for each in aim.rails:
        pool = known.get(each.network) if each.network else None
        if pool and each.resource and pool != each.resource:
            yield (
                f"{model.some([each.name])}: the policy requests {model.some([each.resource])} and the network draws "
                f"on {model.some([pool])}, so both are requested; ask the operator to correct `resource` of the rail"
            )
            return


def _not_offered(
    aim: aims.Aim, selections: Sequence[networks.Selection], wanted: Mapping[str, int], offered: Collection[str]
) -> Iterator[str]:
    """Resources that no node offers now. Nothing is refused: an autoscaler may bring such a node."""
    of_rails = {each.resource for each in aim.rails}
    missing = [resource for resource in wanted if resource not in offered]
    if rails_miss := [resource for resource in missing if resource in of_rails]:
        rails_told = model.some(each.name for each in aim.rails if each.resource in rails_miss)
        yield (
            f"no node offers {model.some(rails_miss)} now, which {rails_told} needs, and the pod waits for one that "
            "does; ask the operator to check the device plugin and `resource` of the rail"
        )
    known = aim.known.networks or {}
    if own := [resource for resource in missing if resource not in of_rails]:
        drawing = [f"{each.namespace}/{each.name}" for each in selections if known.get(each.key) in own]
        yield (
            f"no node offers {model.some(own)} now, on which network {model.some(drawing)} draws, and the pod waits "
            f"for one that does; correct annotation {names.NETWORKS}, or ask for its device plugin"
        )
    yield from _left_over(aim, {*wanted, *aim.document.accelerators, *offered})


def _left_over(aim: aims.Aim, known: Collection[str]) -> Iterator[str]:
    """Devices that a container requests and no node offers: often of a template made under an older policy."""
    for container in aim.pod.spec.containers:
        asked = sorted(name for name in accelerators.asked(container) if name not in known)
        asked = [name for name in asked if not name.startswith(_DEVICE_CLASS)]
        if asked:
            yield (
                f"container {container.name} requests {model.some(asked)}, which no node offers now, and the pod waits "
                "for one that does; remove the request if it is left from an older template"
            )


_DEVICE_CLASS = (
    "deviceclass.resource.kubernetes.io/"  # a DeviceClass as a resource's name: no node's allocatable has it
)
