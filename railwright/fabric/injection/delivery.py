"""How a rank's variables reach it: the container's environment, the file /etc/nccl.conf, or both (ruling 15).

Owns the routes and the `nccl.conf` annotation's text. What the variables are is `tables`', who wins is
`environment`'s.
"""

from collections.abc import Iterable, Sequence

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import entries, model, mounts, roles, shapes, tables
from railwright.fabric.policy import model as policies

_PARENT = names.NCCL_CONF_PATH.rpartition("/")[0]


class Route(msgspec.Struct, frozen=True):
    """Where the variables of a pod go."""

    found: tables.Settings  # all of them
    in_env: tuple[tables.Setting, ...]  # what an environment is given; nothing where it has envFrom
    in_file: tuple[tables.Setting, ...] = ()
    text: str = ""  # of the file, as far as it is known before binding
    mounted: tuple[int, ...] = ()  # containers that get the file
    unreached: tuple[int, ...] = ()  # containers that were to get it, and have something of their own in its place
    per_node: bool = False  # the device list joins the file at binding


def route(aim: aims.Aim) -> Route:
    """The routes of a rank's variables."""
    rails = [chosen.rail for chosen in aim.rails]
    known = shapes.before_binding(aim.pod, aim.document, rails)
    found = tables.of(aim.document).rank(aim.fabric_name, rails, known.devices, host_network=aim.host_network)
    mode = aim.wishes.delivery or aim.fabric.nccl.delivery
    per_node = known.per_node and _node_decides(aim, rails, found)
    everywhere = mode != "env" or roles.ssh_launched(aim.pod)
    with_source = tuple(
        [
            index
            for index in aim.targets
            if entries.may_come_from_a_source(aim.container(index), found.all, found.beside)
        ]
    )
    if not (everywhere or per_node or with_source):
        return Route(found, found.all)
    wanted = aim.targets if everywhere or per_node else with_source
    mounted = tuple([index for index in wanted if not in_its_place(aim.container(index))])
    in_file = _unset(aim, mounted, found.carried) if mounted and (everywhere or with_source) else ()
    return Route(
        found=found,
        in_env=found.others if mode == "file" else found.all,
        in_file=in_file,
        text=found.text if in_file is found.carried else tables.text(in_file),
        mounted=mounted,
        unreached=tuple([index for index in wanted if index not in mounted]),
        per_node=per_node and bool(mounted),
    )


def deliver(aim: aims.Aim, route: Route) -> model.Part:
    """The file: its annotation, its volume and its mounts. Raises RefusedError."""
    annotation, warnings = _annotation(aim, route.text)
    if not route.mounted and not route.unreached:
        return model.Part(changes=annotation, warnings=warnings) if annotation else model.NOTHING
    placed = mounts.place(aim, mounts.NCCL_CONF_FILE, route.mounted) if route.mounted else model.NOTHING
    skipped = {} if route.mounted or not route.unreached else {"nccl.conf": f"{names.NCCL_CONF_PATH} is the user's"}
    return msgspec.structs.replace(
        placed,
        changes=annotation + placed.changes,
        warnings=(*warnings, *_unreached(aim, route.unreached)),
        skipped=skipped,
    )


def nothing(aim: aims.Aim) -> model.Part:
    """No file for this pod: what a user wrote as its text does not stay (ruling 4)."""
    annotation, warnings = _annotation(aim, "")
    return model.Part(changes=annotation, warnings=warnings)


def in_its_place(container: views.Container) -> str | None:
    """The path of a container's own mount that the file would hide or lie in, None where there is none.

    Over a volume at /etc the runtime would have to make the file in the user's volume, and fails where that is
    read-only, as ConfigMaps and Secrets are.
    """
    if not container.volume_mounts_or_none and not container.volume_devices:
        return None
    if mounts.mounts_itself(container, mounts.NCCL_CONF_FILE):
        return names.NCCL_CONF_PATH
    return _PARENT if any(each.path == _PARENT for each in container.volume_mounts) else None


def _unset(aim: aims.Aim, mounted: Sequence[int], carried: tuple[tables.Setting, ...]) -> tuple[tables.Setting, ...]:
    """Those that some container with the file has not set itself: a rank that ssh starts does not see its
    container's own value, and must not find ours instead (ruling 8: unless it is forced).
    """
    there = [entries.by_name(aim.container(index)) for index in mounted]
    forced = aim.fabric.force_env
    own = {
        each.entry for each in carried if each.name not in forced and all(entries.otherwise(at, each) for at in there)
    }
    return tuple([each for each in carried if each.entry not in own]) if own else carried


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


def _unreached(aim: aims.Aim, containers: Iterable[int]) -> Iterable[str]:
    for index in containers:
        container = aim.container(index)
        yield (
            f"container {container.name} mounts {in_its_place(container)} itself; remove that mount, or set in env "
            f"what does not reach it by file: the settings of fabric {aim.fabric_name}"
        )
