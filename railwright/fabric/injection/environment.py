"""Sets the environment of the target containers: the policy's literals and derived values.

The user's entry takes precedence, also with valueFrom, unless the policy forces the name (docs/interface.md 2.3).
`env_tables` owns the variables, `delivery` owns their delivery.
"""

from collections.abc import Collection, Sequence

from railwright.fabric.injection import (
    applied_pod,
    container_env,
    context,
    delivery,
    env_tables,
    pod_changes,
    targets,
    user_options,
)
from railwright.fabric.nccl import derivation_types as nccl
from railwright.fabric.nccl import derive, libraries
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_WRITTEN_AT_BINDING = reasons.make(AdmissionCode.WRITTEN_AT_BINDING)
_NODE_NAME_SET = reasons.make(AdmissionCode.NODE_NAME_SET, variable=env_tables.HCA)


def set_variables(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the variables of the pod in its environment and in its file. Raises RefusedError."""
    return pod_changes.merge(_list_contributions(pod, ctx))


def _list_contributions(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> list[pod_changes.Contribution]:
    gets_variables = ctx.role.rails or ctx.role.needs_launcher_settings
    if gets_variables and "env" in ctx.options.skip:
        return [delivery.remove_file(pod), pod_changes.Contribution(skipped={"env": user_options.SKIPPED})]
    if not ctx.role.rails:
        launcher_settings = _set_launcher_settings(pod, ctx) if ctx.role.needs_launcher_settings else ()
        return [delivery.remove_file(pod), *launcher_settings]
    route = delivery.build_route(pod, ctx)
    return [*_set_rank_variables(pod, ctx, route), delivery.deliver_file(pod, ctx, route)]


def _set_rank_variables(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, route: delivery.Route
) -> list[pod_changes.Contribution]:
    contributions = [
        contribution for index in ctx.targets for contribution in _set_container_variables(pod, ctx, index, route)
    ]
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
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, index: int, route: delivery.Route
) -> list[pod_changes.Contribution]:
    container = pod.container(index)
    existing = container_env.index_entries(container)
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
            [
                setting
                for setting in (*candidates, *library_settings)
                if not container_env.has_conflict(existing, setting, by_name)
            ]
        )
        additions = (*additions, *library_settings)
    if not container_env.env_from_may_set(container, route.settings.all, route.settings.optional_library_vars):
        return [_build_contribution(pod, ctx, index, existing, candidates, additions, route.settings.recorded)]
    return _set_with_env_from(pod, ctx, index, existing, candidates, route.settings.file_vars, route.settings.recorded)


def _build_contribution(  # noqa: PLR0913, PLR0917 - two values of the pod, three of the policy
    pod: applied_pod.AppliedPod,
    ctx: context.InjectionContext,
    index: int,
    existing: container_env.EntriesByName,
    candidates: Sequence[env_tables.Setting],
    additions: Collection[env_tables.Setting],
    recorded: env_tables.RecordedReasons,
) -> pod_changes.Contribution:
    """Add the `additions` to the environment.

    Keep or force the names of `candidates` that the user set to another value.
    """
    container = pod.container(index)
    forced = ctx.fabric.force_env
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
    existing: container_env.EntriesByName,
    candidates: Sequence[env_tables.Setting],
    file_vars: Collection[env_tables.Setting],
    recorded: env_tables.RecordedReasons,
) -> list[pod_changes.Contribution]:
    """Set the variables of a container with envFrom.

    An `env` entry would silently override what envFrom sets, so only forced names get one, with a warning. `file_vars`
    are the variables that a file can carry. If the file is not mounted in the container, `delivery` warns.
    """
    name = pod.container(index).name
    forced = [setting for setting in candidates if setting.name in ctx.fabric.force_env]
    undelivered = [
        setting.name
        for setting in candidates
        if setting.name not in existing and setting not in file_vars and setting not in forced
    ]
    warnings = [
        reasons.make(AdmissionCode.ENV_FROM_OVERRIDDEN, container=name, variable=setting.name, value=setting.value)
        for setting in forced
        if setting.name not in existing
    ]
    if undelivered:
        variables = tuple(undelivered)
        warnings.append(reasons.make(AdmissionCode.VARIABLES_LEFT_TO_ENV_FROM, container=name, variables=variables))
    return [
        _build_contribution(pod, ctx, index, existing, candidates, forced, recorded),
        pod_changes.Contribution(warnings=tuple(warnings)),
    ]


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
    settings = {setting.name: env_tables.build_setting(setting) for setting in _derive_launcher_settings(pod, ctx)}
    recorded = env_tables.encode_reasons(settings.values())
    contributions = []
    for index in targets.select_launchers(pod, ctx.targets):
        container = pod.container(index)
        existing = container_env.index_entries(container)
        unset = [
            setting for setting in settings.values() if not container_env.has_conflict(existing, setting, settings)
        ]
        if container_env.env_from_may_set(container, settings.values()):
            if index in ctx.targets:
                contributions += _set_with_env_from(pod, ctx, index, existing, unset, (), recorded)
        else:
            contributions.append(_build_contribution(pod, ctx, index, existing, unset, unset, recorded))
    return contributions


def _derive_launcher_settings(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> Sequence[nccl.Variable]:
    return derive.derive_launcher_settings(ctx.fabric, ctx.document.primary_interface, pod.host_network)


def _build_change(container: int, setting: env_tables.Setting, index: int | None = None) -> pod_changes.SetEnv:
    return pod_changes.SetEnv(
        entry=setting.entry,
        reason=setting.reason,
        container=container,
        name=setting.name,
        value=setting.value,
        index=index,
    )
