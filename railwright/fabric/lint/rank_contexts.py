"""Builds the input of lint rules (RankContext, FabricContext) for the containers of a pod that run or start ranks.

The settings of a container are in NCCL's order of precedence: those that mpirun passes, those that its script exports,
its environment, its nccl.conf.
"""

import collections
import re
from collections.abc import Sequence

import msgspec

from railwright.fabric import device_names, intent, names, quantity, views
from railwright.fabric.lint import commands, rule_types
from railwright.fabric.multus import network_selection
from railwright.fabric.nccl import conf, derive
from railwright.fabric.policy import model as policies

_PATH = re.compile(r"/[\w./-]+")
_SCRIPT = re.compile(r"\.(?:sh|bash|py)\b")
_PLACEHOLDER = re.compile(r"\$\{\w+\}|^\$\w+$")
_NO_SECURITY = views.SecurityContext()
_SHELL_WORDS = 3  # that injection puts before a container's command to source a script
_SOURCES = names.SOURCE_COMMAND.partition("{path}")[2]
# Interfaces from another source than Multus (GKE's multi-networking). Their names are not known.
OTHER_INTERFACES = ("networking.gke.io/interfaces",)
_TOPOLOGY_FILE = "NCCL_TOPO_FILE"
Networks = Sequence[network_selection.Selection] | None  # of a pod; None if its annotation is invalid
DEFAULT_ACCELERATORS = ("nvidia.com/gpu",)  # the default of the policy's key `accelerators`


class FabricUse(msgspec.Struct, frozen=True):
    """Policy, fabric and rails that a pod uses; all empty if the policy is unknown."""

    document: policies.PolicyDocument | None = None
    fabric: policies.Fabric | None = None
    rails: tuple[policies.Rail, ...] = ()
    resources: frozenset[str] = frozenset()  # of the rails, from the policy or from their networks
    awaits_correction: bool = False  # the pod is rejected or its label has no effect; a corrected pod is injected

    @property
    def devices(self) -> dict[str, int]:
        """Number of devices that a pod requests for its rails, by resource."""
        counts = collections.Counter(rail.resource for rail in self.rails if rail.resource)
        return {resource: self.fabric.count_devices(rails) for resource, rails in counts.items()} if self.fabric else {}

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Resources of accelerators: a container that requests one is a training container."""
        return self.document.accelerators if self.document else DEFAULT_ACCELERATORS


class JobContext(msgspec.Struct, frozen=True):
    """Facts about the ranks that their container does not show: their fabric and networks, and the job's launcher."""

    use: FabricUse = FabricUse()
    networks: Networks = ()
    title: str = ""  # of the workload, for messages
    passed: tuple[rule_types.Setting, ...] = ()  # by a launcher in another template
    has_own_ranks: bool = True  # False: the ranks that its mpirun starts run in other templates only
    runs_benchmark: bool = False  # a container of the job runs a program of nccl-tests
    limited: bool = False  # True at admission, where a huge pod must not delay others


_MAX_SETTINGS = 64  # of one container at admission; people write a dozen
_MAX_VALUE = 4096  # characters of a value at admission; NCCL reads 1023 from its file
MAX_COMMAND = 8192  # characters of a command line at admission: longer ones take milliseconds to read


def select_rank_containers(pod: views.Pod, accelerators: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the app containers that request an accelerator or set a linted variable."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if count_accelerators(container, accelerators)
        or any(commands.is_linted_variable(entry.name) for entry in container.env)
        or (command := read_command_settings(container)).exported
        or command.passed
    )


def build_context(pod: views.Pod, index: int, job: JobContext) -> rule_types.RankContext:
    """Return the rank context of the app container at `index`. No content of a pod makes it raise."""
    container = pod.spec.containers[index]
    amounts = _read_extended_resources(container)
    accelerators = job.use.accelerators
    units = job.use.document.accelerator_units if job.use.document else {}
    security = container.security_context or _NO_SECURITY
    pod_security = pod.spec.security_context or _NO_SECURITY
    added = (security.capabilities.add if security.capabilities else None) or ()
    command = read_command_settings(container, MAX_COMMAND if job.limited else commands.MAX_LENGTH)
    return rule_types.RankContext(
        title=f"{job.title} container {container.name}".strip(),
        settings=_list_settings(pod, container, command, job),
        fabric_context=build_fabric_context_with_networks(pod, job.networks, job.use),
        accelerators=sum([-(-amounts.get(name, 0) // units.get(name, 1)) for name in accelerators]),
        devices={name: amount for name, amount in amounts.items() if name not in accelerators},
        capabilities=None if awaits_injection(pod, job.use) else frozenset(added),
        privileged=bool(security.privileged),
        run_as_non_root=bool(
            pod_security.run_as_non_root if security.run_as_non_root is None else security.run_as_non_root
        ),
        host_network=bool(pod.spec.host_network),
        has_ranks=job.has_own_ranks or not command.launches,
        is_benchmark=job.runs_benchmark or command.is_benchmark,
        node_labels=_list_node_labels(pod.spec),
        own_names=commands.list_read_variables(_list_command_words(container)),
        has_hidden_names=not job.limited and _runs_mounted_script(pod, container),
        run_as_user=pod_security.run_as_user if security.run_as_user is None else security.run_as_user,
        mounts=_list_mounts(pod, container),
        shared_memory=_read_shared_memory_size(pod, container),
        image=container.image or None,
    )


def _list_command_words(container: views.Container) -> tuple[str, ...]:
    """Return `command` and `args`, without the shell that injection puts before them to source a script."""
    command = container.command or []
    is_sourced = len(command) > _SHELL_WORDS and command[1] == "-c" and command[2].endswith(_SOURCES)
    return (*(command[_SHELL_WORDS:] if is_sourced else command), *(container.args or ()))


def list_passed_settings(
    pod: views.Pod, index: int, max_length: int = commands.MAX_LENGTH
) -> tuple[rule_types.Setting, ...]:
    """Return the variables that mpirun in the container at `index` passes to its ranks."""
    container = pod.spec.containers[index]
    return _resolve_passed_settings(read_command_settings(container, max_length), _list_environment(container))


def _resolve_passed_settings(
    command: commands.CommandSettings, env: Sequence[rule_types.Setting]
) -> tuple[rule_types.Setting, ...]:
    """Return the variables that mpirun passes. `-x NAME` passes the value of the container's environment."""
    own = {setting.name: setting.value for setting in (*env, *command.exported)}
    return tuple(
        msgspec.structs.replace(setting, value=own.get(setting.name)) if setting.value is None else setting
        for setting in command.passed
    )


def starts_ranks(pod: views.Pod) -> bool:
    """True if a container of the pod runs mpirun."""
    return any(read_command_settings(container).launches for container in pod.spec.containers)


def count_accelerators(container: views.Container, accelerators: Sequence[str]) -> int:
    """Return how many units of these accelerator resources a container requests."""
    amounts = _read_extended_resources(container)
    return sum(amounts.get(name, 0) for name in accelerators)


def read_command_settings(
    container: views.Container, max_length: int = commands.MAX_LENGTH
) -> commands.CommandSettings:
    """Return the variables that a container's command line sets; none if it exceeds `max_length` characters."""
    words = _list_command_words(container)
    return commands.read_settings(words, max_length) if words else commands.CommandSettings()


def has_unread_settings(container: views.Container) -> bool:
    """True if a command line is too long to be read at admission and contains NCCL_."""
    words = _list_command_words(container)
    return sum(map(len, words)) > MAX_COMMAND and any("NCCL_" in word for word in words)


def read_nccl_conf(text: str) -> tuple[rule_types.Setting, ...]:
    """Return the settings in the text of an nccl.conf, one for each line NAME=VALUE."""
    return tuple(
        rule_types.Setting(name[: conf.MAX_LENGTH], value[: conf.MAX_LENGTH], f"line {number}")
        for number, line in enumerate(text.split("\n"), start=1)
        for name, separator, value in [line.partition("=")]
        if separator and name and not line.startswith("#")
    )


def _list_node_labels(spec: views.PodSpec) -> frozenset[str]:
    """Return the keys of node labels in a pod's nodeSelector and required node affinity."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = (affinity.required.node_selector_terms if affinity and affinity.required else None) or ()
    by_affinity = [expression.key for term in terms for expression in term.match_expressions or ()]
    return frozenset((*by_affinity, *(spec.node_selector or {})))


def _list_settings(
    pod: views.Pod, container: views.Container, command: commands.CommandSettings, job: JobContext
) -> tuple[rule_types.Setting, ...]:
    env = _list_environment(container)
    if not job.limited:  # a placeholder such as ${X}, which `envsubst` replaces later, is unknown
        env = [
            msgspec.structs.replace(setting, value=None) if _PLACEHOLDER.search(setting.value or "") else setting
            for setting in env
        ]
    own = _resolve_passed_settings(command, env) if job.has_own_ranks else ()
    exported = reversed(command.exported)  # the last export of a script is effective
    is_mounted = any(mount.path == names.NCCL_CONF_PATH for mount in container.volume_mounts)
    mounted = read_nccl_conf(pod.metadata.annotations.get(names.NCCL_CONF, "")) if is_mounted else ()
    settings = (*job.passed, *own, *exported, *env, *mounted)
    return limit_settings(settings) if job.limited else settings


def limit_settings(settings: Sequence[rule_types.Setting]) -> tuple[rule_types.Setting, ...]:
    """Return the first 64 settings, so that admission stays fast. Values above 4,096 characters become None."""
    return tuple(
        msgspec.structs.replace(setting, value=None) if len(setting.value or "") > _MAX_VALUE else setting
        for setting in settings[:_MAX_SETTINGS]
    )


def _list_environment(container: views.Container) -> list[rule_types.Setting]:
    """Return the linted variables of a container's `env`: the last entry of each name, which is the one that counts.

    A value from `valueFrom`, or with a reference $(NAME), is unknown.
    """
    entries = {
        entry.name: (index, entry)
        for index, entry in enumerate(container.env)
        if commands.is_linted_variable(entry.name)
    }
    settings = []
    for name, (index, entry) in entries.items():
        is_known = entry.value_from is None and "$(" not in (entry.value or "")
        settings.append(rule_types.Setting(name, (entry.value or "") if is_known else None, f"env[{index}]"))
    return settings


def _runs_mounted_script(pod: views.Pod, container: views.Container) -> bool:
    """True if the container's command runs a script from a ConfigMap. A variable may hold the path of the script."""
    config_maps = {volume.name for volume in pod.spec.volumes if volume.config_map is not None}
    folders = tuple(f"{mount.path.rstrip('/')}/" for mount in container.volume_mounts if mount.name in config_maps)
    if not folders:
        return False
    words = _list_command_words(container)
    texts = [*words, *(entry.value for entry in container.env if entry.value)]
    scripts = [path for text in texts for path in _PATH.findall(text) if _SCRIPT.search(path)]
    return any(path.startswith(folders) for path in (*words[:2], *scripts))


def _read_extended_resources(container: views.Container) -> dict[str, int]:
    """Return the extended resources that a container requests, without amounts that are no positive number."""
    amounts = {name: quantity.read_units(text) for name, text in container.requests.items() if "/" in name}
    return {name: amount for name, amount in amounts.items() if amount > 0}


def _list_mounts(pod: views.Pod, container: views.Container) -> dict[str, str]:
    """Return the origin of each mount by its path: "hostPath", "policy" or "other".

    In a pod with hostIPC, the origin of /dev/shm is "hostPath".
    """
    on_host = {volume.name for volume in pod.spec.volumes if volume.host_path is not None}
    mounts = {
        mount.path: "hostPath"
        if mount.name in on_host
        else "policy"
        if mount.name.startswith(names.VOLUME_PREFIX)
        else "other"
        for mount in container.volume_mounts
    }
    return {**({names.DEV_SHM: "hostPath"} if pod.spec.host_ipc else {}), **mounts}


def _read_shared_memory_size(pod: views.Pod, container: views.Container) -> int | None:
    """Return the size in bytes of the memory volume at /dev/shm: 0 if it has no limit, None if there is no volume."""
    for mount in container.volume_mounts:
        for volume in pod.spec.volumes if mount.path == names.DEV_SHM else ():
            directory = volume.empty_dir or {}
            if volume.name == mount.name and directory.get("medium") == "Memory":
                limit = directory.get("sizeLimit")
                return quantity.read_units(limit) if isinstance(limit, str | int | float) else 0
    return None


# --- the fabric of ranks, from the policy, the rails and the pod's networks -------------------------------------


def build_full_use(document: policies.PolicyDocument, fabric: policies.Fabric | None) -> FabricUse:
    """Return the use of a fabric by a pod that gets all its rails. `fabric` is None if it is unknown."""
    rails = fabric.rails if fabric else ()
    return FabricUse(document, fabric, rails, frozenset([rail.resource for rail in rails if rail.resource]))


def build_fabric_context_with_networks(pod: views.Pod, attached: Networks, use: FabricUse) -> rule_types.FabricContext:
    """Return the fabric context of a pod, with the interfaces of the networks that its annotation selects."""
    context = build_fabric_context(use, pod)
    if pod.spec.host_network or attached is None or awaits_injection(pod, use):
        return context
    own = network_selection.name_interfaces(attached)
    has_other = has_rails_without_multus(use.fabric) or any(key in pod.metadata.annotations for key in OTHER_INTERFACES)
    has_unknown = pod.spec.resource_claims or has_other
    interfaces = None if has_unknown else (network_selection.CRI_INTERFACE, *own)
    return msgspec.structs.replace(context, interfaces=interfaces, rail_interfaces=own)


def build_fabric_context(use: FabricUse, pod: views.Pod | None = None) -> rule_types.FabricContext:
    """Return the fabric context of ranks, without interfaces. `pod` is None if only a launcher or a file is known."""
    fabric, document = use.fabric, use.document
    if fabric is None or document is None:
        return rule_types.FabricContext()
    pod = pod or views.Pod()
    devices = device_names.find_devices_by_shape(pod, document, use.rails) if use.rails else None
    return rule_types.FabricContext(
        transport=fabric.transport,
        fabric=fabric,
        primary=fabric.primary_interface,
        rails=tuple([rail.name for rail in use.rails]),
        devices=devices,
        found=_list_preflight_variables(pod, fabric) if use.rails and devices is None else frozenset(),
        topology_file=fabric.env.get(_TOPOLOGY_FILE, ""),
        exclusive=rule_types.are_devices_exclusive(fabric.transport, use.resources),
    )


def _list_preflight_variables(pod: views.Pod, fabric: policies.Fabric) -> frozenset[str]:
    """Return the variables that the preflight sets in a pod whose device names are not in the policy."""
    skipped = {word.strip() for word in pod.metadata.annotations.get(names.SKIP, "").split(",")}
    is_left_out = fabric.resolve == "never" or not fabric.nccl.derive or not skipped.isdisjoint(("env", "preflight"))
    # on eRDMA, admission writes the prefix of all device names, so the preflight sets none
    is_known = fabric.transport is policies.Transport.ERDMA
    return (
        frozenset() if is_left_out or is_known else frozenset(derive.list_found_variables(fabric)) - fabric.env.keys()
    )


def has_rails_without_multus(fabric: policies.Fabric | None) -> bool:
    """True if a rail has an interface and no network: another system than Multus attaches that rail."""
    return fabric is not None and any(rail.interface and not rail.network for rail in fabric.rails)


def awaits_injection(pod: views.Pod, use: FabricUse) -> bool:
    """True if injection will change the pod later: the policy is unknown, or the author must correct the pod first.

    Injection adds networks, mounts and privileges, so rules cannot report that these are missing.
    """
    return use.awaits_correction or (use.document is None and intent.has_fabric_label(pod))


def parse_pod_networks(pod: views.Pod, namespace: str) -> Networks:
    """Return the networks in the pod's annotation k8s.v1.cni.cncf.io/networks, or None if it is invalid."""
    try:
        return network_selection.parse_networks(pod.metadata.annotations.get(names.NETWORKS, ""), namespace)
    except network_selection.InvalidNetworksError:
        return None
