"""Builds the plan of an injection: from pod, policy and facts to all changes of the pod, or the reason for none.

This is the entry point of injection. The same inputs give the same plan, and a pod that was injected gets no further
change.
"""

from collections.abc import Mapping

from railwright.fabric import names, views
from railwright.fabric.injection import (
    accelerators,
    apply,
    attachments,
    context,
    devices,
    environment,
    facts,
    keys,
    model,
    mounts,
    opt_in,
    preflight,
    record,
    roles,
    security,
    user_options,
)
from railwright.fabric.policy import model as policies

_ORDER: Mapping[type[model.Change], int] = {  # the pod first, then its containers
    model.SetAnnotation: 0,
    model.AddResource: 1,
    model.AddVolume: 2,
    model.AddMount: 2,
    model.AddInitContainer: 2,
    model.AddCapability: 3,
    model.SetPrivileged: 3,
    model.SetEnv: 4,
    model.UnsetEnv: 5,  # last, because it changes the indexes of the entries after it
}

Outcome = model.Injection | model.Refusal | model.NotOptedIn


def plan(pod: views.Pod, policy: policies.Policy, cluster: facts.Facts, display_name: str = "") -> Outcome:
    """Return the plan for a pod. Never raises because of the pod's content.

    `display_name` names the pod in a refusal. If it is empty, the pod's own name is used.
    """
    fabric = ""
    try:
        name = opt_in.find_fabric(pod, policy.document, cluster)
        if name is None:
            return model.NotOptedIn(keys.check_pod(pod.metadata))
        fabric = name
        record.check_size(pod)
        return _build_injection(context.build(pod, policy, cluster, name, user_options.read(pod)))
    except model.RefusedError as error:
        message = f"{display_name or 'Pod ' + title(pod, cluster.namespace)}: {error.message}"
        return model.Refusal(fabric, error.reason, message, _find_role(pod, policy))


def title(pod: views.Pod, namespace: str) -> str:
    """Return the name of a pod for messages. At admission a pod may have no name yet."""
    metadata = pod.metadata
    return f"{namespace}/{metadata.name or metadata.generate_name + '*'}"


def _find_role(pod: views.Pod, policy: policies.Policy) -> str:
    """Return the role name of a pod that is rejected, "" if its quantities are invalid."""
    try:
        accelerated = accelerators.find_containers(pod, policy.document.accelerators)
    except model.RefusedError:
        return ""
    return roles.role_of(pod, policy.document.roles, accelerated=bool(accelerated)).name


def _build_injection(ctx: context.InjectionContext) -> model.Injection:
    attachment_plan = attachments.attach(ctx)
    contributions = [
        attachment_plan.contribution,
        devices.request_devices(ctx, attachment_plan.selections),
        mounts.mount_volumes(ctx),
        security.grant(ctx),
        *environment.set_variables(ctx),
    ]
    contribution = model.merge(
        (
            *contributions,
            preflight.add_init_container(ctx, attachment_plan.selections, contributions),
            _explain_no_rails(ctx),
        )
    )
    record_changes, record_warnings = record.write(ctx, contribution)
    changes = (*sorted(contribution.changes, key=lambda change: _ORDER[type(change)]), *record_changes)
    return model.Injection(
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=tuple(ctx.container(index).name for index in ctx.targets) if ctx.role.rails else (),
        rails=tuple(rail.name for rail in ctx.rails),
        changes=changes,
        warnings=keys.check_pod(ctx.pod.metadata) + contribution.warnings + record_warnings,
        pod=apply.apply(ctx.pod, changes),
        targets=ctx.targets,
        has_rails=ctx.role.rails,
        resources=frozenset([rail.resource for rail in ctx.rails if rail.resource]),
    )


def _explain_no_rails(ctx: context.InjectionContext) -> model.Contribution:
    """Explain why a pod has no rails. Warn an author who selected containers for them."""
    if ctx.role.rails:
        return model.EMPTY
    user_value = ctx.pod.metadata.annotations.get(names.CONTAINERS)
    warnings = []
    if user_value is not None:
        warnings.append(
            f"annotation {names.CONTAINERS} {model.format_some([repr(user_value)])} has no effect: "
            f"{ctx.role.reason}; if a container is a rank, request an accelerator in it"
        )
    return model.Contribution(skipped={"rails": ctx.role.reason}, warnings=tuple(warnings))
