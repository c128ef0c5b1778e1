"""Builds the rank context of each container of a pod that runs ranks or starts them.

Reads the settings of a container in NCCL's order of precedence: those that mpirun passes, those that its script
exports, its environment, its nccl.conf.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import names, quantity, views
from railwright.fabric.lint import commands, fabric_context, rule_types
from railwright.fabric.nccl import conf

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_PATH = re.compile(r"/[\w./-]+")
_SCRIPT = re.compile(r"\.(?:sh|bash|py)\b")
_PLACEHOLDER = re.compile(r"\$\{\w+\}|^\$\w+$")
_NO_SECURITY = views.SecurityContext()
_SHELL_WORDS = 3  # before the command of a container, after a script was put before it
_SOURCES = names.SOURCE_COMMAND.partition("{path}")[2]


class JobContext(msgspec.Struct, frozen=True):
    """The fabric and the job of a container's ranks."""

    use: fabric_context.FabricUse = fabric_context.FabricUse()
    networks: fabric_context.Networks = ()
    title: str = ""  # of the workload, for messages
    passed: tuple[rule_types.Setting, ...] = ()  # by a launcher in another template
    has_own_ranks: bool = True  # False: the ranks that its mpirun starts run in other templates only
    count: int | None = None  # pods created from the template
    job: int | None = None  # ranks of the job, from all its templates
    images: frozenset[str] = frozenset()  # of all the job's rank containers
    nccl: tuple[int, ...] | None = None  # version of NCCL in the image
    runs_benchmark: bool = False  # a container of the job runs a program of nccl-tests
    limited: bool = False  # True at admission, where a huge pod must not delay others


_MAX_SETTINGS = 64  # of one container at admission; people write a dozen
_MAX_VALUE = 4096  # characters of a value at admission; NCCL reads 1023 from its file
MAX_COMMAND = 8192  # characters of a command line at admission: longer ones take milliseconds to read


def select_containers(pod: views.Pod, accelerators: Sequence[str]) -> tuple[int, ...]:
    """Return the app containers that request an accelerator, have NCCL settings or start ranks."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if count_accelerators(container, accelerators)
        or any(commands.is_relevant(entry.name) for entry in container.env)
        or (command := read_command(container)).exported
        or command.passed
    )


class PodFacts(msgspec.Struct, frozen=True):
    """The facts that the containers of a pod have in common."""

    fabric_context: rule_types.FabricContext
    volumes: Mapping[str, views.Volume]  # by name
    node_selectors: Mapping[str, frozenset[str]]  # values by label that a node has; empty if unknown
    is_known: bool  # False before the injection of a pod whose policy is unknown


def read_pod(pod: views.Pod, job: JobContext) -> PodFacts:
    """Return what the containers of a pod have in common."""
    return PodFacts(
        fabric_context.build_for_pod(pod, job.networks, job.use),
        {volume.name: volume for volume in pod.spec.volumes},
        _read_node_selectors(pod.spec),
        not fabric_context.awaits_injection(pod, job.use),
    )


def build(pod: views.Pod, index: int, job: JobContext, pod_facts: PodFacts | None = None) -> rule_types.RankContext:
    """Build the context of the ranks in one app container. Never raises because of the pod's content.

    A caller with several containers passes the result of `read_pod`.
    """
    common = pod_facts or read_pod(pod, job)
    container = pod.spec.containers[index]
    amounts = _read_amounts(container)
    accelerators = job.use.accelerators
    security = container.security_context or _NO_SECURITY
    pod_security = pod.spec.security_context or _NO_SECURITY
    added = (security.capabilities.add if security.capabilities else None) or ()
    command = read_command(container, MAX_COMMAND if job.limited else commands.MAX_LENGTH)
    return rule_types.RankContext(
        title=f"{job.title} container {container.name}".strip(),
        settings=_list_settings(pod, container, command, job),
        fabric_context=common.fabric_context,
        count=job.count,
        job=job.job,
        accelerators=sum([amounts.get(name, 0) for name in accelerators]),
        devices={name: amount for name, amount in amounts.items() if name not in accelerators},
        networks=None if pod.spec.host_network or job.networks is None else len(job.networks),
        capabilities=frozenset(added) if common.is_known else None,
        privileged=bool(security.privileged),
        run_as_non_root=bool(
            pod_security.run_as_non_root if security.run_as_non_root is None else security.run_as_non_root
        ),
        host_network=bool(pod.spec.host_network),
        has_ranks=job.has_own_ranks or not command.launches,
        is_benchmark=job.runs_benchmark or command.is_benchmark,
        node_labels=frozenset(common.node_selectors),
        instance_types=common.node_selectors.get(_INSTANCE_TYPE, frozenset()),
        own_names=commands.list_own_names(_list_words(container)),
        has_hidden_names=not job.limited and _runs_mounted_script(pod, container),
        run_as_user=pod_security.run_as_user if security.run_as_user is None else security.run_as_user,
        mounts=_list_mounts(pod, container, common.volumes),
        shared_memory=_find_shared_memory(container, common.volumes),
        image=container.image or None,
        images=job.images or frozenset({container.image} if container.image else ()),
        nccl=job.nccl,
    )


def _list_words(container: views.Container) -> tuple[str, ...]:
    """Return the command line, without the shell that sources the fabric's script before it."""
    command = container.command or []
    is_sourced = len(command) > _SHELL_WORDS and command[1] == "-c" and command[2].endswith(_SOURCES)
    return (*(command[_SHELL_WORDS:] if is_sourced else command), *(container.args or ()))


def list_passed(pod: views.Pod, index: int, max_length: int = commands.MAX_LENGTH) -> tuple[rule_types.Setting, ...]:
    """Return the settings that a container's mpirun passes to its ranks.

    `-x NAME` passes the value that the container itself has.
    """
    container = pod.spec.containers[index]
    return _resolve_passed(read_command(container, max_length), _list_environment(container))


def _resolve_passed(command: commands.Commands, env: Sequence[rule_types.Setting]) -> tuple[rule_types.Setting, ...]:
    own = {setting.name: setting.value for setting in (*env, *command.exported)}
    return tuple(
        msgspec.structs.replace(setting, value=own.get(setting.name)) if setting.value is None else setting
        for setting in command.passed
    )


def starts_ranks(pod: views.Pod) -> bool:
    """True if a container runs mpirun."""
    return any(read_command(container).launches for container in pod.spec.containers)


def count_accelerators(container: views.Container, accelerators: Sequence[str]) -> int:
    """Return the number of accelerators that a container requests."""
    amounts = _read_amounts(container)
    return sum(amounts.get(name, 0) for name in accelerators)


def read_command(container: views.Container, max_length: int = commands.MAX_LENGTH) -> commands.Commands:
    """Return the settings in a container's command line. A line of more than `max_length` characters is not read."""
    words = _list_words(container)
    return commands.read(words, max_length) if words else commands.Commands()


def read_file(text: str) -> tuple[rule_types.Setting, ...]:
    """Return the lines of an nccl.conf, each as a setting."""
    return tuple(
        rule_types.Setting(name[: conf.MAX_LENGTH], value[: conf.MAX_LENGTH], f"line {number}", rule_types.Origin.FILE)
        for number, line in enumerate(text.split("\n"), start=1)
        for name, separator, value in [line.partition("=")]
        if separator and name and not line.startswith("#")
    )


_ANY_VALUE: frozenset[str] = frozenset()


def _read_node_selectors(spec: views.PodSpec) -> Mapping[str, frozenset[str]]:
    """Return the labels by which a pod selects nodes, with the values that a node may have; none if it may have any.

    A node has to match one term of the affinity, and all labels of nodeSelector.
    """
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    keys = (expression.key for term in terms for expression in term.match_expressions or ())
    by_affinity = dict.fromkeys(keys, _ANY_VALUE)
    allowed_by_term = [
        {
            expression.key: frozenset(expression.values)
            for expression in term.match_expressions or ()
            if expression.operator == "In" and expression.values
        }
        for term in terms
    ]
    for key in set[str]().union(*allowed_by_term[:1]).intersection(*allowed_by_term):
        by_affinity[key] = _ANY_VALUE.union(*[allowed[key] for allowed in allowed_by_term])
    return {**by_affinity, **{label: frozenset({value}) for label, value in (spec.node_selector or {}).items()}}


def _list_settings(
    pod: views.Pod, container: views.Container, command: commands.Commands, job: JobContext
) -> tuple[rule_types.Setting, ...]:
    env = _list_environment(container)
    if not job.limited:
        env = [msgspec.structs.replace(setting, value=_drop_placeholder(setting.value)) for setting in env]
    own = _resolve_passed(command, env) if job.has_own_ranks and command.passed else ()
    exported = reversed(command.exported)  # the last export of a script is effective
    settings = (*job.passed, *own, *exported, *env, *_read_mounted_file(pod, container))
    return limit_settings(settings) if job.limited else settings


def limit_settings(settings: Sequence[rule_types.Setting]) -> tuple[rule_types.Setting, ...]:
    """Return the first `_MAX_SETTINGS` settings, for admission. Values longer than `_MAX_VALUE` become None."""
    return tuple(
        [
            msgspec.structs.replace(setting, value=None)
            if setting.value and len(setting.value) > _MAX_VALUE
            else setting
            for setting in settings[:_MAX_SETTINGS]
        ]
    )


def _list_environment(container: views.Container) -> list[rule_types.Setting]:
    """Return the relevant entries of the environment. If entries have the same name, Kubernetes uses the last one."""
    relevant_entries = {entry.name: (index, entry) for index, entry in commands.list_relevant(container.env)}
    return [
        rule_types.Setting(name, _get_value(entry), f"env[{index}]")
        for name, (index, entry) in relevant_entries.items()
    ]


def _get_value(entry: views.EnvVar) -> str | None:
    """Return the value of an entry, or None if it comes from another source or has a reference to expand."""
    if entry.value_from is not None:
        return None
    value = entry.value or ""
    return None if "$(" in value else value


def _runs_mounted_script(pod: views.Pod, container: views.Container) -> bool:
    """True if the container's command runs a script from a ConfigMap. A variable may hold the path of the script."""
    config_maps = {volume.name for volume in pod.spec.volumes if volume.config_map is not None}
    folders = tuple(f"{mount.path.rstrip('/')}/" for mount in container.volume_mounts if mount.name in config_maps)
    if not folders:
        return False
    words = _list_words(container)
    texts = [*words, *(entry.value for entry in container.env if entry.value)]
    scripts = [path for text in texts for path in _PATH.findall(text) if _SCRIPT.search(path)]
    return any(path.startswith(folders) for path in (*words[:2], *scripts))


def _drop_placeholder(value: str | None) -> str | None:
    """Return the value, or None if it has a placeholder that its author fills in before use, as `envsubst` does."""
    return None if value is not None and _PLACEHOLDER.search(value) else value


def _read_mounted_file(pod: views.Pod, container: views.Container) -> Iterable[rule_types.Setting]:
    """Return the lines of railwright's annotation if the container mounts it as /etc/nccl.conf.

    Lines that binding replaces are left out.
    """
    text = pod.metadata.annotations.get(names.NCCL_CONF)
    if not text or all(mount.path != names.NCCL_CONF_PATH for mount in container.volume_mounts):
        return ()
    return (setting for setting in read_file(text) if (setting.value or "").removeprefix("=") != names.NOT_ALLOCATED)


def _read_amounts(container: views.Container) -> dict[str, int]:
    """Return the whole amounts that a container requests, without invalid ones."""
    return dict(_list_amounts(container.requests)) if container.resources else {}


def _list_amounts(quantities: Mapping[str, views.RawQuantity]) -> Iterator[tuple[str, int]]:
    for name, text in quantities.items():
        if "/" in name and (amount := quantity.read_units(text)) > 0:
            yield name, amount


def _classify_volume(volume: views.Volume | None) -> str:
    if volume is None:
        return "other"
    if volume.empty_dir is not None:
        return "memory" if volume.empty_dir.get("medium") == "Memory" else "emptyDir"
    if volume.host_path is not None:
        return "hostPath"
    if volume.secret is not None:
        return "secret"
    if volume.config_map is not None:
        return "configMap"
    return "other" if volume.downward_api is None else "downwardAPI"


def _list_mounts(pod: views.Pod, container: views.Container, volumes: Mapping[str, views.Volume]) -> dict[str, str]:
    """Return the kind of volume by path. In the host's IPC namespace the runtime mounts the host's shared memory."""
    host_mounts = {names.DEV_SHM: "hostPath"} if pod.spec.host_ipc else {}
    return host_mounts | {mount.path: _classify_volume(volumes.get(mount.name)) for mount in container.volume_mounts}


def _find_shared_memory(container: views.Container, volumes: Mapping[str, views.Volume]) -> int | None:
    """Return the bytes of the memory volume at /dev/shm: 0 without a limit, None without such a volume."""
    for mount in container.volume_mounts:
        volume = volumes.get(mount.name) if mount.path == names.DEV_SHM else None
        if volume is not None and _classify_volume(volume) == "memory":
            limit = (volume.empty_dir or {}).get("sizeLimit")
            return quantity.read_units(limit) if isinstance(limit, str | int | float) else 0
    return None
