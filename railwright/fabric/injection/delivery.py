"""Chooses how a rank gets its variables: by the container's environment, the file /etc/nccl.conf, or both.

`env_tables` owns the variables, `environment` owns their precedence. The rules are in docs/interface.md 3.3.
"""

from collections.abc import Iterable, Sequence

import msgspec

from railwright.fabric import device_names, names, views
from railwright.fabric.injection import (
    applied_pod,
    claimed_rails,
    container_env,
    context,
    env_tables,
    mounts,
    pod_changes,
)
from railwright.fabric.nccl import conf
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import roles as workload_roles

_PARENT = names.NCCL_CONF_PATH.rpartition("/")[0]
_NETWORK = "NCCL_NET"
_REPLACED = reasons.make(AdmissionCode.CONFIG_REPLACED)


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


def build_route(pod: views.Pod, ctx: context.InjectionContext) -> Route:
    """Choose how the variables of a rank are delivered."""
    rails = [rail.rail for rail in ctx.rails]
    by_claims = claimed_rails.has_claimed_rails(pod, ctx)
    devices = (
        device_names.KnownDevices(per_node=True)
        if by_claims
        else device_names.resolve_before_binding(pod, ctx.document, rails)
    )
    settings = ctx.policy.compile_once(env_tables.Tables).get_rank_settings(
        ctx.fabric_name, rails, devices.devices, host_network=bool(pod.spec.host_network)
    )
    mode = ctx.options.delivery or ctx.fabric.nccl.delivery
    per_node = devices.per_node and _depends_on_node(pod, ctx, rails, settings)
    everywhere = mode != "env" or workload_roles.is_started_by_ssh(pod)
    with_env_from = tuple(
        [
            index
            for index in ctx.targets
            if container_env.env_from_may_set(pod.spec.containers[index], settings.all, settings.optional_library_vars)
        ]
    )
    if not (everywhere or per_node or with_env_from):
        return Route(settings, settings.all)
    receivers = ctx.targets if everywhere or per_node else with_env_from
    mounted = tuple([index for index in receivers if not find_conflicting_mount(pod.spec.containers[index])])
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


def deliver_file(pod: applied_pod.AppliedPod, ctx: context.InjectionContext, route: Route) -> pod_changes.Contribution:
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


def remove_file(pod: applied_pod.AppliedPod) -> pod_changes.Contribution:
    """Remove the content of `nccl.conf` that a user wrote, for a pod that gets no file."""
    annotation, warnings = _set_annotation(pod, "")
    return pod_changes.Contribution(changes=annotation, warnings=warnings)


def find_conflicting_mount(container: views.Container) -> str | None:
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
    container_envs = [container_env.index_entries(pod.spec.containers[index]) for index in mounted]
    forced = ctx.fabric.force_env
    overridden = {
        setting.entry
        for setting in file_vars
        if setting.name not in forced
        and all(container_env.is_overridden(entries, setting) for entries in container_envs)
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
        forced or any(_has_no_device_list(pod.spec.containers[index]) for index in ctx.targets)
    )


def _has_device_list(settings: env_tables.Settings) -> bool:
    return any(setting.name == env_tables.HCA for setting in settings.all)


def _has_no_device_list(container: views.Container) -> bool:
    return all(entry.name != env_tables.HCA for entry in container.env)


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
            path=find_conflicting_mount(container) or "",
            fabric=ctx.fabric_name,
        )
