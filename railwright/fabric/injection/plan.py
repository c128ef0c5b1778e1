"""Builds the plan of an injection: from pod, policy and facts to all changes of the pod, or the reason for none.

This is the entry point of injection. The same inputs give the same plan, and a pod that was injected gets no further
change.

A mutation of pods is a function of the signature `Mutator`, and a row in `MUTATORS`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from railwright.fabric import text, views
from railwright.fabric.injection import (
    accelerators,
    applied_pod,
    attachments,
    claim_requests,
    context,
    devices,
    environment,
    explanations,
    facts,
    init_containers,
    keys,
    mounts,
    opt_in,
    pod_changes,
    pod_fields,
    record,
    roles,
)
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

Mutator = Callable[[applied_pod.AppliedPod, context.InjectionContext], pod_changes.Contribution]
"""A pure function from a pod to a contribution. Raises RefusedError to reject the pod."""


class Row(NamedTuple):
    """A mutator with the word by which an author leaves it out (annotation `skip`); "" if that is not possible."""

    skip: str
    mutate: Mutator


MUTATORS = (
    Row("", devices.check_capacity),
    Row("pod", pod_fields.set_fields),  # networks and variables depend on the host network
    Row("", claim_requests.name_templates),  # the word `devices` leaves out these devices, too
    Row("networks", attachments.attach),
    Row("", attachments.attach_by_annotation),
    Row("devices", devices.request_devices),
    Row("", devices.request_resources),
    Row("", claim_requests.request_call),
    Row("mounts", mounts.mount_volumes),
    Row("security", pod_fields.grant),
    Row("", environment.set_ucx_devices),
    Row("", environment.extend_library_path),
    Row("env", environment.set_variables),  # removes entries: a mutator of env goes before it
    Row("", environment.source_script),
    Row("sidecars", init_containers.add_sidecars),
    Row("preflight", init_containers.add_preflight),
    Row("", explanations.explain_missing_rails),
    Row("", explanations.warn_of_dropped_topology),
)


_COUNTED = {"mounts.": "mount", "env.": "variable"}  # beginnings of entries that a warning counts

Outcome = pod_changes.Injection | pod_changes.Refusal | pod_changes.NotOptedIn


def plan(
    pod: views.Pod,
    policy: policies.Policy,
    cluster: facts.ClusterFacts,
    display_name: str = "",
    rows: Sequence[Row] = MUTATORS,
) -> Outcome:
    """Return the plan for a pod, whatever the mode. Never raises because of the pod's content.

    `display_name` names the pod in a refusal. If it is empty, the pod's own name is used. `rows` are the mutators.
    """
    fabric = ""
    try:
        name = opt_in.find_fabric(pod, policy.document, cluster)
        if name is None:
            return pod_changes.NotOptedIn(rendering.describe_all(keys.check_pod(pod.metadata)))
        fabric = name
        record.check_size(pod)
        options = context.read_options(pod, [row.skip for row in rows if row.skip])
        ctx = context.build(pod, policy, cluster, name, options)
        return _build_injection(applied_pod.read(pod, cluster.namespace), ctx, rows)
    except reason.RefusedError as error:
        message = f"{display_name or 'Pod ' + format_title(pod, cluster.namespace)}: {error.message}"
        return pod_changes.Refusal(fabric, error.reason, message, _find_role(pod, policy), error.message)


def describe_unenforced(outcome: pod_changes.Injection | pod_changes.Refusal) -> tuple[rendering.Message, ...]:
    """Return the warnings of mode `warn`, in which the pod is admitted unchanged: what enforcing would do to it."""
    if isinstance(outcome, pod_changes.Refusal):
        would_reject = reason.make(
            AdmissionCode.WOULD_REJECT,
            fabric=outcome.fabric,
            rejection=outcome.reason,
            message=outcome.problem or outcome.message,
        )
        return (rendering.describe(would_reject),)
    entries = dict.fromkeys(change.entry for change in outcome.changes if change.entry)
    parts = [entry for entry in entries if not entry.startswith(tuple(_COUNTED))]
    for prefix, noun in _COUNTED.items():
        if count := sum(entry.startswith(prefix) for entry in entries):
            parts.append(text.format_count(count, noun))
    would_inject = reason.make(AdmissionCode.WOULD_INJECT, fabric=outcome.fabric, parts=tuple(parts))
    return (*rendering.describe_all([would_inject] if parts else []), *locate_unenforced(outcome.warnings))


def locate_unenforced(warnings: Sequence[rendering.Message]) -> tuple[rendering.Message, ...]:
    """Return the warnings about a pod as it would be."""
    return tuple([rendering.locate(warning, "if enforced") for warning in warnings])


def format_title(pod: views.Pod, namespace: str) -> str:
    """Return the name of a pod for messages. At admission a pod may have no name yet."""
    metadata = pod.metadata
    return f"{namespace}/{metadata.name or metadata.generate_name + '*'}"


def _find_role(pod: views.Pod, policy: policies.Policy) -> str:
    """Return the role name of a pod that is rejected, "" if its quantities are invalid."""
    try:
        accelerated = accelerators.find_containers(pod, policy.document.accelerators)
    except reason.RefusedError:
        return ""
    return roles.find_role(pod, policy.document.roles, accelerated=bool(accelerated)).name


def _build_injection(
    user_pod: applied_pod.AppliedPod, ctx: context.InjectionContext, rows: Sequence[Row]
) -> pod_changes.Injection:
    pod, contribution = _fold(user_pod, ctx, rows)
    record_changes, record_warnings = record.write(pod, ctx, contribution)
    pod = pod_changes.apply(pod, record_changes)
    return pod_changes.Injection(
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=tuple(pod.container(index).name for index in ctx.targets) if ctx.role.rails else (),
        rails=tuple(rail.name for rail in ctx.rails),
        changes=(*sorted(contribution.changes, key=lambda change: change.order), *record_changes),
        warnings=rendering.describe_all(keys.check_pod(user_pod.metadata) + contribution.warnings + record_warnings),
        pod=pod,
        networks=pod.networks,
        targets=ctx.targets,
        has_rails=ctx.role.rails,
        resources=frozenset([rail.resource for rail in ctx.rails if rail.resource]),
    )


def _fold(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, rows: Sequence[Row]
) -> tuple[applied_pod.AppliedPod, pod_changes.Contribution]:
    """Run the mutators, each on the pod that those before it made. Return the last pod and all contributions."""
    contributions = []
    for row in rows:
        contribution = row.mutate(pod, ctx)
        if contribution.changes:
            pod = pod_changes.apply(pod, contribution.changes)
        contributions.append(contribution)
    return pod, pod_changes.merge(contributions)
