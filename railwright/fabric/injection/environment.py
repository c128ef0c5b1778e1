"""Sets the environment of the target containers: the policy's literals and derived values, directories of
LD_LIBRARY_PATH, and a script that sets variables before the program starts.

The user's entry takes precedence, also with valueFrom, unless the policy forces the name (docs/interface.md 2.3). A
variable is delivered by the container's environment, by the file /etc/nccl.conf, or both (docs/interface.md 3.3).
`env_tables` owns the variables.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import device_names, names, views
from railwright.fabric.injection import applied_pod, claim_requests, context, env_tables, mounts, pod_changes
from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode, VariableCode
from railwright.fabric.workloads import roles as workload_roles

_WRITTEN_AT_BINDING = reasons.make(AdmissionCode.WRITTEN_AT_BINDING)
_NODE_NAME_SET = reasons.make(AdmissionCode.NODE_NAME_SET, variable=env_tables.HCA)
_PARENT = names.NCCL_CONF_PATH.rpartition("/")[0]
_NETWORK = "NCCL_NET"
_REPLACED = reasons.make(AdmissionCode.CONFIG_REPLACED)

_EntriesByName = Mapping[str, tuple[int, views.EnvVar]]


class Route(msgspec.Struct, frozen=True):
    """The delivery of each variable of a pod."""

    settings: env_tables.Settings  # all variables
    in_env: tuple[env_tables.Setting, ...]  # for the environment of containers without envFrom
    in_file: tuple[env_tables.Setting, ...] = ()
    text: str = ""  # content of the file before binding
    mounted: tuple[int, ...] = ()  # containers that get the file
    unreachable: tuple[int, ...] = ()  # containers that should get it and have a conflicting mount
    per_node: bool = False  # the device list is added to the file at binding
    by_claims: bool = False  # that list has the devices that the pod's claims hold


def set_variables(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the variables of the pod in its environment and in its file. Raises RefusedError."""
    gets_variables = ctx.role.rails or ctx.role.needs_launcher_settings
    if gets_variables and "env" in ctx.options.skip:
        return pod_changes.merge([_remove_file(pod), pod_changes.Contribution(skipped={"env": context.SKIPPED})])
    if not ctx.role.rails:
        launcher_settings = _set_launcher_settings(pod, ctx) if ctx.role.needs_launcher_settings else ()
        return pod_changes.merge([_remove_file(pod), *launcher_settings])
    route = build_route(pod, ctx)
    variables, file = _set_rank_variables(pod, ctx, route), _deliver_file(pod, ctx, route)
    return pod_changes.merge([*variables, file, _explain_topology(pod, ctx)])


def _explain_topology(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Warn if the pod may run on nodes with different topology files, unless the policy or each container names one."""
    files = device_names.find_topology_files(pod, ctx.document, ctx.fabric)
    is_set = all(env_tables.TOPOLOGY_FILE in pod.container(index).env_by_name for index in ctx.targets)
    if len(files) == 1 or is_set or env_tables.TOPOLOGY_FILE in ctx.fabric.env or not ctx.fabric.nccl.derive:
        return pod_changes.EMPTY
    unknown = reasons.make(AdmissionCode.TOPOLOGY_FILE_UNKNOWN, files=tuple([file or "none" for file in files]))
    return pod_changes.Contribution(warnings=(unknown,), skipped={f"env.{env_tables.TOPOLOGY_FILE}": unknown})


def _set_rank_variables(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, route: Route
) -> list[pod_changes.Contribution]:
    contributions = [_set_container_variables(pod, ctx, index, route) for index in ctx.targets]
    if route.per_node:
        contributions.append(_defer_device_list(pod))
        contributions += [_remove_overridden(pod, ctx, index) for index in route.mounted]
    if route.in_file:
        contributions.append(
            pod_changes.Contribution(
                entries=tuple([setting.entry for setting in route.in_file]), recorded=(route.settings.recorded,)
            )
        )
    return contributions


def _set_container_variables(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, index: int, route: Route
) -> pod_changes.Contribution:
    container = pod.container(index)
    existing = container.env_by_name
    candidates, additions = route.settings.all, route.in_env
    used_libraries = (
        libraries.detect(existing) | libraries.OPEN_MPI
        if ctx.role.needs_launcher_settings
        else libraries.detect(existing)
    )
    if used_libraries:
        by_name = {setting.name: setting for setting in (*candidates, *route.settings.optional_library_vars)}
        library_settings = [
            setting
            for setting in route.settings.optional_library_vars
            if libraries.get_library(setting.name) in used_libraries
        ]
        candidates = tuple(
            [setting for setting in (*candidates, *library_settings) if not _has_conflict(existing, setting, by_name)]
        )
        additions = (*additions, *library_settings)
    if not _env_from_may_set(container, route.settings.all, route.settings.optional_library_vars):
        return _build_contribution(pod, ctx, index, candidates, additions, route.settings.recorded)
    return _set_with_env_from(pod, ctx, index, candidates, route.settings.file_vars, route.settings.recorded)


def _build_contribution(  # noqa: PLR0913, PLR0917 - two values of the pod, three of the policy
    pod: applied_pod.AppliedPod,
    ctx: context.InjectionContext,
    index: int,
    candidates: Sequence[env_tables.Setting],
    additions: Collection[env_tables.Setting],
    recorded: env_tables.RecordedReasons,
) -> pod_changes.Contribution:
    """Add the `additions` to the environment.

    Keep or force the names of `candidates` that the user set to another value.
    """
    container, forced = pod.container(index), ctx.fabric.force_env
    existing = container.env_by_name
    changes, record_entries, user_values = [], [], []
    warnings: list[reasons.Reason] = []
    for setting in candidates:
        match = existing.get(setting.name)
        if match is None:
            if setting in additions:
                changes.append(_build_change(index, setting))
                record_entries.append(setting.entry)
        elif match[1].value == setting.value:
            record_entries.append(setting.entry)
        elif setting.name in forced:
            changes.append(_build_change(index, setting, match[0]))
            record_entries.append(setting.entry)
            warnings.append(
                reasons.make(
                    AdmissionCode.VARIABLE_FORCED,
                    container=container.name,
                    variable=setting.name,
                    fabric=ctx.fabric_name,
                    value=setting.value,
                )
            )
        else:
            user_values.append(setting.name)
    user_values_by_container = {container.name: tuple(user_values)} if user_values else {}
    return pod_changes.Contribution(
        tuple(changes), tuple(record_entries), tuple(warnings), user_values_by_container, recorded=(recorded,)
    )


def _set_with_env_from(  # noqa: PLR0913, PLR0917 - as above
    pod: applied_pod.AppliedPod,
    ctx: context.InjectionContext,
    index: int,
    candidates: Sequence[env_tables.Setting],
    file_vars: Collection[env_tables.Setting],
    recorded: env_tables.RecordedReasons,
) -> pod_changes.Contribution:
    """Set the variables of a container with envFrom.

    An `env` entry would silently override what envFrom sets, so only forced names get one, with a warning. `file_vars`
    are the variables that a file can carry. If the file is not mounted in the container, `_deliver_file` warns.
    """
    container = pod.container(index)
    forced = [setting for setting in candidates if setting.name in ctx.fabric.force_env]
    undelivered = [
        setting.name
        for setting in candidates
        if setting.name not in container.env_by_name and setting not in file_vars and setting not in forced
    ]
    warnings = [
        reasons.make(
            AdmissionCode.ENV_FROM_OVERRIDDEN, container=container.name, variable=setting.name, value=setting.value
        )
        for setting in forced
        if setting.name not in container.env_by_name
    ]
    if undelivered:
        warnings.append(
            reasons.make(
                AdmissionCode.VARIABLES_LEFT_TO_ENV_FROM, container=container.name, variables=tuple(undelivered)
            )
        )
    contribution = _build_contribution(pod, ctx, index, candidates, forced, recorded)
    return msgspec.structs.replace(contribution, warnings=(*contribution.warnings, *warnings))


def _defer_device_list(pod: applied_pod.AppliedPod) -> pod_changes.Contribution:
    """Defer the device list to the binding.

    Warn if the pod sets spec.nodeName, because no scheduler binds such a pod.
    """
    entry = f"env.{env_tables.HCA}"
    if not pod.spec.node_name:
        return pod_changes.Contribution(skipped={entry: _WRITTEN_AT_BINDING})
    return pod_changes.Contribution(skipped={entry: _NODE_NAME_SET}, warnings=(_NODE_NAME_SET,))


def _remove_overridden(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, index: int
) -> pod_changes.Contribution:
    """Remove the user's own device list if the policy forces one that is written at binding.

    That list is delivered by file, and an entry in the environment would take precedence over it.
    """
    container = pod.container(index)
    user_entries = [position for position, entry in enumerate(container.env) if entry.name == env_tables.HCA]
    if not user_entries or env_tables.HCA not in ctx.fabric.force_env:
        return pod_changes.EMPTY
    reason = f"the policy of fabric {ctx.fabric_name} forces {env_tables.HCA}, which is written at binding"
    warning = reasons.make(
        AdmissionCode.VARIABLE_FORCED_AT_BINDING,
        container=container.name,
        variable=env_tables.HCA,
        fabric=ctx.fabric_name,
    )
    changes = tuple(
        pod_changes.UnsetEnv(entry="", reason=reason, container=index, index=position)
        for position in reversed(user_entries)
    )
    return pod_changes.Contribution(changes=changes, warnings=(warning,))


def _set_launcher_settings(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext
) -> list[pod_changes.Contribution]:
    """Set the interface settings of mpirun, unless the user set the variable or one that conflicts with it."""
    interface = policies.find_primary_interface(ctx.document, ctx.fabric)
    is_foreign = pod.host_network != ctx.fabric.pod.host_network
    derived = derive.derive_launcher_settings(ctx.fabric, interface, is_foreign=is_foreign)
    settings = {variable.name: env_tables.build_setting(variable) for variable in derived}
    recorded = env_tables.encode_reasons(settings.values())
    contributions = []
    for index in context.select_launchers(pod, ctx.targets):
        container = pod.container(index)
        existing = container.env_by_name
        unset = [setting for setting in settings.values() if not _has_conflict(existing, setting, settings)]
        if _env_from_may_set(container, settings.values()):
            if index in ctx.targets:
                contributions.append(_set_with_env_from(pod, ctx, index, unset, (), recorded))
        else:
            contributions.append(_build_contribution(pod, ctx, index, unset, unset, recorded))
    return contributions


def _build_change(container: int, setting: env_tables.Setting, index: int | None = None) -> pod_changes.SetEnv:
    return pod_changes.SetEnv(
        entry=setting.entry,
        reason=setting.reason,
        container=container,
        name=setting.name,
        value=setting.value,
        index=index,
    )


# --- delivery -------------------------------------------------------------------------------------------------


def build_route(pod: views.Pod, ctx: context.InjectionContext) -> Route:
    """Choose how the variables of a rank are delivered."""
    rails = ctx.selected.policy_rails
    by_claims = claim_requests.has_claimed_rails(pod, ctx)
    devices = (
        device_names.KnownDevices(per_node=True)
        if by_claims
        else device_names.resolve_before_binding(pod, ctx.document, rails)
    )
    files = device_names.find_topology_files(pod, ctx.document, ctx.fabric)
    settings = ctx.policy.compile_once(env_tables.Tables).get_rank_settings(
        ctx.fabric_name,
        rails,
        devices.devices,
        host_network=bool(pod.spec.host_network),
        topology_file=(files[0] or "") if len(files) == 1 else "",
    )
    mode = ctx.options.delivery or ctx.fabric.nccl.delivery
    per_node = devices.per_node and _depends_on_node(pod, ctx, rails, settings)
    everywhere = mode != "env" or workload_roles.is_started_by_ssh(pod)
    with_env_from = tuple(
        [
            index
            for index in ctx.targets
            if _env_from_may_set(pod.spec.containers[index], settings.all, settings.optional_library_vars)
        ]
    )
    if not (everywhere or per_node or with_env_from):
        return Route(settings, settings.all)
    receivers = ctx.targets if everywhere or per_node else with_env_from
    mounted = tuple([index for index in receivers if not _find_conflicting_mount(pod.spec.containers[index])])
    in_file = (
        _drop_overridden(pod, ctx, mounted, settings.file_vars) if mounted and (everywhere or with_env_from) else ()
    )
    per_node = per_node and bool(mounted)
    text = settings.file_text if in_file == settings.file_vars else env_tables.format_file(in_file)
    return Route(
        settings=settings,
        in_env=settings.env_only_vars if mode == "file" else settings.all,
        in_file=in_file,
        text=text + _format_placeholder(in_file) if per_node and not pod.spec.node_name else text,
        mounted=mounted,
        unreachable=tuple([index for index in receivers if index not in mounted]),
        per_node=per_node,
        by_claims=per_node and by_claims,
    )


def _deliver_file(pod: applied_pod.AppliedPod, ctx: context.InjectionContext, route: Route) -> pod_changes.Contribution:
    """Add the file: its annotation, its volume and its mounts. Raises RefusedError."""
    annotation, warnings = _set_annotation(pod, route.text)
    if not route.mounted and not route.unreachable:
        return pod_changes.Contribution(changes=annotation, warnings=warnings) if annotation else pod_changes.EMPTY
    mounted = mounts.mount_volume(pod, mounts.NCCL_CONF_FILE, route.mounted) if route.mounted else pod_changes.EMPTY
    skipped = (
        {} if route.mounted else {"nccl.conf": mounts.explain_occupied(pod, route.unreachable, names.NCCL_CONF_PATH)}
    )
    return msgspec.structs.replace(
        mounted,
        changes=annotation + mounted.changes,
        warnings=(*warnings, *_warn_unreachable(pod, ctx, route.unreachable)),
        skipped=skipped,
    )


def _remove_file(pod: applied_pod.AppliedPod) -> pod_changes.Contribution:
    """Remove the content of `nccl.conf` that a user wrote, for a pod that gets no file."""
    annotation, warnings = _set_annotation(pod, "")
    return pod_changes.Contribution(changes=annotation, warnings=warnings)


def _find_conflicting_mount(container: views.Container) -> str | None:
    """Return the user's mount path that conflicts with /etc/nccl.conf, or None.

    For a volume at /etc the runtime would create the file inside the user's volume. That fails for read-only volumes
    such as ConfigMaps and Secrets.
    """
    if not container.volume_mounts_or_none and not container.volume_devices:
        return None
    if mounts.has_other_mount(container, mounts.NCCL_CONF_FILE):
        return names.NCCL_CONF_PATH
    return _PARENT if any(mount.path == _PARENT for mount in container.volume_mounts) else None


def _format_placeholder(in_file: Sequence[env_tables.Setting]) -> str:
    """Return the lines that hold the place of a device list until binding.

    Without a list NCCL would use every device that the container sees, also those of other pods. No device and no
    network has this name, so NCCL fails if binding does not replace it. A pod that names its node is never bound.
    """
    variables = [env_tables.HCA] if any(setting.name == _NETWORK for setting in in_file) else [env_tables.HCA, _NETWORK]
    values = {env_tables.HCA: f"={names.NOT_ALLOCATED}", _NETWORK: names.NOT_ALLOCATED}
    return conf.format_file((variable, values[variable]) for variable in variables)


def _drop_overridden(
    pod: views.Pod, ctx: context.InjectionContext, mounted: Sequence[int], file_vars: tuple[env_tables.Setting, ...]
) -> tuple[env_tables.Setting, ...]:
    """Drop variables that every mounted container sets itself, unless they are forced.

    Ranks started by ssh do not inherit the container's environment, so the file would replace the user's own value.
    """
    container_envs = [pod.spec.containers[index].env_by_name for index in mounted]
    forced = ctx.fabric.force_env
    overridden = {
        setting.entry
        for setting in file_vars
        if setting.name not in forced and all(_is_overridden(entries, setting) for entries in container_envs)
    }
    return tuple([setting for setting in file_vars if setting.entry not in overridden]) if overridden else file_vars


def _depends_on_node(
    pod: views.Pod, ctx: context.InjectionContext, rails: Sequence[policies.Rail], settings: env_tables.Settings
) -> bool:
    """True if the device list is unknown only because the node is unknown.

    False if the transport has no such list, if the policy sets a literal, or if every target container sets its own
    list and the policy does not force it.
    """
    if _has_device_list(settings):
        return False
    example = ctx.policy.compile_once(env_tables.Tables).get_rank_settings(
        ctx.fabric_name, rails, ("any",), host_network=bool(pod.spec.host_network)
    )
    forced = env_tables.HCA in ctx.fabric.force_env
    return _has_device_list(example) and (
        forced or any(env_tables.HCA not in pod.spec.containers[index].env_by_name for index in ctx.targets)
    )


def _has_device_list(settings: env_tables.Settings) -> bool:
    return any(setting.name == env_tables.HCA for setting in settings.all)


def _set_annotation(
    pod: applied_pod.AppliedPod, text: str
) -> tuple[tuple[pod_changes.SetAnnotation, ...], tuple[reasons.Reason, ...]]:
    """Set the annotation to `text`. Warn if this replaces a value of the user (docs/interface.md 1.5)."""
    user_value = pod.metadata.annotations.get(names.NCCL_CONF)
    if (user_value or "") == text:
        return (), ()
    reason = f"the content of {names.NCCL_CONF_PATH}, which the pod's volume reads from this annotation"
    change = pod_changes.SetAnnotation(entry="nccl.conf", reason=reason, key=names.NCCL_CONF, value=text)
    if user_value is None:
        return (change,), ()
    return (change,), (_REPLACED,)


def _warn_unreachable(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, containers: Iterable[int]
) -> Iterable[reasons.Reason]:
    for index in containers:
        container = pod.container(index)
        yield reasons.make(
            AdmissionCode.CONFIG_PATH_OCCUPIED,
            container=container.name,
            path=_find_conflicting_mount(container) or "",
            fabric=ctx.fabric_name,
        )


# --- the container's own entries ------------------------------------------------------------------------------


def _env_from_may_set(container: views.Container, *setting_lists: Iterable[env_tables.Setting]) -> bool:
    """True if envFrom may set one of the variables. A source with a prefix sets only names with that prefix."""
    if not container.env_from:
        return False
    prefix_values = [(source or {}).get("prefix") for source in container.env_from]
    prefixes = tuple(prefix if isinstance(prefix, str) else "" for prefix in prefix_values)
    return any(setting.name.startswith(prefixes) for group in setting_lists for setting in group)


def _is_overridden(existing: _EntriesByName, setting: env_tables.Setting) -> bool:
    """True if the user has set the variable to another value. An entry with valueFrom always counts as one."""
    match = existing.get(setting.name)
    return match is not None and match[1].value != setting.value


def _has_conflict(
    existing: _EntriesByName, setting: env_tables.Setting, own_settings: Mapping[str, env_tables.Setting]
) -> bool:
    """True if the user set a variable that conflicts with this one."""
    for other in libraries.CONFLICTING_VARIABLES.get(setting.name, ()):
        if other in existing and (other not in own_settings or _is_overridden(existing, own_settings[other])):
            return True
    return False


# --- UCX ------------------------------------------------------------------------------------------------------


# Limits UCX to the devices that a pod's claims hold (Dynamic Resource Allocation). In RDMA mode shared UCX would use
# every HCA of the node. A file cannot carry UCX's variables, so the container's entry reads an annotation that binding
# writes. Before that it names a device that does not exist.
_UCX_VARIABLE = "UCX_NET_DEVICES"
UCX_ALL = "all"  # UCX's default
_UCX_PATH = f"metadata.annotations['{names.UCX_NET_DEVICES}']"
_UCX_SETTING = env_tables.build_setting(derive.Variable(_UCX_VARIABLE, "", reasons.make(VariableCode.UCX_DEVICES)))
_UCX_RECORDED = env_tables.encode_reasons([_UCX_SETTING])


def set_ucx_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the variable in target containers that do not set it, and the annotation that it reads."""
    if (
        "env" in ctx.options.skip or _UCX_VARIABLE in ctx.fabric.env or pod.spec.node_name
    ):  # nobody binds a pod of a node
        return pod_changes.EMPTY
    if not claim_requests.has_claimed_rails(pod, ctx):
        return pod_changes.EMPTY
    if not build_route(pod, ctx).by_claims:  # the transport has no list of devices, or the author's is kept
        return pod_changes.EMPTY
    added = [index for index in ctx.targets if _may_set_ucx(pod.container(index), ctx.fabric)]
    if not added and not any(_has_ucx_entry(pod.container(index)) for index in ctx.targets):
        return pod_changes.EMPTY
    changes: list[pod_changes.Change] = [
        pod_changes.SetEnv(
            entry=_UCX_SETTING.entry,
            reason=_UCX_SETTING.reason,
            container=index,
            name=_UCX_VARIABLE,
            value="",
            field_path=_UCX_PATH,
        )
        for index in added
    ]
    placeholder = derive.format_ucx_devices([names.NOT_ALLOCATED])
    if pod.metadata.annotations.get(names.UCX_NET_DEVICES) != placeholder:
        reason = f"the value of {_UCX_VARIABLE}, which is written at binding"
        changes.append(
            pod_changes.SetAnnotation(
                entry=_UCX_SETTING.entry, reason=reason, key=names.UCX_NET_DEVICES, value=placeholder
            )
        )
    return pod_changes.Contribution(tuple(changes), (_UCX_SETTING.entry,), recorded=(_UCX_RECORDED,))


def _may_set_ucx(container: views.Container, fabric: policies.Fabric) -> bool:
    """True if the container does not set the variable, and its UCX may use RDMA.

    `envFrom` may set it, and an entry would override that. Without RDMA, UCX finds none of its transports on the
    devices and fails.
    """
    if container.env_from or any(entry.name == _UCX_VARIABLE for entry in container.env):
        return False
    return libraries.may_use_rdma(_find_ucx_transports(container, fabric))


def _find_ucx_transports(container: views.Container, fabric: policies.Fabric) -> str | None:
    """Return the value of UCX_TLS, None if it is not set or not known."""
    own = [entry for entry in container.env if entry.name == libraries.UCX_TRANSPORTS]
    literal = fabric.env.get(libraries.UCX_TRANSPORTS)
    if own and not (literal is not None and libraries.UCX_TRANSPORTS in fabric.force_env):
        return own[-1].value
    return literal


def _has_ucx_entry(container: views.Container) -> bool:
    """True if railwright has set the variable."""
    return any(
        entry.name == _UCX_VARIABLE and ((entry.value_from or {}).get("fieldRef") or {}).get("fieldPath") == _UCX_PATH
        for entry in container.env
    )


# --- directories of LD_LIBRARY_PATH -----------------------------------------------------------------------

# Added at the end, without replacing what the container or the image sets. The webhook does not see the image's value,
# and an entry of the container hides it. So a container without an entry gets one only if the policy says so
# (docs/interface.md 3.3).
LIBRARY_PATH = "LD_LIBRARY_PATH"
_LIBRARY_SETTING = env_tables.build_setting(derive.Variable(LIBRARY_PATH, "", reasons.make(VariableCode.LIBRARY_PATH)))
_LIBRARY_RECORDED = env_tables.encode_reasons([_LIBRARY_SETTING])


def extend_library_path(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the directories of the policy that the target containers lack."""
    library_path = ctx.fabric.library_path
    if library_path is None or not ctx.role.rails or "env" in ctx.options.skip:
        return pod_changes.EMPTY
    return pod_changes.merge([_extend_in_container(pod, index, library_path) for index in ctx.targets])


def _extend_in_container(
    pod: applied_pod.AppliedPod, index: int, library_path: policies.LibraryPath
) -> pod_changes.Contribution:
    container = pod.container(index)
    position, entry = container.env_by_name.get(LIBRARY_PATH, (None, None))
    source = "valueFrom" if entry and entry.value_from else "envFrom" if entry is None and container.env_from else ""
    if source:
        unknown = reasons.make(
            AdmissionCode.LIBRARY_PATH_UNKNOWN,
            containers=(container.name,),
            source=source,
            directories=library_path.directories,
        )
        return pod_changes.Contribution(skipped={_LIBRARY_SETTING.entry: unknown}, warnings=(unknown,))
    if entry is None and library_path.if_unset == "leave":
        return pod_changes.EMPTY
    current = (entry.value if entry else "") or ""
    missing = [directory for directory in library_path.directories if f":{directory}:" not in f":{current}:"]
    if not missing:
        return pod_changes.Contribution(entries=(_LIBRARY_SETTING.entry,), recorded=(_LIBRARY_RECORDED,))
    change = pod_changes.SetEnv(
        entry=_LIBRARY_SETTING.entry,
        reason=_LIBRARY_SETTING.reason,
        container=index,
        name=LIBRARY_PATH,
        value=":".join([*([current] if current else []), *missing]),
        index=position,
    )
    return pod_changes.Contribution((change,), (_LIBRARY_SETTING.entry,), recorded=(_LIBRARY_RECORDED,))


# --- a script before the command --------------------------------------------------------------------------

_SCRIPT = "sourceScript"


def source_script(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Put the script before the command of each target container, which stays whole.

    A shell runs `. SCRIPT && exec "$0" "$@"` with the container's own words as "$0" and "$@", so nothing in them is
    quoted or interpreted again, and the program replaces the shell. The webhook does not see the command of an image,
    so a container without one is left unchanged with a warning (docs/interface.md 3.3).
    """
    script = ctx.fabric.source_script
    if script is None or not ctx.role.rails or "env" in ctx.options.skip:
        return pod_changes.EMPTY
    prefix = (script.shell, "-c", names.SOURCE_COMMAND.format(path=script.path))
    commands = {index: tuple(pod.container(index).command or ()) for index in ctx.targets}
    changes = [
        pod_changes.SetCommand(
            entry=_SCRIPT,
            reason=f"sets the variables of fabric {ctx.fabric_name} before the program starts",
            container=index,
            command=(*prefix, *command),
        )
        for index, command in commands.items()
        if command and command[: len(prefix)] != prefix
    ]
    if without := tuple([pod.container(index).name for index, command in commands.items() if not command]):
        warning = reasons.make(AdmissionCode.SCRIPT_WITHOUT_COMMAND, containers=without, path=script.path)
        return pod_changes.Contribution(tuple(changes), warnings=(warning,), skipped={_SCRIPT: warning})
    return pod_changes.Contribution(tuple(changes), (_SCRIPT,))
