"""Builds the plan of an injection: from pod, policy and facts to all changes of the pod, or the reason for none.

This is the entry point of injection. The same inputs give the same plan, and a pod that was injected gets no further
change.
"""

from collections.abc import Mapping, Sequence

from railwright.fabric import views
from railwright.fabric.injection import (
    accelerators,
    applied_pod,
    context,
    facts,
    keys,
    mutators,
    opt_in,
    pod_changes,
    record,
    roles,
    user_options,
)
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering

_ORDER: Mapping[type[pod_changes.Change], int] = {  # the pod first, then its containers
    pod_changes.SetAnnotation: 0,
    pod_changes.SetNetworks: 0,
    pod_changes.AddResource: 1,
    pod_changes.RemoveResource: 1,
    pod_changes.SetClaim: 1,
    pod_changes.UseClaim: 1,
    pod_changes.AddVolume: 2,
    pod_changes.AddMount: 2,
    pod_changes.AddInitContainer: 2,
    pod_changes.AddCapability: 3,
    pod_changes.SetPrivileged: 3,
    pod_changes.SetEnv: 4,
    pod_changes.UnsetEnv: 5,  # last, because they change the indexes of the entries after them
    pod_changes.RemoveClaims: 5,
}

Outcome = pod_changes.Injection | pod_changes.Refusal | pod_changes.NotOptedIn


def plan(
    pod: views.Pod,
    policy: policies.Policy,
    cluster: facts.ClusterFacts,
    display_name: str = "",
    rows: Sequence[mutators.Row] = mutators.MUTATORS,
) -> Outcome:
    """Return the plan for a pod. Never raises because of the pod's content.

    `display_name` names the pod in a refusal. If it is empty, the pod's own name is used. `rows` are the mutators.
    """
    fabric = ""
    try:
        name = opt_in.find_fabric(pod, policy.document, cluster)
        if name is None:
            return pod_changes.NotOptedIn(rendering.describe_all(keys.check_pod(pod.metadata)))
        fabric = name
        record.check_size(pod)
        options = user_options.read(pod, [row.skip for row in rows if row.skip])
        ctx = context.build(pod, policy, cluster, name, options)
        return _build_injection(applied_pod.read(pod, cluster.namespace), ctx, rows)
    except pod_changes.RefusedError as error:
        message = f"{display_name or 'Pod ' + format_title(pod, cluster.namespace)}: {error.message}"
        return pod_changes.Refusal(fabric, error.reason, message, _find_role(pod, policy), error.message)


def format_title(pod: views.Pod, namespace: str) -> str:
    """Return the name of a pod for messages. At admission a pod may have no name yet."""
    metadata = pod.metadata
    return f"{namespace}/{metadata.name or metadata.generate_name + '*'}"


def _find_role(pod: views.Pod, policy: policies.Policy) -> str:
    """Return the role name of a pod that is rejected, "" if its quantities are invalid."""
    try:
        accelerated = accelerators.find_containers(pod, policy.document.accelerators)
    except pod_changes.RefusedError:
        return ""
    return roles.find_role(pod, policy.document.roles, accelerated=bool(accelerated)).name


def _build_injection(
    user_pod: applied_pod.AppliedPod, ctx: context.InjectionContext, rows: Sequence[mutators.Row]
) -> pod_changes.Injection:
    pod, contribution = _fold(user_pod, ctx, rows)
    record_changes, record_warnings = record.write(pod, ctx, contribution)
    pod = applied_pod.apply(pod, record_changes)
    return pod_changes.Injection(
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=tuple(pod.container(index).name for index in ctx.targets) if ctx.role.rails else (),
        rails=tuple(rail.name for rail in ctx.rails),
        changes=(*sorted(contribution.changes, key=lambda change: _ORDER[type(change)]), *record_changes),
        warnings=rendering.describe_all(keys.check_pod(user_pod.metadata) + contribution.warnings + record_warnings),
        pod=pod,
        networks=pod.networks,
        targets=ctx.targets,
        has_rails=ctx.role.rails,
        resources=frozenset([rail.resource for rail in ctx.rails if rail.resource]),
    )


def _fold(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, rows: Sequence[mutators.Row]
) -> tuple[applied_pod.AppliedPod, pod_changes.Contribution]:
    """Run the mutators, each on the pod that those before it made. Return the last pod and all contributions."""
    contributions = []
    for row in rows:
        contribution = row.mutate(pod, ctx)
        if contribution.changes:
            pod = applied_pod.apply(pod, contribution.changes)
        contributions.append(contribution)
    return pod, pod_changes.merge(contributions)
