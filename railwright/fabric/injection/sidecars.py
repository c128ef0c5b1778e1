"""Adds the native sidecars of a fabric: init containers that run as long as the pod.

A container of the pod with the same name is left unchanged (docs/interface.md 3).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric.injection import accelerators, applied_pod, context, facts, mounts, pod_changes
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode


def add(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Append the sidecars that the pod lacks. Raises RefusedError if the namespace forbids what one needs."""
    if not ctx.fabric.sidecars or not ctx.role.rails:
        return pod_changes.EMPTY
    if "sidecars" in ctx.options.skip:
        return pod_changes.Contribution(skipped={"sidecars": context.SKIPPED})
    contributions = []
    for sidecar in ctx.fabric.sidecars:
        contribution = _add_sidecar(pod, ctx, sidecar)
        contributions.append(contribution)
        pod = pod_changes.apply(pod, contribution.changes)  # two sidecars may share a volume
    return pod_changes.merge(contributions)


def _add_sidecar(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, sidecar: policies.Sidecar
) -> pod_changes.Contribution:
    entry = f"sidecars.{sidecar.name}"
    restart_policies = [one.restart_policy for one in pod.spec.init_containers or () if one.name == sidecar.name]
    if restart_policies == [accelerators.SIDECAR]:
        return pod_changes.Contribution(entries=(entry,))
    if restart_policies or any(container.name == sidecar.name for container in pod.spec.containers):
        own = reasons.make(AdmissionCode.CONTAINER_OF_POD, container=sidecar.name)
        return pod_changes.Contribution(skipped={entry: own})
    _check_level(ctx, sidecar)
    volumes = [mounts.build_host_path(host_path) for host_path in sidecar.host_paths]
    changes: list[pod_changes.Change] = []
    for volume in volumes:
        added = mounts.add_volume(pod, volume)
        changes += added
        pod = pod_changes.apply(pod, added)
    change = pod_changes.AddInitContainer(
        entry=entry,
        reason=f"fabric {ctx.fabric_name} needs it beside its ranks",
        added=_build_container(sidecar, [volume.mount for volume in volumes]),
    )
    return pod_changes.Contribution((*changes, change), (entry,))


def _check_level(ctx: context.InjectionContext, sidecar: policies.Sidecar) -> None:
    level = facts.find_level(ctx.known)
    needs = [
        *(["privileged"] if sidecar.privileged else []),
        *(["hostPath"] if sidecar.host_paths else []),
        *[f"capability {name}" for name in sidecar.capabilities if not facts.allows(level, name)],
    ]
    if level is not None and needs:
        problem = facts.format_problem(ctx.known, level, needs[0])
        message = f"{problem}, and sidecar {sidecar.name} of fabric {ctx.fabric_name} needs it; run the pod in a "
        raise reasons.RefusedError("pod-security", f"{message}privileged namespace")


def _build_container(sidecar: policies.Sidecar, volume_mounts: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    security: dict[str, Any] = {"privileged": True} if sidecar.privileged else {}
    if sidecar.capabilities:
        security["capabilities"] = {"add": [*sidecar.capabilities]}
    fields = {
        "command": [*sidecar.command],
        "args": [*sidecar.args],
        "env": [{"name": name, "value": value} for name, value in sidecar.env.items()],
        "securityContext": security,
        "volumeMounts": volume_mounts,
        "startupProbe": dict(_list_probe_fields(sidecar.startup_probe)) if sidecar.startup_probe else {},
    }
    used = {name: value for name, value in fields.items() if value}
    return {"name": sidecar.name, "image": sidecar.image, "restartPolicy": accelerators.SIDECAR, **used}


def _list_probe_fields(probe: policies.StartupProbe) -> Iterator[tuple[str, Any]]:
    if probe.exec_ is not None:
        yield "exec", {"command": [*probe.exec_.command]}
    if probe.tcp_socket is not None:
        yield "tcpSocket", {"port": probe.tcp_socket.port}
    yield "periodSeconds", probe.period_seconds
    yield "failureThreshold", probe.failure_threshold
