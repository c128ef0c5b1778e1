"""Limits UCX to the devices that a pod's claims hold (Dynamic Resource Allocation).

In RDMA mode shared UCX would use every HCA of the node. A file cannot carry UCX's variables, so the container's entry
reads an annotation that binding writes. Before that it names a device that does not exist.
"""

from collections.abc import Iterable

from railwright.fabric import names, views
from railwright.fabric.injection import applied_pod, claimed_rails, context, delivery, env_tables, pod_changes
from railwright.fabric.nccl import derivation_types as nccl
from railwright.fabric.nccl import libraries
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import VariableCode

VARIABLE = "UCX_NET_DEVICES"
ALL = "all"  # UCX's default
_PATH = f"metadata.annotations['{names.UCX_NET_DEVICES}']"
_SETTING = env_tables.build_setting(nccl.Variable(VARIABLE, "", reasons.make(VariableCode.UCX_DEVICES)))
_RECORDED = env_tables.encode_reasons([_SETTING])


def set_devices(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Set the variable in target containers that do not set it, and the annotation that it reads."""
    if "env" in ctx.options.skip or VARIABLE in ctx.fabric.env or pod.spec.node_name:  # nobody binds a pod of a node
        return pod_changes.EMPTY
    if not claimed_rails.has_claimed_rails(pod, ctx):
        return pod_changes.EMPTY
    if not delivery.build_route(pod, ctx).by_claims:  # the transport has no list of devices, or the author's is kept
        return pod_changes.EMPTY
    added = [index for index in ctx.targets if _may_set(pod.container(index), ctx.fabric)]
    if not added and not any(_has_own_entry(pod.container(index)) for index in ctx.targets):
        return pod_changes.EMPTY
    changes: list[pod_changes.AnyChange] = [
        pod_changes.SetEnv(
            entry=_SETTING.entry, reason=_SETTING.reason, container=index, name=VARIABLE, value="", field_path=_PATH
        )
        for index in added
    ]
    placeholder = format_devices([names.NOT_ALLOCATED])
    if pod.metadata.annotations.get(names.UCX_NET_DEVICES) != placeholder:
        reason = f"the value of {VARIABLE}, which is written at binding"
        changes.append(
            pod_changes.SetAnnotation(entry=_SETTING.entry, reason=reason, key=names.UCX_NET_DEVICES, value=placeholder)
        )
    return pod_changes.Contribution(tuple(changes), (_SETTING.entry,), recorded=(_RECORDED,))


def format_devices(devices: Iterable[str]) -> str:
    """Return the first port of each device, as UCX names it (UCX documentation, UCX_NET_DEVICES)."""
    return ",".join(f"{device}:1" for device in dict.fromkeys(devices))


def _may_set(container: views.Container, fabric: policies.Fabric) -> bool:
    """True if the container does not set the variable, and its UCX may use RDMA.

    `envFrom` may set it, and an entry would override that. Without RDMA, UCX finds none of its transports on the
    devices and fails.
    """
    if container.env_from or any(entry.name == VARIABLE for entry in container.env):
        return False
    return libraries.may_use_rdma(_find_transports(container, fabric))


def _find_transports(container: views.Container, fabric: policies.Fabric) -> str | None:
    """Return the value of UCX_TLS, None if it is not set or not known."""
    own = [entry for entry in container.env if entry.name == libraries.UCX_TRANSPORTS]
    literal = fabric.env.get(libraries.UCX_TRANSPORTS)
    if own and not (literal is not None and libraries.UCX_TRANSPORTS in fabric.force_env):
        return own[-1].value
    return literal


def _has_own_entry(container: views.Container) -> bool:
    """True if railwright has set the variable."""
    return any(
        entry.name == VARIABLE and ((entry.value_from or {}).get("fieldRef") or {}).get("fieldPath") == _PATH
        for entry in container.env
    )
