"""What a pod template gets: of the plan its pods would get, the devices and mounts.

Owns that part, so that quotas, queues and PodGroups count the devices. The pod gets the rest at its own admission, from
the same plan: so nothing is added twice. Knows no review and no patch.
"""

import msgspec

from railwright.fabric import names, views
from railwright.fabric.injection import facts, model, opt_in, plan, templates
from railwright.fabric.policy import model as policies

# Refusals that may be none any more when the pod comes: the network is made after the workload, as package managers
# do with custom resources, or the namespace is not heard of yet.
_MAY_PASS = frozenset({"missing-network", "namespace-unknown"})


class Planned(msgspec.Struct, frozen=True):
    """What a template gets. `injection` is its pod's plan, None where that did not opt in or has to wait."""

    template: templates.Template
    changes: tuple[model.AnyChange, ...]
    warnings: tuple[str, ...] = ()
    injection: model.Injection | None = None


def plan_for(
    template: templates.Template, policy: policies.Policy, known: facts.Facts, called: str
) -> Planned | model.Refusal:
    """What the template gets; `called` names its workload in messages. A refusal is one its pods would get too."""
    pod = future(template)
    if names.VOLCANO_TASK in pod.metadata.labels:
        accelerated = not template.requested.isdisjoint(policy.document.accelerators)
        known = msgspec.structs.replace(known, job_accelerated=accelerated)
    outcome = plan.plan(pod, policy, known, f"{called}: {template.title}")
    match outcome:
        case model.NotOptedIn(warnings=warnings):
            return Planned(template, copied(template), tuple(f"{template.title}: {each}" for each in warnings))
        case model.Refusal(reason=reason, message=message) if reason in _MAY_PASS:
            return Planned(template, copied(template), (f"{message}; its pods are refused before that",))
        case model.Refusal(reason=opt_in.UNKNOWN_FABRIC) if template.inherited == template.label:
            message = outcome.message.replace(
                f"{called}: {template.title}: ", f"{called}: ", 1
            )  # the label is not there
            return msgspec.structs.replace(outcome, message=message)
        case model.Refusal():
            return outcome
        case model.Injection():
            changes = copied(template) + tuple(change for change in outcome.changes if _of_template(change))
            return Planned(template, changes, tuple(f"{template.title}: {each}" for each in outcome.warnings), outcome)


def copied(template: templates.Template) -> tuple[model.SetLabel, ...]:
    """The change that gives the template the label it inherits (ruling 3); its own wins. Needs no policy."""
    if template.inherited is None or names.FABRIC in template.pod.metadata.labels:
        return ()
    reason = "the label of the workload counts for all its templates"
    return (model.SetLabel(entry="", reason=reason, key=names.FABRIC, value=template.inherited),)


def future(template: templates.Template) -> views.Pod:
    """The pod that will come of the template, as far as its plan reads it."""
    pod = template.pod
    labels = {**pod.metadata.labels, **template.added.labels}
    if template.label is not None:
        labels[names.FABRIC] = template.label
    metadata = msgspec.structs.replace(pod.metadata, labels_or_none=labels)
    added = template.added
    if not added.env and not added.commands:
        return msgspec.structs.replace(pod, metadata=metadata)
    more = [views.EnvVar(name=name, value="") for name in added.env]
    containers = [
        msgspec.structs.replace(
            each,
            env_or_none=[*each.env, *more] if more else each.env_or_none,
            command=[*added.commands[each.name]] if each.name in added.commands else each.command,
        )
        for each in pod.spec.containers
    ]
    spec = msgspec.structs.replace(pod.spec, containers_or_none=containers)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def _of_template(change: model.AnyChange) -> bool:
    """Devices and mounts of the fabric (items 2 and 3): what quotas and schedulers count."""
    if isinstance(change, model.AddResource):
        return change.entry == "devices"
    return isinstance(change, model.AddVolume | model.AddMount) and change.entry.startswith("mounts.")
