"""The environment of the chosen containers: literals and derived values where the user has set nothing.

Owns who wins: the user's entry, valueFrom included, unless the policy forces the name (rulings 8, 15). Which variables
there are is `tables`', how they travel is `delivery`'s.
"""

from collections.abc import Mapping, Sequence

import msgspec

from fabric import names, views
from fabric.injection import aim as aims
from fabric.injection import delivery, model
from fabric.nccl import common, derive
from fabric.nccl import model as nccl


def set_for(aim: aims.Aim) -> model.Part:
    """Environment and file of the pod. Raises RefusedError."""
    if not aim.role.rails and not aim.role.pins:
        return model.Part()
    if "env" in aim.wishes.skip:
        return model.Part(skipped={"env": f"by annotation {names.SKIP}"})
    parts = []
    if aim.role.rails:
        route = delivery.plan(aim)
        parts = [_ranks(aim, route), delivery.deliver(aim, route)]
    if aim.role.pins:
        parts.append(_pins(aim))
    return model.join(parts)


def _ranks(aim: aims.Aim, route: delivery.Plan) -> model.Part:
    parts = []
    for index in aim.targets:
        container = aim.container(index)
        if container.env_from:
            parts.append(_file_only(aim, index, route))
        else:
            parts.append(_container(aim, index, route.wanted if route.by_env else route.env_only, route.wanted))
    part = model.join(parts)
    carried = tuple(f"env.{each.name}" for each in route.in_file) if route.mounted else ()
    return msgspec.structs.replace(part, entries=tuple(dict.fromkeys(part.entries + carried)))


def _container(
    aim: aims.Aim, index: int, wanted: Sequence[nccl.Variable], checked: Sequence[nccl.Variable]
) -> model.Part:
    """`wanted` go into the environment; names of `checked` that the user set otherwise are kept, or forced."""
    there = _entries(aim.container(index))
    adding = {each.name for each in wanted}
    changes, entries, warnings, kept = [], [], [], []
    for variable in checked:
        at = there.get(variable.name)
        if at is None:
            if variable.name in adding:
                changes.append(_set(index, variable))
                entries.append(f"env.{variable.name}")
        elif at[1].value == variable.value and at[1].value_from is None:
            entries.append(f"env.{variable.name}")
        elif variable.name in aim.fabric.force_env:
            changes.append(_set(index, variable, at[0]))
            entries.append(f"env.{variable.name}")
            warnings.append(
                f"container {aim.container(index).name}: the policy of fabric {aim.fabric_name} forces "
                f"{variable.name}={variable.value}; the pod's own value was replaced"
            )
        else:
            kept.append(variable.name)
    name = aim.container(index).name
    return model.Part(tuple(changes), tuple(entries), tuple(warnings), {name: tuple(kept)} if kept else {})


def _file_only(aim: aims.Aim, index: int, route: delivery.Plan) -> model.Part:
    """A container with envFrom: an entry of ours would silently beat what envFrom brings, so nothing is added."""
    part = _container(aim, index, (), route.wanted)
    there = _entries(aim.container(index))
    lost = [each.name for each in route.env_only if each.name not in there]
    if not lost:
        return part
    warning = (
        f"container {aim.container(index).name} has envFrom: {model.listed(lost)} left out, because a file cannot "
        "carry them and an entry would beat what envFrom brings"
    )
    return msgspec.structs.replace(part, warnings=(*part.warnings, warning))


def _pins(aim: aims.Aim) -> model.Part:
    """Out-of-band pins of mpirun, each only where neither it nor its twin is set (webhooks.md 5.3)."""
    pins = derive.pins(aim.fabric, aim.document.primary_interface, aim.host_network)
    parts = []
    for index in aim.targets:
        container = aim.container(index)
        set_names = {entry.name for entry in container.env}
        free = [pin for pin in pins if set_names.isdisjoint(common.TWINS[pin.name])]
        if container.env_from and free:
            warning = f"container {container.name} has envFrom: {model.listed(pin.name for pin in free)} left out"
            parts.append(model.Part(warnings=(warning,)))
        else:
            parts.append(_container(aim, index, free, free))
    return model.join(parts)


def _entries(container: views.Container) -> Mapping[str, tuple[int, views.EnvVar]]:
    """Index and entry by name; of two with one name Kubernetes takes the last."""
    return {entry.name: (index, entry) for index, entry in enumerate(container.env_or_none or ())}


def _set(container: int, variable: nccl.Variable, index: int | None = None) -> model.SetEnv:
    return model.SetEnv(
        entry=f"env.{variable.name}",
        reason=f"{variable.reason} ({variable.source})",
        container=container,
        name=variable.name,
        value=variable.value,
        index=index,
    )
