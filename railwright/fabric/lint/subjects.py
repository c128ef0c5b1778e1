"""A pod or pod template -> the ranks lint looks at, one for each container that runs or starts them.

Owns which settings a container has, in NCCL's order of precedence: what mpirun passes, what its script exports, its
environment, its nccl.conf. Refuses to know kinds of workloads (`workloads`) and rules.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import names, quantity, views
from railwright.fabric.lint import commands, model, sites
from railwright.fabric.nccl import conf

_HUGEPAGES = "hugepages-"


class Around(msgspec.Struct, frozen=True):
    """What a container's ranks are besides its pod: their job, and what its launcher passes them."""

    ground: sites.Ground = sites.Ground()
    namespace: str = ""
    title: str = ""
    passed: tuple[model.Setting, ...] = ()  # by a launcher in another template
    hosts: bool = True  # ranks its mpirun starts run in the container itself, not in other templates only
    count: int | None = None
    job: int | None = None
    images: frozenset[str] = frozenset()
    nccl: tuple[int, ...] | None = None
    everything: bool = True  # False: at admission, where a huge pod must not hold up others


_MOST_SETTINGS = 64  # entries of one container at admission; people write a dozen
_LONGEST_VALUE = 4096  # characters of a value at admission; NCCL reads 1023 from its file
SHORT = 8192  # characters of a command line at admission: longer ones take milliseconds to read


def indexes(pod: views.Pod, accelerators: Sequence[str]) -> tuple[int, ...]:
    """App containers that compute, or that have settings of NCCL or start ranks."""
    return tuple(
        index
        for index, each in enumerate(pod.spec.containers)
        if accelerated(each, accelerators) or _concerned(each, command(each))
    )


def _concerned(container: views.Container, found: commands.Commands) -> bool:
    return bool(found.exported or found.passed or any(commands.relevant(entry.name) for entry in container.env))


def ranks(pod: views.Pod, index: int, around: Around) -> model.Ranks:
    """The ranks of one app container. Never raises for what a pod holds."""
    container = pod.spec.containers[index]
    amounts = _amounts(container)
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    attached = None if pod.spec.host_network else sites.selections(pod, around.namespace)
    security = container.security_context or views.SecurityContext()
    of_pod = pod.spec.security_context or views.SecurityContext()
    accelerators = around.ground.accelerators
    return model.Ranks(
        title=f"{around.title} container {container.name}".strip(),
        settings=_settings(pod, container, around),
        site=sites.of_pod(pod, around.namespace, around.ground),
        count=around.count,
        job=around.job,
        accelerators=sum(amounts.get(name, 0) for name in accelerators),
        devices={name: amount for name, amount in amounts.items() if _is_device(name) and name not in accelerators},
        networks=None if attached is None else len(attached),
        capabilities=None if sites.to_be_injected(pod, around.ground) else _added(security),
        privileged=bool(security.privileged),
        run_as_user=of_pod.run_as_user if security.run_as_user is None else security.run_as_user,
        mounts=_mounts(pod, container, volumes),
        shared_memory=_shared_memory(container, volumes),
        image=container.image or None,
        images=around.images or frozenset({container.image} if container.image else ()),
        nccl=around.nccl,
    )


def passed(pod: views.Pod, index: int, longest: int = commands.LONGEST) -> tuple[model.Setting, ...]:
    """What a container's mpirun gives its ranks; of `-x NAME` the value its own environment has."""
    container = pod.spec.containers[index]
    return _passed_by(container, command(container, longest))


def _passed_by(container: views.Container, found: commands.Commands) -> tuple[model.Setting, ...]:
    own = {setting.name: setting.value for setting in (*_environment(container), *found.exported)}
    return tuple(
        msgspec.structs.replace(each, value=own.get(each.name)) if each.value is None else each for each in found.passed
    )


def launches(pod: views.Pod) -> bool:
    """True where a container starts mpirun."""
    return any(command(each).launches for each in pod.spec.containers)


def accelerated(container: views.Container, accelerators: Sequence[str]) -> int:
    """How many accelerators a container requests."""
    amounts = _amounts(container)
    return sum(amounts.get(name, 0) for name in accelerators)


def command(container: views.Container, longest: int = commands.LONGEST) -> commands.Commands:
    """What a container's command line sets; nothing where it is longer than that."""
    words = (*(container.command or ()), *(container.args or ()))
    return commands.read(words, longest) if words else commands.Commands()


def file_settings(text: str) -> tuple[model.Setting, ...]:
    """The lines of an nccl.conf, each as a setting."""
    return tuple(
        model.Setting(name[: conf.MAX_LENGTH], value[: conf.MAX_LENGTH], f"line {number}", model.Origin.FILE)
        for number, line in enumerate(text.split("\n"), start=1)
        for name, mark, value in [line.partition("=")]
        if mark and name and not line.startswith("#")
    )


def _added(security: views.SecurityContext) -> frozenset[str]:
    return frozenset((security.capabilities and security.capabilities.add) or ())


def _settings(pod: views.Pod, container: views.Container, around: Around) -> tuple[model.Setting, ...]:
    found = command(container, commands.LONGEST if around.everything else SHORT)
    own = _passed_by(container, found) if around.hosts else ()
    env = _environment(container)
    file = _mounted_file(pod, container)
    every = (*around.passed, *own, *reversed(found.exported), *env, *file)  # of a script's, the last counts
    return every if around.everything else bounded(every)


def bounded(settings: Sequence[model.Setting]) -> tuple[model.Setting, ...]:
    """What an admission looks at: so many settings, and values of a length anything reads."""
    return tuple(
        msgspec.structs.replace(each, value=None) if each.value and len(each.value) > _LONGEST_VALUE else each
        for each in settings[:_MOST_SETTINGS]
    )


def _environment(container: views.Container) -> list[model.Setting]:
    """Entries lint looks at; of two with one name Kubernetes takes the last."""
    entries = {entry.name: at for at, entry in enumerate(container.env) if commands.relevant(entry.name)}
    return [model.Setting(name, _value(container.env[at]), f"env[{at}]") for name, at in entries.items()]


def _value(entry: views.EnvVar) -> str | None:
    """None where it comes from elsewhere, wholly or by a reference the kubelet expands."""
    if entry.value_from is not None:
        return None
    value = entry.value or ""
    return None if "$(" in value else value


def _mounted_file(pod: views.Pod, container: views.Container) -> Iterable[model.Setting]:
    """The lines of our annotation, where the container mounts it as /etc/nccl.conf."""
    text = pod.metadata.annotations.get(names.NCCL_CONF)
    if not text or all(mount.path != names.NCCL_CONF_PATH for mount in container.volume_mounts):
        return ()
    return file_settings(text)


def _is_device(resource: str) -> bool:
    return "/" in resource and not resource.startswith(_HUGEPAGES)


def _amounts(container: views.Container) -> dict[str, int]:
    """Whole amounts of what a container requests; what cannot be read counts as none."""
    return dict(_readable(container.requests)) if container.resources else {}


def _readable(written: Mapping[str, views.Written]) -> Iterator[tuple[str, int]]:
    for name, text in written.items():
        if "/" in name:
            try:
                amount = quantity.whole(text)
            except quantity.InvalidQuantityError:
                continue
            if amount > 0:
                yield name, amount


def _kind(volume: views.Volume | None) -> str:
    if volume is None:
        return "other"
    if volume.empty_dir is not None:
        return "memory" if volume.empty_dir.get("medium") == "Memory" else "emptyDir"
    sources = {"hostPath": volume.host_path, "secret": volume.secret, "downwardAPI": volume.downward_api}
    return next((kind for kind, source in sources.items() if source is not None), "other")


def _mounts(pod: views.Pod, container: views.Container, volumes: Mapping[str, views.Volume]) -> dict[str, str]:
    """The kinds of volume by path; in the host's IPC namespace the runtime mounts the host's shared memory."""
    of_the_host = {names.DEV_SHM: "hostPath"} if pod.spec.host_ipc else {}
    return of_the_host | {mount.path: _kind(volumes.get(mount.name)) for mount in container.volume_mounts}


def _shared_memory(container: views.Container, volumes: Mapping[str, views.Volume]) -> int | None:
    for mount in container.volume_mounts:
        volume = volumes.get(mount.name)
        if mount.path == names.DEV_SHM and volume is not None and _kind(volume) == "memory":
            limit = (volume.empty_dir or {}).get("sizeLimit")
            return 0 if limit is None else _bytes(limit)
    return None


def _bytes(limit: object) -> int:
    try:
        return quantity.whole(limit) if isinstance(limit, str | int | float) else 0
    except quantity.InvalidQuantityError:
        return 0
