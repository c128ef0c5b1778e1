"""How a rank's variables reach it: the container's environment, the file /etc/nccl.conf, or both (ruling 15).

Owns the routes and the `nccl.conf` annotation's text. What the variables are is `environment`'s.
"""

from collections.abc import Iterable

import msgspec

from fabric import names, views
from fabric.injection import aim as aims
from fabric.injection import model, mounts, roles, shapes, tables
from fabric.nccl import conf
from fabric.nccl import model as nccl


class Plan(msgspec.Struct, frozen=True):
    """Where variables go. `file`: lines of the pod's file. `mounted`: containers that get it.

    `in_env` says for each chosen container whether its environment may be added to at all.
    """

    wanted: tuple[nccl.Variable, ...]
    in_file: tuple[nccl.Variable, ...]
    env_only: tuple[nccl.Variable, ...]  # what environment gets when the file carries the rest
    mounted: tuple[int, ...]
    by_env: bool  # all of `wanted` go into environments
    per_node: bool  # the device list is added to the file at binding


def plan(aim: aims.Aim) -> Plan:
    """The routes of a rank's variables."""
    known = shapes.before_binding(aim.pod, aim.document, [chosen.rail for chosen in aim.rails])
    wanted = tables.of(aim.document).rank(
        aim.fabric_name,
        [chosen.rail for chosen in aim.rails],
        known.devices,
        host_network=aim.host_network,
    )
    mode = aim.wishes.delivery or aim.fabric.nccl.delivery
    per_node = known.per_node and names_devices(aim, wanted) and any(_lets_us(aim.container(i)) for i in aim.targets)
    everywhere = mode in {"file", "both"} or roles.ssh_launched(aim.pod)
    mounted = tuple(i for i in aim.targets if everywhere or per_node or aim.container(i).env_from)
    carried = any(aim.container(i).env_from for i in aim.targets) or everywhere
    in_file = tuple(each for each in wanted if _carries(each)) if carried else ()
    env_only = tuple(each for each in wanted if not _carries(each))
    return Plan(wanted, in_file, env_only, mounted, mode != "file", per_node)


def names_devices(aim: aims.Aim, wanted: Iterable[nccl.Variable]) -> bool:
    """True where the policy leaves the list of devices to us."""
    return aim.fabric.nccl.derive and tables.HCA not in {each.name for each in wanted}


def deliver(aim: aims.Aim, plan: Plan) -> model.Part:
    """The file: its annotation, its volume and its mounts. Raises RefusedError."""
    text = conf.emit((each.name, each.value) for each in plan.in_file)
    annotation, warnings = _annotation(aim, text)
    if not plan.mounted:
        return model.Part(changes=annotation, warnings=warnings)
    placed = mounts.place(aim, mounts.NCCL_CONF_FILE, plan.mounted)
    return msgspec.structs.replace(
        placed, changes=annotation + placed.changes, warnings=warnings + tuple(_unreached(aim, plan))
    )


def _annotation(aim: aims.Aim, text: str) -> tuple[tuple[model.SetAnnotation, ...], tuple[str, ...]]:
    """Our text in our annotation; what a user wrote there is overwritten (ruling 4)."""
    there = aim.pod.metadata.annotations.get(names.NCCL_CONF)
    if (there or "") == text:
        return (), ()
    reason = "the lines of the file; its volume reads them from here"
    change = model.SetAnnotation(entry="nccl.conf", reason=reason, key=names.NCCL_CONF, value=text)
    if there is None:
        return (change,), ()
    warning = f"annotation {names.NCCL_CONF} is written by railwright; its value was replaced"
    return (change,), (warning,)


def _unreached(aim: aims.Aim, plan: Plan) -> Iterable[str]:
    for index in plan.mounted:
        container = aim.container(index)
        if mounts.mounts_itself(container, mounts.NCCL_CONF_FILE):
            yield (
                f"container {container.name} mounts {names.NCCL_CONF_PATH} itself: the settings of fabric "
                f"{aim.fabric_name} do not reach it by file"
            )


def _carries(variable: nccl.Variable) -> bool:
    return conf.carries(variable.name) and conf.fits(variable.name, variable.value)


def _lets_us(container: views.Container) -> bool:
    """True where the container leaves the list of devices to us."""
    return all(entry.name != tables.HCA for entry in container.env)
