"""Plans an injection: all changes of a pod by the policy and the cluster, or the reason for none.

This is the entry point of injection. The same inputs give the same plan, and a pod that was injected gets no further
change.

A change of pods is made by a function of the type `Mutator`, with a rule in `MUTATORS`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, names, text, version, views
from railwright.fabric.injection import (
    accelerators,
    attachments,
    claim_requests,
    context,
    devices,
    drafts,
    environment,
    facts,
    init_containers,
    keys,
    mounts,
    opt_in,
    pod_fields,
)
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks


class Injection(msgspec.Struct, frozen=True):
    """The outcome for a pod that opted in. It has no changes if the pod already has all settings."""

    fabric: str
    role: str
    containers: tuple[str, ...]
    rails: tuple[str, ...]
    changes: tuple[drafts.Change, ...]
    warnings: tuple[reason.Reason, ...]
    pod: views.Pod  # after all changes
    networks: tuple[network_selection.Selection, ...]  # of its networks annotation
    targets: tuple[int, ...]  # indexes of the containers that the fabric is for, also of a pod without rails
    has_rails: bool  # False for a role without rails
    resources: frozenset[str]  # of the rails
    planned: frozenset[tuple[str, str | None]] = (
        frozenset()
    )  # names and values of variables that the policy gives ranks


class Refusal(msgspec.Struct, frozen=True):
    """The outcome for a pod that is rejected. The message names object, key, value, cause and fix."""

    fabric: str  # "" if the fabric is unknown
    reason: str  # one of rejections.RejectionCode
    message: str
    problem: str = ""  # the message without the pod's name; "" if the message names no pod


class NotOptedIn(msgspec.Struct, frozen=True):
    """The outcome for a pod that did not opt in. It is not changed. `warnings` name keys that have no effect."""

    warnings: tuple[reason.Reason, ...] = ()


Outcome = Injection | Refusal | NotOptedIn


# --- the mutators -----------------------------------------------------------------------------------------

Mutator = Callable[[drafts.Draft, context.InjectionContext], None]
"""Edits the draft of a pod that the mutators before it have edited. Raises RefusedError to reject the pod."""


class MutatorRule(NamedTuple):
    """A mutator, the pods that it edits, and the word of annotation `skip` that turns it off ("": there is none)."""

    skip: str
    mutate: Mutator
    is_for: Callable[[policies.Fabric], object] = lambda _: True  # of the pod
    needs_rails: bool = False  # True: not for roles without rails
    reads_skip: bool = False  # True: it has something to do for a pod that leaves it out


def record_missing_rails(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Record why a pod has no rails, or fewer than its fabric. Warn if it has none and probably needs some.

    A launcher needs no rails, nor does a template whose workload has the accelerators in other templates. A container
    that requests a device unknown to the policy is probably a rank, so the warning names it.
    """
    if ctx.role.has_rails:
        rails, all_rails = len(ctx.rails), len(ctx.fabric.rails)
        if rails < all_rails and context.has_default_rail_count(draft.pod, ctx.fabric):
            share = reason.Reason(
                AdmissionCode.RAILS_IN_PROPORTION,
                f"the pod gets {rails} of {all_rails} rails, in proportion to its accelerators, because its namespace "
                "opts it in: all rails would take all devices of a node",
                fix=f"for another number, set annotation {names.RAILS}",
            )
            draft.record_skip("rails", share)
        return
    listed = text.join_fitting(ctx.document.accelerators)
    problem = f"no container requests {listed}"
    fix = f"if a container is a rank nevertheless, name it in annotation {names.CONTAINERS}"
    if (likely := _find_likely_rank(draft, ctx)) is not None:
        container, resource = likely
        problem = (
            f"container {container} requests {resource}, which `accelerators` of the policy does not have ({listed})"
        )
        fix = f"let the operator add the resource, or name the container in annotation {names.CONTAINERS}"
    cause = reason.Reason(AdmissionCode.NO_ACCELERATOR, f"{problem}, so the pod gets no rails", fix)
    is_expected = ctx.role.name != frameworks.EXCLUDED or ctx.known.job_accelerated
    draft.record_skip("rails", cause)
    if likely is not None or not is_expected:
        draft.warn(cause)


def _find_likely_rank(draft: drafts.Draft, ctx: context.InjectionContext) -> tuple[str, str] | None:
    """Return the container with the largest request of an unknown device, which is probably a rank, and the device."""
    rails = {rail.resource for fabric in ctx.document.fabrics.values() for rail in fabric.rails}
    pools = {pool for pool in (ctx.known.networks or {}).values() if pool}
    known_resources = {*rails, *pools, names.MANAGED_RESOURCE}
    amounts = [
        (accelerators.read_amount(container, resource), container.name, resource)
        for container in draft.pod.spec.containers
        for resource in sorted(accelerators.list_requested_resources(container) - known_resources)
    ]
    most = max(amounts, key=lambda amount: amount[0], default=None)
    return most[1:] if most is not None else None


MUTATORS = (
    MutatorRule("", pod_fields.set_scheduler, lambda fabric: fabric.placement.scheduler_name),
    # networks and variables depend on the host network
    MutatorRule("", pod_fields.set_host_network, lambda fabric: fabric.host_network, needs_rails=True),
    # the word `devices` leaves out these devices, too
    MutatorRule("", claim_requests.add_claims, lambda fabric: fabric.claims),
    MutatorRule("networks", attachments.attach_networks, reads_skip=True),
    MutatorRule("devices", devices.request_devices, needs_rails=True),
    MutatorRule("", devices.request_resources, lambda fabric: fabric.resources, needs_rails=True),
    MutatorRule("", claim_requests.request_managed_resource),
    MutatorRule("mounts", mounts.mount_volumes, lambda fabric: fabric.mounts != policies.Mounts(), needs_rails=True),
    MutatorRule(
        "security", pod_fields.set_privileges, lambda fabric: fabric.security != policies.Security(), needs_rails=True
    ),
    MutatorRule("", environment.extend_library_path, lambda fabric: fabric.library_path, needs_rails=True),
    MutatorRule("env", environment.set_variables, reads_skip=True),
    MutatorRule("", environment.source_script, lambda fabric: fabric.source_script, needs_rails=True),
    MutatorRule("preflight", init_containers.add_preflight, needs_rails=True),
    MutatorRule("", record_missing_rails),
)


_COUNTED_PREFIXES = {"mounts.": "mount", "env.": "variable"}  # beginnings of entries that a warning counts


def compile_mutators(document: policies.PolicyDocument) -> Mapping[tuple[str, bool], tuple[MutatorRule, ...]]:
    """Return the mutators for pods by (name of their fabric, whether they have rails)."""
    return {
        (name, rails): tuple([rule for rule in MUTATORS if rule.is_for(fabric) and (rails or not rule.needs_rails)])
        for name, fabric in document.fabrics.items()
        for rails in (True, False)
    }


def plan_pod(
    pod: views.Pod,
    policy: policies.Policy,
    cluster: facts.ClusterFacts,
    display_name: str = "",
    written: views.Pod | None = None,
) -> Outcome:
    """Return the plan for a pod, whatever the mode of the policy. Never raises because of the pod's content.

    `display_name` names the pod in a refusal. If it is empty, the pod's own name is used. `written` is the pod template
    to which the changes apply, if the pod is that of a template.
    """
    fabric = ""
    try:
        name = opt_in.find_fabric(pod, policy.document, cluster)
        if name is None:
            return NotOptedIn(keys.check_pod(pod.metadata))
        fabric = name
        _check_annotations_size(pod)
        options = context.read_options(pod, [rule.skip for rule in MUTATORS if rule.skip])
        ctx = context.build_context(pod, policy, cluster, name, options)
        draft = drafts.Draft(drafts.read_pod(pod, cluster.namespace), written)
        for rule in policy.compile_once(compile_mutators)[name, ctx.role.has_rails]:
            if rule.skip in options.skip and not rule.reads_skip:
                draft.record_skip(rule.skip, context.SKIPPED)
            else:
                rule.mutate(draft, ctx)
        _write_record(draft, ctx)
    except reason.RefusedError as error:
        message = f"{display_name or 'Pod ' + format_title(pod, cluster.namespace)}: {error.message}"
        return Refusal(fabric, error.reason, message, error.message)
    return Injection(
        fabric=name,
        role=ctx.role.name,
        containers=ctx.container_names,
        rails=ctx.selected.names,
        changes=tuple(draft.changes),
        warnings=(*keys.check_pod(pod.metadata), *draft.warnings),
        pod=draft.pod,
        networks=draft.pod.networks,
        targets=ctx.targets,
        has_rails=ctx.role.has_rails,
        resources=frozenset([rail.resource for rail in ctx.rails if rail.resource]),
        planned=draft.settings.planned,
    )


def describe_unenforced(outcome: Injection | Refusal) -> tuple[reason.Reason, ...]:
    """Return the warnings of mode `warn`: the changes or the rejection that mode `enforce` would cause."""
    if isinstance(outcome, Refusal):
        source = f"fabric {outcome.fabric}" if outcome.fabric else "the policy"
        message = (
            f"{source} is in mode warn; `mode: enforce` would reject this ({outcome.reason}): "
            f"{outcome.problem or outcome.message}"
        )
        return (reason.Reason(AdmissionCode.WOULD_REJECT, message),)
    entries = dict.fromkeys(change.entry for change in outcome.changes if change.entry)
    parts = [entry for entry in entries if not entry.startswith(tuple(_COUNTED_PREFIXES))]
    for prefix, noun in _COUNTED_PREFIXES.items():
        if count := sum(entry.startswith(prefix) for entry in entries):
            parts.append(text.format_count(count, noun))
    warnings = prefix_if_enforced(outcome.warnings)
    if not parts:
        return warnings
    would_add = f"with `mode: enforce` fabric {outcome.fabric} would add {', '.join(parts)}"
    message = f"the policy is in mode warn, so nothing is changed; {would_add}"
    return (reason.Reason(AdmissionCode.WOULD_INJECT, message), *warnings)


def prefix_if_enforced(warnings: Sequence[reason.Reason]) -> tuple[reason.Reason, ...]:
    """Return the warnings of a policy in mode `warn`: `if enforced` stands before their messages."""
    return tuple([warning.prefix_with("if enforced") for warning in warnings])


def format_title(pod: views.Pod, namespace: str) -> str:
    """Return the name of a pod for messages. At admission a pod may have no name yet."""
    metadata = pod.metadata
    return f"{namespace}/{metadata.name or metadata.generate_name + '*'}"


# --- the record (docs/interface.md 5), and the size of the annotations (1.5) ---------------------------------
# The record depends only on the injected pod, so that planning it again gives the same text. A value that a user wrote
# there is ignored.

_OWN_ANNOTATIONS = (names.INJECTION, names.NCCL_CONF)  # a user's values are replaced
MAX_ANNOTATIONS = 256 * 1024  # bytes of all keys and values (apimachinery TotalAnnotationSizeLimitB)


def _check_annotations_size(pod: views.Pod) -> None:
    """Raise RefusedError if the user's annotations already exceed the limit, before they are parsed."""
    size = _count_bytes({key: value for key, value in pod.metadata.annotations.items() if key not in _OWN_ANNOTATIONS})
    if size > MAX_ANNOTATIONS:
        raise reason.RefusedError(
            "too-large", f"annotations are {size} bytes; the limit is {MAX_ANNOTATIONS}: remove some of them"
        )


def _write_record(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Write the injection record, after all other edits. Raises RefusedError if the other annotations do not fit."""
    record = intent.Record(
        version=version.VERSION,
        policy=ctx.policy.digest,
        fabric=ctx.fabric_name,
        role=ctx.role.name,
        containers=ctx.container_names,
        rails=ctx.selected.names,
        added=tuple(draft.entries),
        user_values=draft.user_values,
        skipped=draft.skipped,
        reasons={entry: code for entry, code in draft.entries.items() if code is not None},
    )
    value, annotations = msgspec.json.encode(record).decode(), draft.pod.metadata.annotations
    size = _count_bytes({key: own for key, own in annotations.items() if key != names.INJECTION})
    if size > MAX_ANNOTATIONS and draft.annotation_keys:
        raise reason.RefusedError(
            "too-large",
            f"annotations would be {size} bytes with {', '.join(draft.annotation_keys)}; the limit is "
            f"{MAX_ANNOTATIONS}: remove some of the pod's own",
        )
    if size + _count_bytes({names.INJECTION: value}) > MAX_ANNOTATIONS:
        full = reason.Reason(
            AdmissionCode.ANNOTATIONS_FULL,
            f"annotation {names.INJECTION} is left out: the pod's annotations are at their limit of 256 KiB",
            fix="shorten some of them",
        )
        draft.warn(full)
        value = ""  # removes a record that a user may have forged
    if annotations.get(names.INJECTION, "") != value:
        draft.set_annotation(names.INJECTION, value, "")


def _count_bytes(annotations: Mapping[str, str]) -> int:
    """Return the bytes of keys and values in UTF-8, as the API server counts them against MAX_ANNOTATIONS."""
    return len("".join([*annotations, *annotations.values()]).encode(errors="replace"))
