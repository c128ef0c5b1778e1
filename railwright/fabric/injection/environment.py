"""Sets the environment of the target containers: the policy's literals and derived values, directories of
LD_LIBRARY_PATH, and a script that sets variables before the program starts.

The user's entry takes precedence, also with valueFrom (docs/interface.md 2.3). The policy's values are delivered by the
container's environment, by the file /etc/nccl.conf, or both. The init container writes its values into files of a
volume: kubelet reads them into the environment, or the libraries read them (docs/interface.md 3.3).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.injection import claim_requests, context, drafts, init_containers, mounts, rank_settings
from railwright.fabric.multus import network_selection
from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode, VariableCode
from railwright.fabric.workloads import roles as workload_roles

_PARENT = names.NCCL_CONF_PATH.rpartition("/")[0]
_INTERFACE = "NCCL_SOCKET_IFNAME"
_UNSTATED = reasons.Reason(
    AdmissionCode.VALUE_UNSTATED, "the policy does not state the value, and no init container finds it"
)
_REPLACED = reasons.Reason(
    AdmissionCode.KEY_WITHOUT_EFFECT,
    f"annotation {names.NCCL_CONF} is written by railwright; its value was replaced",
    fix="remove it",
)

_EntriesByName = Mapping[str, tuple[int, views.EnvVar]]


class Delivery(msgspec.Struct, frozen=True):
    """How the variables of a pod reach its ranks: in the environment, in a file, or both."""

    settings: rank_settings.Settings
    by_file: bool = False  # the author wants what a file can carry in nccl.conf alone
    in_file: tuple[derive.Variable, ...] = ()  # in nccl.conf
    mounted: tuple[int, ...] = ()  # containers that get nccl.conf
    unreachable: tuple[int, ...] = ()  # containers that should get it and have a conflicting mount
    found: tuple[derive.Variable, ...] = ()  # what the init container finds; none without one
    found_in_env: bool = False  # kubelet reads these into the environment
    by_ssh: bool = False  # ssh starts the ranks, which have no environment of the container
    at_home: tuple[int, ...] = ()  # containers whose ranks, which ssh starts as root, get ucx.conf


def set_variables(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Set the policy's variables in the environment of containers, or in nccl.conf. Raises RefusedError."""
    pod = draft.pod
    if (ctx.role.has_rails or ctx.role.is_launcher) and "env" in ctx.options.skip:
        _set_file_annotation(draft, pod, "")
        draft.record_skip("env", context.SKIPPED)
    elif not ctx.role.has_rails:
        _set_file_annotation(draft, pod, "")
        if ctx.role.is_launcher:
            _set_open_mpi_literals(draft, pod, ctx)
    else:
        has_emptied = _remove_emptied_variables(draft, pod, ctx)
        pod = draft.pod
        delivery = _choose_delivery(draft, pod, ctx, by_env=not has_emptied)
        draft.settings = delivery.settings
        for index in ctx.targets:
            _set_container_variables(draft, pod, ctx, index, delivery)
        for setting in delivery.in_file:
            draft.add_entry(f"env.{setting.name}", setting.code)
        _deliver_nccl_conf(draft, pod, ctx, delivery)
        if delivery.found:
            _record_unreached_libraries(draft, delivery)
        else:
            for name in init_containers.list_unstated_variables(pod, ctx):
                draft.record_skip(f"env.{name}", _UNSTATED)


def _set_container_variables(
    draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext, index: int, delivery: Delivery
) -> None:
    container, settings = pod.spec.containers[index], delivery.settings
    left_out: tuple[derive.Variable, ...] = ()
    if settings.open_mpi and _names_interface_list(container, ctx.fabric):
        left_out = settings.open_mpi
        _record_skipped_open_mpi_variables(draft, container, left_out)
    wanted, found = _select_variables(container, ctx.fabric, delivery, left_out)
    if container.env_from and _env_from_may_set(container, settings.all, settings.optional_library_vars, found):
        by_file = (*settings.file_vars, *[one for one in found if conf.can_contain(one.name)])
        _add_env_entries(draft, index, container, wanted, wanted)
        _warn_of_env_from(draft, container, [one for one in (*wanted, *found) if one not in by_file])
    else:
        read = found if delivery.found_in_env else _list_file_paths(draft, container, delivery)
        _add_env_entries(draft, index, container, [*wanted, *read], settings.file_vars if delivery.by_file else ())
    if not delivery.found_in_env:  # NCCL and UCX take values of the environment before those of their files
        existing = container.env_by_name
        own = [one.name for one in found if one.name in existing and not _is_set_by_railwright(existing[one.name][1])]
        draft.record_user_values(container.name, own)


def _select_variables(
    container: views.Container, fabric: policies.Fabric, delivery: Delivery, left_out: Collection[derive.Variable]
) -> tuple[list[derive.Variable], list[derive.Variable]]:
    """Return the variables with values that a container gets, and those whose values the init container finds.

    A variable of another library than NCCL is only for containers that use the library.
    """
    existing, env, settings = container.env_by_name, fabric.env, delivery.settings
    used: frozenset[str] = frozenset()
    if settings.optional_library_vars:
        own_names = [name for name, (_, entry) in existing.items() if not _is_set_by_railwright(entry)]
        used = libraries.detect_libraries(own_names)
    _, transports = existing.get(libraries.UCX_TRANSPORTS, (0, None))
    ucx_transports = env.get(libraries.UCX_TRANSPORTS) if transports is None else transports.value
    may_use_rdma = ucx_transports is None or libraries.may_use_rdma(ucx_transports)
    if ucx_transports is not None and may_use_rdma:
        used |= {libraries.RDMA_OF_UCX}
    unusable = () if may_use_rdma else libraries.UCX_DEVICE_VARIABLES
    of_libraries = [one for one in settings.optional_library_vars if libraries.get_library(one.name) in used]
    wanted = [
        one
        for one in (*settings.all, *of_libraries)
        if one not in left_out
        and (one.name not in unusable or one.name in env)
        and not (one.name in libraries.CONFLICTING_VARIABLES and _has_conflict(existing, one, settings.by_name))
    ]
    own = {one.name: one for one in wanted}
    found = [
        one
        for one in delivery.found
        if not {one.name, *libraries.CONFLICTING_VARIABLES.get(one.name, ())} & env.keys()
        and one.name not in {*own, *unusable}
        and not _has_conflict(existing, one, own)
    ]
    return wanted, found


def _add_env_entries(
    draft: drafts.Draft,
    index: int,
    container: views.Container,
    variables: Iterable[derive.Variable],
    left_out: Collection[derive.Variable] = (),
) -> None:
    """Add variables to the environment, except those `left_out` and those that the user set to another value.

    Variables that the init container finds refer to its file, from which kubelet reads their values.
    """
    added: list[tuple[Mapping[str, Any], str]] = []
    existing, user_values = container.env_by_name, []
    for variable in variables:
        name, entry = variable.name, f"env.{variable.name}"
        is_read = not variable.value and variable.code is VariableCode.FOUND_IN_POD
        if name not in existing:
            if variable in left_out:
                continue
            value = {"valueFrom": mounts.build_file_reference(name)} if is_read else {"value": variable.value}
            added.append(({"name": name, **value}, entry))
        elif not _is_set_by_railwright(existing[name][1]) if is_read else existing[name][1].value != variable.value:
            user_values.append(name)
            continue
        draft.add_entry(entry, variable.code)
    if added:
        draft.edit_container(index).append_all("env", added)
    draft.record_user_values(container.name, user_values)


def _warn_of_env_from(draft: drafts.Draft, container: views.Container, undelivered: Iterable[derive.Variable]) -> None:
    """Warn of variables that are not set, because an `env` entry would silently override the value from envFrom."""
    if missing := [one.name for one in undelivered if one.name not in container.env_by_name]:
        left_out = reasons.Reason(
            AdmissionCode.VARIABLES_LEFT_TO_ENV_FROM,
            f"container {container.name} has envFrom, whose values env would override, so railwright does not set "
            f"{text.join_fitting(missing)} in env",
            fix="write what the job needs in env, or in the source of envFrom",
        )
        draft.warn(left_out)


# --- Open MPI -------------------------------------------------------------------------------------------------

# No variable of Open MPI is derived: an include list in the environment and an exclude list on the command line of
# mpirun abort the job ("Both TCP interface include and exclude lists were specified", Open MPI 4.1.4 and 5.0.11).


def _set_open_mpi_literals(draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext) -> None:
    """Set the policy's variables of Open MPI, which mpirun passes to its ranks.

    Without the annotation `containers`, every container gets them, because any may run mpirun.
    """
    literals = rank_settings.list_literals(ctx.fabric)
    settings = [literal for literal in literals if literal.name.startswith(libraries.OPEN_MPI)]
    is_chosen = names.CONTAINERS in pod.metadata.annotations
    candidates = ctx.targets if is_chosen else range(len(pod.spec.containers))[: context.MAX_TARGETS]
    for index in candidates if settings else ():
        container = pod.spec.containers[index]
        if _names_interface_list(container, ctx.fabric):
            _record_skipped_open_mpi_variables(draft, container, settings)
        elif not _env_from_may_set(container, settings):
            _add_env_entries(draft, index, container, settings)
        elif index in ctx.targets:
            _add_env_entries(draft, index, container, settings, settings)
            _warn_of_env_from(draft, container, settings)


def _names_interface_list(container: views.Container, fabric: policies.Fabric) -> bool:
    """True if the author's command or variables give Open MPI a list of interfaces to include or exclude."""
    own = [entry.name for entry in container.env if fabric.env.get(entry.name) != entry.value]
    line = "\n".join((*(container.command or ()), *(container.args or ()), *own))
    return "_if_include" in line or "_if_exclude" in line


def _record_skipped_open_mpi_variables(
    draft: drafts.Draft, container: views.Container, settings: Iterable[derive.Variable]
) -> None:
    why = reasons.Reason(
        AdmissionCode.OPEN_MPI_LISTS,
        f"container {container.name} names an include or exclude list of Open MPI itself, and mpirun fails if both "
        "kinds are set",
    )
    for setting in settings:
        draft.record_skip(f"env.{setting.name}", why)


# --- delivery -------------------------------------------------------------------------------------------------


def _choose_delivery(
    draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext, *, by_env: bool
) -> Delivery:
    """Choose how the variables reach the ranks. Unless `by_env`, files deliver what the init container finds."""
    by_claims = claim_requests.has_claimed_rails(pod, ctx)
    devices = None if by_claims else ctx.devices
    is_foreign = bool(pod.spec.host_network) != ctx.fabric.host_network
    has_interface = _has_primary_interface(draft, pod, ctx)
    get_settings = ctx.policy.compile_once(rank_settings.compile_settings)
    settings = get_settings(ctx.fabric_name, devices, is_foreign, has_interface)
    found = settings.found if init_containers.gets_found_variables(pod, ctx) else ()
    by_file, by_ssh = ctx.options.delivery == "file", workload_roles.is_started_by_ssh(pod)
    found_in_env = bool(found) and by_env and not by_file and ctx.fabric.delivery == "auto"
    found_in_env = found_in_env and _supports_file_keys(ctx) and not _chose_files_before(pod, ctx)
    everywhere = by_file or by_ssh or (bool(found) and not found_in_env)
    groups = (settings.all, settings.optional_library_vars, found)
    receivers = [index for index in ctx.targets if everywhere or _env_from_may_set(pod.spec.containers[index], *groups)]
    mounted = tuple([index for index in receivers if not _find_conflicting_mount(pod.spec.containers[index])])
    at_home = [
        index
        for index in (ctx.targets if found and by_ssh else ())
        if pod.runs_as_root(index) and names.ROOT_HOME not in pod.spec.containers[index].volume_by_path
    ]
    return Delivery(
        settings=settings,
        by_file=by_file,
        in_file=_drop_overridden(pod, mounted, settings.file_vars) if mounted else (),
        mounted=mounted,
        unreachable=tuple([index for index in receivers if index not in mounted]),
        found=found,
        found_in_env=found_in_env,
        by_ssh=by_ssh,
        at_home=tuple(at_home),
    )


def _supports_file_keys(ctx: context.InjectionContext) -> bool:
    """True if the API server and every node of the fabric are known to support `fileKeyRef`.

    An older kubelet would set each variable to the empty string, which libraries do not treat as unset. The nodes of a
    fabric are those that offer its resources; without resources, all nodes.
    """
    offered, by_old, resources = ctx.known.offered, ctx.known.offered_by_old, ctx.selected.resources
    if not ctx.known.file_keys or not offered:
        return False
    return resources.issubset(offered) and resources.isdisjoint(by_old) if resources else not by_old


def _has_primary_interface(draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext) -> bool:
    """False, with an entry in the record, if the primary interface is of a rail to which the pod is not attached."""

    def list_interfaces(
        attached: Sequence[network_selection.Selection], selected: context.RailSelection
    ) -> Collection[str | None]:
        """Return the interface names of the attachments, and of the rails if Multus attaches none of them."""
        others = () if selected.attachments else [rail.interface for rail in selected.policy_rails]
        return {*network_selection.name_interfaces(attached), *others}

    name = ctx.fabric.primary_interface
    if name == network_selection.CRI_INTERFACE or pod.spec.host_network:
        return True
    whole = ctx.policy.compile_once(context.compile_selections)[ctx.fabric_name]
    if name not in list_interfaces(whole.attachments, whole) or name in list_interfaces(pod.attached, ctx.selected):
        return True
    if derive.is_derived(_INTERFACE, ctx.fabric) and _INTERFACE not in ctx.fabric.env:
        absent = reasons.Reason(
            AdmissionCode.INTERFACE_ABSENT,
            f"the pod has no interface {name}, the primaryInterface of the policy, so NCCL and the other libraries "
            f"choose one; attach the pod to the network of {name}, or set {_INTERFACE}",
        )
        draft.record_skip(f"env.{_INTERFACE}", absent)
    return False


def _deliver_nccl_conf(
    draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext, delivery: Delivery
) -> None:
    """Mount nccl.conf: the file of the init container, or without one, an annotation. Raises RefusedError."""
    lines = [] if delivery.found else [(setting.name, setting.value) for setting in delivery.in_file]
    _set_file_annotation(draft, pod, conf.format_file(lines) if lines else "")
    if delivery.mounted:
        mounts.mount_volume(
            draft, mounts.FOUND_NCCL_CONF if delivery.found else mounts.NCCL_CONF_FILE, delivery.mounted
        )
    elif delivery.unreachable:
        draft.record_skip("nccl.conf", mounts.explain_occupied_path(pod, delivery.unreachable, names.NCCL_CONF_PATH))
    if delivery.at_home:
        mounts.mount_volume(draft, mounts.FOUND_UCX_CONF, delivery.at_home)
    for container in [pod.spec.containers[index] for index in delivery.unreachable]:
        unreachable = reasons.Reason(
            AdmissionCode.PATH_OCCUPIED,
            f"container {container.name} mounts {_find_conflicting_mount(container)} itself",
            fix=f"remove that mount, or set the NCCL settings of fabric {ctx.fabric_name} in env",
        )
        draft.warn(unreachable)


# --- what the init container finds ------------------------------------------------------------------------------


def _remove_emptied_variables(draft: drafts.Draft, pod: drafts.EditedPod, ctx: context.InjectionContext) -> bool:
    """Remove variables whose `fileKeyRef` another webhook dropped; return True if there were any.

    A webhook built on an API without `fileKeyRef` drops the field from every pod that it changes, and the API server
    rejects a variable with an empty `valueFrom`. That webhook may be called again, so the
    configuration files of NCCL and UCX deliver the values to this pod.
    """
    has_emptied = False
    for index in ctx.targets:
        container = pod.spec.containers[index]
        emptied = {
            position: entry.name
            for position, entry in enumerate(container.env)
            if entry.value_from is not None and not entry.value_from and not entry.value and entry.name in derive.FOUND
        }
        if emptied:
            has_emptied = True
            dropped = reasons.Reason(
                AdmissionCode.LIBRARY_NOT_REACHED,
                f"another webhook dropped valueFrom.fileKeyRef of {text.join_fitting([*emptied.values()])} in "
                f"container {container.name}, because it knows only an older Kubernetes API; NCCL and UCX read files "
                "instead",
                fix="update that webhook",
            )
            draft.edit_container(index).remove_env([*emptied], "env")
            draft.warn(dropped)
    return has_emptied


def _chose_files_before(pod: drafts.EditedPod, ctx: context.InjectionContext) -> bool:
    """True if an earlier admission of this pod chose files for the values that the init container finds.

    The API server admits a pod twice if another webhook changes it.
    """
    containers = [pod.spec.containers[index] for index in ctx.targets]
    return any(
        (entry.name, entry.value) in rank_settings.FILE_PATHS for container in containers for entry in container.env
    )


def _list_file_paths(draft: drafts.Draft, container: views.Container, delivery: Delivery) -> Sequence[derive.Variable]:
    """Return the variables with the paths of the init container's files; () if the container cannot mount them."""
    if not delivery.found:
        return ()
    if container.volume_by_path.get(names.RAILS_PATH) in {None, mounts.RAILS}:
        return delivery.settings.paths
    if _may_find_ucx_variable(delivery):
        why = f"container {container.name} mounts {names.RAILS_PATH} itself, so UCX does not find its settings there"
        fix = "mount that volume at another path"
        draft.record_skip("found.UCX", reasons.Reason(AdmissionCode.LIBRARY_NOT_REACHED, why, fix))
    return ()


def _is_set_by_railwright(entry: views.EnvVar) -> bool:
    """True if railwright set the variable: it refers to a key of the init container's file, or has a file's path."""
    reference = (entry.value_from or {}).get("fileKeyRef")
    if isinstance(reference, dict):
        return reference.get("volumeName") == mounts.RAILS
    return (entry.name, entry.value) in rank_settings.FILE_PATHS


def _record_unreached_libraries(draft: drafts.Draft, delivery: Delivery) -> None:
    """Record which libraries do not read the files in which the init container delivers its values."""
    if delivery.found_in_env and not delivery.by_ssh:
        return
    missed = [*delivery.settings.without_file]
    if delivery.by_ssh and not delivery.at_home and _may_find_ucx_variable(delivery):
        missed.append("UCX")
    readers = "NCCL reads" if "UCX" in missed else "NCCL and UCX read"
    cause = ", and ssh starts the ranks without it" if delivery.by_ssh else ""
    if missed:
        why = reasons.Reason(
            AdmissionCode.LIBRARY_NOT_REACHED,
            f"the devices found at start are delivered as files, which {readers}, but {', '.join(missed)} need the "
            f"environment{cause}",
            fix="if the job uses one of these, export the variables of "
            f"{names.RAILS_PATH}/{mounts.RAILS_ENV} in the job's command",
        )
        draft.record_skip("found", why)


def _may_find_ucx_variable(delivery: Delivery) -> bool:
    """True if the init container may find a value for a variable of UCX."""
    return any(setting.name.startswith("UCX_") for setting in delivery.found)


def _find_conflicting_mount(container: views.Container) -> str | None:
    """Return the user's mount path that conflicts with /etc/nccl.conf, or None.

    For a volume at /etc the runtime would create the file inside the user's volume. That fails for read-only volumes
    such as ConfigMaps and Secrets.
    """
    if not container.volume_mounts_or_none and not container.volume_devices:
        return None
    if container.volume_by_path.get(names.NCCL_CONF_PATH) not in {None, mounts.NCCL_CONF, mounts.RAILS}:
        return names.NCCL_CONF_PATH
    return _PARENT if any(mount.path == _PARENT for mount in container.volume_mounts) else None


def _drop_overridden(
    pod: views.Pod, mounted: Sequence[int], file_vars: tuple[derive.Variable, ...]
) -> tuple[derive.Variable, ...]:
    """Return the variables for nccl.conf, without those that all containers in `mounted` set to a value of their own.

    Ranks started by ssh do not inherit the container's environment, so the file would override the user's value.
    """
    container_envs = [pod.spec.containers[index].env_by_name for index in mounted]
    everywhere = set(container_envs[0]).intersection(*container_envs[1:])
    return tuple(
        [
            one
            for one in file_vars
            if one.name not in everywhere or not all(_is_overridden(entries, one) for entries in container_envs)
        ]
    )


def _set_file_annotation(draft: drafts.Draft, pod: drafts.EditedPod, text: str) -> None:
    """Set the annotation with the content of nccl.conf, "" for a pod without it. Warn if this replaces the user's.

    The rule is in docs/interface.md 1.5.
    """
    user_value = pod.metadata.annotations.get(names.NCCL_CONF)
    if (user_value or "") == text:
        return
    draft.set_annotation(names.NCCL_CONF, text, "nccl.conf")
    if user_value is not None:
        draft.warn(_REPLACED)


# --- the container's own entries ------------------------------------------------------------------------------


def _env_from_may_set(container: views.Container, *setting_lists: Iterable[derive.Variable]) -> bool:
    """True if envFrom may set one of the variables. A source with a prefix sets only names with that prefix."""
    if not container.env_from:
        return False
    prefix_values = [(source or {}).get("prefix") for source in container.env_from]
    prefixes = tuple(prefix if isinstance(prefix, str) else "" for prefix in prefix_values)
    return any(setting.name.startswith(prefixes) for group in setting_lists for setting in group)


def _is_overridden(existing: _EntriesByName, setting: derive.Variable) -> bool:
    """True if the user has set the variable to another value. An entry with valueFrom always counts as one."""
    match = existing.get(setting.name)
    return match is not None and match[1].value != setting.value


def _has_conflict(
    existing: _EntriesByName, setting: derive.Variable, own_settings: Mapping[str, derive.Variable]
) -> bool:
    """True if the user set a variable of the same library that contradicts this one (CONFLICTING_VARIABLES)."""
    for other in libraries.CONFLICTING_VARIABLES.get(setting.name, ()):
        is_users = other in existing and not _is_set_by_railwright(existing[other][1])
        if is_users and (other not in own_settings or _is_overridden(existing, own_settings[other])):
            return True
    return False


# --- directories of LD_LIBRARY_PATH -----------------------------------------------------------------------

# Added at the end, without replacing what the container sets. The webhook does not see the value of the image, which an
# entry of the container hides (docs/interface.md 3.3).
LIBRARY_PATH = "LD_LIBRARY_PATH"
_LIBRARY_ENTRY = f"env.{LIBRARY_PATH}"
_LIBRARY_SETTING = derive.Variable(LIBRARY_PATH, "", VariableCode.LIBRARY_PATH)


def extend_library_path(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add the policy's directories to LD_LIBRARY_PATH of the target containers."""
    directories, containers = ctx.fabric.library_path, draft.pod.spec.containers
    if "env" in ctx.options.skip:
        return
    for index in ctx.targets:
        container = containers[index]
        position, entry = container.env_by_name.get(LIBRARY_PATH, (None, None))
        hidden = entry is None and _env_from_may_set(container, (_LIBRARY_SETTING,))
        source = "valueFrom" if entry and entry.value_from else "envFrom" if hidden else ""
        if source:
            unknown = reasons.Reason(
                AdmissionCode.VARIABLES_LEFT_TO_ENV_FROM,
                f"container {container.name} gets LD_LIBRARY_PATH from {source}, so railwright cannot add directories",
                fix=f"add {text.join_fitting(directories)} to the value in {source}",
            )
            draft.record_skip_and_warn(_LIBRARY_ENTRY, unknown)
            continue
        current = (entry.value if entry else "") or ""
        missing = [directory for directory in directories if f":{directory}:" not in f":{current}:"]
        if missing:
            value = {"name": LIBRARY_PATH, "value": ":".join([*([current] if current else []), *missing])}
            if position is None:
                draft.edit_container(index).append("env", value, _LIBRARY_ENTRY)
            else:
                draft.edit_container(index).replace("env", position, value, _LIBRARY_ENTRY)
        draft.add_entry(_LIBRARY_ENTRY, _LIBRARY_SETTING.code)


# --- a script before the command --------------------------------------------------------------------------

_SCRIPT = "sourceScript"
_SHELL = "/bin/bash"


def source_script(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Source the script before the command of each target container. The command does not change.

    A shell runs `. SCRIPT && exec "$0" "$@"` with the container's own words as "$0" and "$@", so nothing in them is
    quoted or interpreted again, and the program replaces the shell. The webhook does not see the command of an image,
    so a container without one is left unchanged with a warning (docs/interface.md 3.3).
    """
    script = ctx.fabric.source_script
    if script is None or "env" in ctx.options.skip:
        return
    pod, prefix = draft.pod, (_SHELL, "-c", names.SOURCE_COMMAND.format(path=script))
    commands = {index: tuple(pod.spec.containers[index].command or ()) for index in ctx.targets}
    for index, command in commands.items():
        if command and command[: len(prefix)] != prefix:
            draft.edit_container(index).set_field("command", [*prefix, *command], _SCRIPT)
    if without := [pod.spec.containers[index].name for index, command in commands.items() if not command]:
        warning = reasons.Reason(
            AdmissionCode.SCRIPT_WITHOUT_COMMAND,
            f"container {text.join_fitting(without)} has no command, so {script} is not sourced",
            fix="write the command of its image into the manifest",
        )
        draft.record_skip_and_warn(_SCRIPT, warning)
    else:
        draft.add_entry(_SCRIPT)
