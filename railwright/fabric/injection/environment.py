"""The environment of the chosen containers: literals and derived values where the user has set nothing.

Owns who wins: the user's entry, valueFrom included, unless the policy forces the name (rulings 8, 15). Which variables
there are is `tables`', how they travel is `delivery`'s.
"""

import functools
from collections.abc import Collection, Sequence

from railwright.fabric import names
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import delivery, entries, model, tables, targets
from railwright.fabric.nccl import derive, libraries
from railwright.fabric.nccl import model as nccl


def set_for(aim: aims.Aim) -> list[model.Part]:
    """Environment and file of the pod. Raises RefusedError."""
    wanted = aim.role.rails or aim.role.pins
    if wanted and "env" in aim.wishes.skip:
        return [delivery.nothing(aim), model.Part(skipped={"env": f"by annotation {names.SKIP}"})]
    if not aim.role.rails:
        return [delivery.nothing(aim), *(_pins(aim) if aim.role.pins else ())]
    route = delivery.route(aim)
    return [*_ranks(aim, route), delivery.deliver(aim, route)]


def _ranks(aim: aims.Aim, route: delivery.Route) -> list[model.Part]:
    parts = [part for index in aim.targets for part in _rank(aim, index, route)]
    if route.per_node:
        parts.append(_later(aim))
        parts += [_yielding(aim, index) for index in route.mounted]
    if route.in_file:
        parts.append(model.Part(entries=tuple([each.entry for each in route.in_file]), reasons=(route.found.reasons,)))
    return parts


def _rank(aim: aims.Aim, index: int, route: delivery.Route) -> list[model.Part]:
    container = aim.container(index)
    there = entries.by_name(container)
    known, adding = route.found.all, route.in_env
    shown = libraries.shown(there) | libraries.OPEN_MPI if aim.role.pins else libraries.shown(there)
    if shown:
        ours = {each.name: each for each in (*known, *route.found.beside)}
        beside = [each for each in route.found.beside if libraries.library_of(each.name) in shown]
        known = tuple([each for each in (*known, *beside) if not entries.excluded(there, each, ours)])
        adding = (*adding, *beside)
    if not entries.may_come_from_a_source(container, route.found.all, route.found.beside):
        return [_container(aim, index, there, known, adding, route.found.reasons)]
    return _with_source(aim, index, there, known, route.found.carried, route.found.reasons)


def _container(  # noqa: PLR0913, PLR0917 - two facts of the pod, three of the policy
    aim: aims.Aim,
    index: int,
    there: entries.ByName,
    known: Sequence[tables.Setting],
    adding: Collection[tables.Setting],
    reasons: model.Reasons,
) -> model.Part:
    """`adding` go into the environment; a name of `known` that the user set otherwise is kept, or forced."""
    container = aim.container(index)
    forced = aim.fabric.force_env
    changes, listed, warnings, kept = [], [], [], []
    for setting in known:
        at = there.get(setting.name)
        if at is None:
            if adding is known or setting in adding:
                changes.append(_set(index, setting))
                listed.append(setting.entry)
        elif at[1].value == setting.value:
            listed.append(setting.entry)
        elif setting.name in forced:
            changes.append(_set(index, setting, at[0]))
            listed.append(setting.entry)
            warnings.append(
                f"container {container.name}: remove {setting.name} from the pod; the pod's own value was replaced, "
                f"because the policy of fabric {aim.fabric_name} forces {setting.name}={setting.value}"
            )
        else:
            kept.append(setting.name)
    own = {container.name: tuple(kept)} if kept else {}
    return model.Part(tuple(changes), tuple(listed), tuple(warnings), own, reasons=(reasons,))


def _with_source(  # noqa: PLR0913, PLR0917 - as above
    aim: aims.Aim,
    index: int,
    there: entries.ByName,
    known: Sequence[tables.Setting],
    carried: Collection[tables.Setting],
    reasons: model.Reasons,
) -> list[model.Part]:
    """Set a container with envFrom: an entry of ours would silently override what envFrom brings, so only forced names
    get one, with a warning.

    `carried` are the settings that a file can carry. Where the file does not reach the container, `delivery` warns.
    """
    name = aim.container(index).name
    forcing = [each for each in known if each.name in aim.fabric.force_env]
    lost = [each.name for each in known if each.name not in there and each not in carried and each not in forcing]
    warnings = [
        f"container {name}: the policy forces {each.name}={model.some([each.value])}, which overrides what envFrom may "
        f"bring for {each.name}; remove it there"
        for each in forcing
        if each.name not in there
    ]
    if lost:
        warnings.append(
            f"container {name} has envFrom, which entries in env would override, and no file carries "
            f"{model.some(lost)}; set them in env or in its source"
        )
    return [_container(aim, index, there, known, forcing, reasons), model.Part(warnings=tuple(warnings))]


def _later(aim: aims.Aim) -> model.Part:
    """The list of devices waits for the binding, which a pod that names its node itself never has."""
    entry = f"env.{tables.HCA}"
    if not aim.pod.spec.node_name:
        return model.Part(skipped={entry: "written at binding"})
    warning = (
        f"spec.nodeName is set: no scheduler binds the pod, so {tables.HCA} is not written for its node; "
        "choose the node by nodeSelector instead"
    )
    return model.Part(skipped={entry: "spec.nodeName is set"}, warnings=(warning,))


def _yielding(aim: aims.Aim, index: int) -> model.Part:
    """A forced list of devices that only the node decides comes by file, which the pod's own entries would beat."""
    container = aim.container(index)
    own = [at for at, entry in enumerate(container.env) if entry.name == tables.HCA]
    if not own or tables.HCA not in aim.fabric.force_env:
        return model.NOTHING
    reason = f"the policy of fabric {aim.fabric_name} forces {tables.HCA}, which is written at binding"
    warning = f"container {container.name}: remove {tables.HCA} from the pod; the pod's own value was removed: {reason}"
    changes = tuple(model.UnsetEnv(entry="", reason=reason, container=index, index=at) for at in reversed(own))
    return model.Part(changes=changes, warnings=(warning,))


def _pins(aim: aims.Aim) -> list[model.Part]:
    """Out-of-band pins of mpirun, each only where neither it nor its twin is set (webhooks.md 5.3)."""
    pins = {each.name: tables.setting(each) for each in _pinning(aim)}
    reasons = model.Reasons({each.entry: each.reason for each in pins.values()})
    parts = []
    for index in targets.launching(aim.pod, aim.targets):
        container = aim.container(index)
        there = entries.by_name(container)
        free = [each for each in pins.values() if not entries.excluded(there, each, pins)]
        if entries.may_come_from_a_source(container, pins.values()):
            if index in aim.targets:
                parts += _with_source(aim, index, there, free, (), reasons)
        else:
            parts.append(_container(aim, index, there, free, free, reasons))
    return parts


def _pinning(aim: aims.Aim) -> Sequence[nccl.Variable]:
    return derive.pins(aim.fabric, aim.document.primary_interface, aim.host_network)


@functools.lru_cache(maxsize=4096)  # the same few for every pod of a fabric
def _set(container: int, setting: tables.Setting, index: int | None = None) -> model.SetEnv:
    return model.SetEnv(
        entry=setting.entry,
        reason=setting.reason,
        container=container,
        name=setting.name,
        value=setting.value,
        index=index,
    )
