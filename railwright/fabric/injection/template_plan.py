"""Plans the changes of a pod template: the devices and mounts of the plan that its pods would get.

Templates get these so that quotas, queues and PodGroups count the devices. The pod gets the rest at its own admission
from the same plan, so nothing is added twice (docs/interface.md 3).
"""

from collections.abc import Iterable

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import claim_requests, facts, opt_in, plan, pod_changes, templates
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import AdmissionCode

# Refusals that may not apply when the pod is created: package managers create custom resources such as networks after
# the workload, and a new namespace may not be observed yet.
_TEMPORARY = frozenset({"missing-network", "namespace-unknown"})


class TemplatePlan(msgspec.Struct, frozen=True):
    """The plan of a template.

    `injection` is its pod's plan, None if the pod did not opt in, or its plan is deferred or would be a rejection.
    """

    template: templates.Template
    changes: tuple[pod_changes.Change, ...]
    warnings: tuple[rendering.Message, ...] = ()
    injection: pod_changes.Injection | None = None
    is_audited: bool = False  # in audit mode the template is not changed


def plan_template(
    template: templates.Template, policy: policies.Policy, cluster: facts.ClusterFacts, workload_name: str
) -> TemplatePlan | pod_changes.Refusal:
    """Return the plan of the template, or the refusal that its pods would get. `workload_name` is used in messages."""
    pod = build_pod(template)
    cluster = msgspec.structs.replace(
        cluster, job_accelerated=template.is_job_accelerated(policy.document.accelerators)
    )
    outcome = plan.plan(pod, policy, cluster, f"{workload_name}: {template.title}")
    match outcome:
        case pod_changes.NotOptedIn(warnings=warnings):
            return TemplatePlan(template, copy_label(template), locate(template, warnings))
        case pod_changes.Audit():
            return TemplatePlan(template, (), locate(template, outcome.warnings), outcome.injection, is_audited=True)
        case pod_changes.Refusal(reason=reason, message=message) if reason in _TEMPORARY:
            rejected = rendering.describe(reasons.make(AdmissionCode.PODS_REJECTED, rejection=reason, message=message))
            return TemplatePlan(template, copy_label(template), (rejected,))
        case pod_changes.Refusal(reason=opt_in.UNKNOWN_FABRIC) if template.inherited == template.label:
            # The label is on the workload, so the message must not name the template.
            message = outcome.message.replace(f"{workload_name}: {template.title}: ", f"{workload_name}: ", 1)
            return msgspec.structs.replace(outcome, message=message)
        case pod_changes.Refusal():
            return outcome
        case pod_changes.Injection():
            changes = copy_label(template) + tuple(change for change in outcome.changes if _belongs_to_template(change))
            return TemplatePlan(template, changes, locate(template, outcome.warnings), outcome)


def locate(template: templates.Template, warnings: Iterable[rendering.Message]) -> tuple[rendering.Message, ...]:
    """Return the warnings with the path of the template before the text."""
    return tuple([rendering.locate(warning, template.title) for warning in warnings])


def copy_label(template: templates.Template) -> tuple[pod_changes.SetLabel, ...]:
    """Return the change that copies the inherited label into the template, unless it has its own. Needs no policy."""
    if template.inherited is None or names.FABRIC in template.pod.metadata.labels:
        return ()
    reason = "the label of the workload applies to all its pod templates"
    return (pod_changes.SetLabel(entry="", reason=reason, key=names.FABRIC, value=template.inherited),)


def build_pod(template: templates.Template) -> views.Pod:
    """Return the pod that the controller will create from the template, with the fields that its plan reads."""
    pod = template.pod
    labels = {**pod.metadata.labels, **template.added.labels}
    if template.label is not None:
        labels[names.FABRIC] = template.label
    metadata = msgspec.structs.replace(pod.metadata, labels_or_none=labels)
    added = template.added
    if not added.env and not added.commands and not added.volumes:
        return msgspec.structs.replace(pod, metadata=metadata)
    variables = [views.EnvVar(name=name, value="") for name in added.env]
    mounts = [
        views.VolumeMount(name=volume.name, mount_path=volume.mount_path)
        for volume in added.volumes
        if volume.mount_path
    ]
    containers = [
        msgspec.structs.replace(
            container,
            env_or_none=[*container.env, *variables] if variables else container.env_or_none,
            command=[*added.commands[container.name]] if container.name in added.commands else container.command,
            volume_mounts_or_none=[*container.volume_mounts, *mounts] if mounts else container.volume_mounts_or_none,
        )
        for container in pod.spec.containers
    ]
    claims = {volume.name: views.Volume(name=volume.name) for volume in added.volumes}
    volumes = [volume for volume in pod.spec.volumes if volume.name not in claims]
    spec = msgspec.structs.replace(
        pod.spec,
        containers_or_none=containers,
        volumes_or_none=[*volumes, *claims.values()] if claims else pod.spec.volumes_or_none,
    )
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _belongs_to_template(change: pod_changes.Change) -> bool:
    """True for devices, claims and mounts, which quotas and schedulers count, and the mark of a pod without rails."""
    if change.entry == claim_requests.ENTRY:
        return True
    if isinstance(change, pod_changes.AddResource):
        return change.entry == "devices"
    if isinstance(change, pod_changes.SetAnnotation):
        return change.key == names.RAILS
    return isinstance(change, pod_changes.AddVolume | pod_changes.AddMount) and change.entry.startswith("mounts.")
