"""The environment of the chosen containers: literals and derived values where the user has set nothing.

Owns who wins: the user's entry, valueFrom included, unless the policy forces the name (rulings 8, 15). Which variables
there are is `tables`', how they travel is `delivery`'s.
"""

from collections.abc import Mapping, Sequence

from fabric import names, views
from fabric.injection import aim as aims
from fabric.injection import delivery, model, mounts, tables
from fabric.nccl import common, derive


def set_for(aim: aims.Aim) -> list[model.Part]:
    """Environment and file of the pod. Raises RefusedError."""
    wanted = aim.role.rails or aim.role.pins
    if wanted and "env" in aim.wishes.skip:
        return [delivery.nothing(aim), model.Part(skipped={"env": f"by annotation {names.SKIP}"})]
    parts: list[model.Part] = []
    if aim.role.rails:
        route = delivery.route(aim)
        parts += [*_ranks(aim, route), delivery.deliver(aim, route)]
    else:
        parts.append(delivery.nothing(aim))
    if aim.role.pins:
        parts += _pins(aim)
    return parts


def _ranks(aim: aims.Aim, route: delivery.Route) -> list[model.Part]:
    parts = []
    for index in aim.targets:
        with_source = bool(aim.container(index).env_from)
        parts.append(_container(aim, index, () if with_source else route.in_env, route.settings))
        if with_source:
            parts.append(_left_out(aim, index, route))
    if route.per_node:
        parts.append(_later(aim))
        parts += [_yielding(aim, index) for index in route.mounted]
    if route.mounted and route.in_file:
        parts.append(model.Part(entries=tuple(each.entry for each in route.in_file)))
    return parts


def _container(
    aim: aims.Aim, index: int, adding: Sequence[tables.Setting], known: Sequence[tables.Setting]
) -> model.Part:
    """`adding` go into the environment; a name of `known` that the user set otherwise is kept, or forced."""
    container = aim.container(index)
    there = _entries(container)
    forced = aim.fabric.force_env
    changes, entries, warnings, kept = [], [], [], []
    for setting in known:
        at = there.get(setting.name)
        if at is None:
            if setting in adding:
                changes.append(_set(index, setting))
                entries.append(setting.entry)
        elif at[1].value == setting.value and at[1].value_from is None:
            entries.append(setting.entry)
        elif setting.name in forced:
            changes.append(_set(index, setting, at[0]))
            entries.append(setting.entry)
            warnings.append(
                f"container {container.name}: remove {setting.name} from the pod; the pod's own value was replaced, "
                f"because the policy of fabric {aim.fabric_name} forces {setting.name}={setting.value}"
            )
        else:
            kept.append(setting.name)
    own = {container.name: tuple(kept)} if kept else {}
    return model.Part(tuple(changes), tuple(entries), tuple(warnings), own)


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
    if not own or tables.HCA not in aim.fabric.force_env or mounts.mounts_itself(container, mounts.NCCL_CONF_FILE):
        return model.NOTHING
    reason = f"the policy of fabric {aim.fabric_name} forces {tables.HCA}, which is written at binding"
    warning = f"container {container.name}: remove {tables.HCA} from the pod; the pod's own value was removed: {reason}"
    changes = tuple(model.UnsetEnv(entry="", reason=reason, container=index, index=at) for at in reversed(own))
    return model.Part(changes=changes, warnings=(warning,))


def _left_out(aim: aims.Aim, index: int, route: delivery.Route) -> model.Part:
    """A container with envFrom: an entry of ours would silently beat what envFrom brings, so none is added."""
    there = _entries(aim.container(index))
    lost = [each.name for each in route.others if each.name not in there]
    if not lost:
        return model.NOTHING
    warning = (
        f"container {aim.container(index).name} has envFrom: set there or in env, because a file cannot carry them "
        f"and an entry of ours would beat what envFrom brings: {model.listed(lost)} left out"
    )
    return model.Part(warnings=(warning,))


def _pins(aim: aims.Aim) -> list[model.Part]:
    """Out-of-band pins of mpirun, each only where neither it nor its twin is set (webhooks.md 5.3)."""
    pins = derive.pins(aim.fabric, aim.document.primary_interface, aim.host_network)
    ours = {pin.name: pin.value for pin in pins}
    parts = []
    for index in aim.targets:
        container = aim.container(index)
        there = _entries(container)
        free = [tables.setting(pin) for pin in pins if not _excluded(there, pin.name, ours)]
        missing = [each.name for each in free if each.name not in there]
        if container.env_from and missing:
            warning = f"container {container.name} has envFrom: set there or in env: {model.listed(missing)} left out"
            parts.append(model.Part(warnings=(warning,)))
        parts.append(_container(aim, index, () if container.env_from else free, free))
    return parts


def _excluded(there: Mapping[str, tuple[int, views.EnvVar]], name: str, ours: Mapping[str, str]) -> bool:
    """True where the user has set a twin of the pin otherwise than we do."""
    return any(twin in there and there[twin][1].value != ours.get(twin) for twin in common.TWINS[name])


def _entries(container: views.Container) -> Mapping[str, tuple[int, views.EnvVar]]:
    """Index and entry by name; of two with one name Kubernetes takes the last."""
    return {entry.name: (index, entry) for index, entry in enumerate(container.env_or_none or ())}


def _set(container: int, setting: tables.Setting, index: int | None = None) -> model.SetEnv:
    return model.SetEnv(
        entry=setting.entry,
        reason=setting.reason,
        container=container,
        name=setting.name,
        value=setting.value,
        index=index,
    )
