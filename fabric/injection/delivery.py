"""How a rank's variables reach it: the container's environment, the file /etc/nccl.conf, or both (ruling 15).

Owns the routes and the `nccl.conf` annotation's text. What the variables are is `tables`', who wins is
`environment`'s.
"""

from collections.abc import Iterable, Sequence

import msgspec

from fabric import names, views
from fabric.injection import aim as aims
from fabric.injection import model, mounts, roles, shapes, tables
from fabric.policy import model as policies


class Route(msgspec.Struct, frozen=True):
    """Where the variables of a pod go."""

    settings: tuple[tables.Setting, ...]  # all of them
    in_env: tuple[tables.Setting, ...]  # what an environment is given; nothing where it has envFrom
    others: tuple[tables.Setting, ...]  # what no file can carry
    in_file: tuple[tables.Setting, ...]
    text: str  # of the file, as far as it is known before binding
    mounted: tuple[int, ...]  # containers that are to get the file; those that mount one of their own do not
    per_node: bool  # the device list joins the file at binding


def route(aim: aims.Aim) -> Route:
    """The routes of a rank's variables."""
    rails = [chosen.rail for chosen in aim.rails]
    known = shapes.before_binding(aim.pod, aim.document, rails)
    found = tables.of(aim.document).rank(aim.fabric_name, rails, known.devices, host_network=aim.host_network)
    mode = aim.wishes.delivery or aim.fabric.nccl.delivery
    per_node = known.per_node and _node_decides(aim, rails, found)
    everywhere = mode != "env" or roles.ssh_launched(aim.pod)
    with_source = tuple([index for index in aim.targets if aim.container(index).env_from])
    mounted = aim.targets if everywhere or per_node else with_source
    reached = any(not mounts.mounts_itself(aim.container(index), mounts.NCCL_CONF_FILE) for index in mounted)
    carrying = reached and (everywhere or bool(with_source))
    return Route(
        settings=found.all,
        in_env=found.others if mode == "file" else found.all,
        others=found.others,
        in_file=found.carried if carrying else (),
        text=found.text if carrying else "",
        mounted=mounted,
        per_node=per_node and reached,
    )


def deliver(aim: aims.Aim, route: Route) -> model.Part:
    """The file: its annotation, its volume and its mounts. Raises RefusedError."""
    annotation, warnings = _annotation(aim, route.text)
    if not route.mounted:
        return model.Part(changes=annotation, warnings=warnings)
    placed = mounts.place(aim, mounts.NCCL_CONF_FILE, route.mounted)
    return msgspec.structs.replace(
        placed, changes=annotation + placed.changes, warnings=(*warnings, *_unreached(aim, route))
    )


def nothing(aim: aims.Aim) -> model.Part:
    """No file for this pod: what a user wrote as its text does not stay (ruling 4)."""
    annotation, warnings = _annotation(aim, "")
    return model.Part(changes=annotation, warnings=warnings)


def _node_decides(aim: aims.Aim, rails: Sequence[policies.Rail], found: tables.Settings) -> bool:
    """True where the list of devices is ours to write and lacks only the node: another transport has no such list, the
    policy may have a literal, and every chosen container may have set its own, which stays unless it is forced.
    """
    if _names_devices(found):
        return False
    some = tables.of(aim.document).rank(aim.fabric_name, rails, ("any",), host_network=aim.host_network)
    forced = tables.HCA in aim.fabric.force_env
    return _names_devices(some) and (forced or any(_leaves_devices(aim.container(index)) for index in aim.targets))


def _names_devices(settings: tables.Settings) -> bool:
    return any(each.name == tables.HCA for each in settings.all)


def _leaves_devices(container: views.Container) -> bool:
    return all(entry.name != tables.HCA for entry in container.env)


def _annotation(aim: aims.Aim, text: str) -> tuple[tuple[model.SetAnnotation, ...], tuple[str, ...]]:
    """Our text in our annotation; what a user wrote there is overwritten (ruling 4)."""
    there = aim.pod.metadata.annotations.get(names.NCCL_CONF)
    if (there or "") == text:
        return (), ()
    reason = "the lines of the file; its volume reads them from here"
    change = model.SetAnnotation(entry="nccl.conf", reason=reason, key=names.NCCL_CONF, value=text)
    if there is None:
        return (change,), ()
    warning = f"annotation {names.NCCL_CONF} is written by railwright; its value was replaced; remove it"
    return (change,), (warning,)


def _unreached(aim: aims.Aim, route: Route) -> Iterable[str]:
    for index in route.mounted:
        container = aim.container(index)
        if mounts.mounts_itself(container, mounts.NCCL_CONF_FILE):
            yield (
                f"container {container.name} mounts {names.NCCL_CONF_PATH} itself; remove that mount, or set in env "
                f"what does not reach it by file: the settings of fabric {aim.fabric_name}"
            )
