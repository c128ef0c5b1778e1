"""Names the claim templates of a pod whose rails come as claims, and takes its GPUs out of the requests.

It writes no template, so that admission has no side effect. A pod waits until the templates exist, and
`webhook.claim_templates` writes them. The rules are in docs/interface.md 3.2.
"""

from collections.abc import Collection, Iterator

from railwright.fabric import names, text, views
from railwright.fabric.claims import objects, own_claims
from railwright.fabric.injection import accelerators, applied_pod, claim_plan, context, pod_changes
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rejections
from railwright.fabric.reasons.codes import AdmissionCode

ENTRY = "claims"  # in the record, of all changes of this module


def name_templates(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Name the templates of the pod's claims. Its containers use the claims in place of the GPUs they request."""
    plan = claim_plan.build(pod, ctx) if "devices" not in ctx.options.skip else None
    if plan is None:
        return _return_gpus(pod, ctx)
    if user_claim := _find_user_claim(pod, ctx):
        skipped = reasons.make(AdmissionCode.OWN_CLAIM, claim=user_claim, fabric=ctx.fabric_name)
        return pod_changes.Contribution(skipped={ENTRY: skipped})
    _check_node(pod, ctx)
    is_complete = claim_plan.is_complete(pod, ctx, plan)
    warning = reasons.make(
        AdmissionCode.GPUS_NOT_CLAIMED, fabric=ctx.fabric_name, init_container=_find_unfit_init_container(pod, ctx)
    )
    return pod_changes.Contribution(
        changes=(
            *_set_claims(pod, ctx, plan),
            *_use_claims(pod, ctx, plan),
            *_remove_gpus(pod, ctx, plan),
        ),
        entries=(ENTRY,),
        warnings=() if is_complete else (warning,),
    )


def _check_node(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> None:
    """Raise RefusedError for a pod that names its node: a scheduler allocates claims, and none sees such a pod."""
    if pod.spec.node_name:
        raise rejections.RefusedError(
            "node-name",
            f"spec.nodeName is {text.quote(pod.spec.node_name)}: no scheduler allocates the claims of fabric "
            f"{ctx.fabric_name}, so the pod would never start; remove nodeName, and select the node by nodeSelector "
            "kubernetes.io/hostname",
        )


def _find_unfit_init_container(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> str:
    """Return the name of an init container that keeps the GPUs out of the claims, "" if none does."""
    gpu = ctx.document.accelerators[0]
    counts = accelerators.count_in_containers(pod, (gpu,))
    count = max(counts[index] for index in ctx.targets)
    init = claim_plan.find_unfit_init_container(pod, gpu, count)
    return init.name if init is not None else ""


def _find_user_claim(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> str:
    """Return the name of a claim that the author wrote for NICs of the fabric. Return "" if the pod has none.

    Other claims, such as those of an NVLink domain, are not for the rails.
    """
    templates = ctx.known.claim_templates or {}
    claims = ctx.fabric.claims
    for entry in pod.spec.resource_claims or ():
        classes = templates.get((ctx.known.namespace, entry.resource_claim_template_name))
        if claims is not None and classes is not None and claims.device_class in classes:
            return entry.name
    return ""


def _set_claims(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: claim_plan.ClaimPlan
) -> Iterator[pod_changes.SetClaim | pod_changes.RemoveClaims]:
    existing = {claim.name: claim for claim in own_claims.list_claims(pod)}
    claim_names = own_claims.name_claims(len(plan.names))
    _check_names(pod, claim_names, existing)
    reason = (
        f"claims of {text.format_count(len(plan.rails), 'rail')} of fabric {ctx.fabric_name} and "
        f"{text.format_count(plan.accelerators, 'GPU')}"
    )
    for name, template in zip(claim_names, plan.names, strict=True):
        claim = existing.get(name)
        if claim is None or claim.template != template:
            index = claim.position if claim is not None else None
            yield pod_changes.SetClaim(entry=ENTRY, reason=reason, name=name, template=template, index=index)
    if obsolete := tuple(name for name in existing if name not in claim_names):
        yield pod_changes.RemoveClaims(entry=ENTRY, reason="the policy needs fewer claims now", claims=obsolete)


def _check_names(pod: applied_pod.AppliedPod, claim_names: Collection[str], existing: Collection[str]) -> None:
    """Raise RefusedError if the author gave a claim a name that railwright needs: names are unique in a pod."""
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.name in claim_names and entry.name not in existing:
            raise rejections.RefusedError(
                "claim",
                f"spec.resourceClaims[{index}] has the name {text.quote(entry.name)}, which railwright gives to its "
                "own claim; rename it, also in resources.claims of the containers",
            )


def _use_claims(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: claim_plan.ClaimPlan
) -> Iterator[pod_changes.UseClaim]:
    gpu = ctx.document.accelerators[0]
    init_containers = claim_plan.list_init_containers(pod, gpu) if plan.accelerators else ()
    for init, index in [(False, index) for index in ctx.targets] + [(True, index) for index in init_containers]:
        resources = pod.spec.get_container(index, init=init).resources
        used = {claim.name for claim in resources.claims} if resources is not None else set()
        for name in own_claims.name_claims(len(plan.names)):
            if name not in used:
                reason = f"the container uses the devices of fabric {ctx.fabric_name}"
                yield pod_changes.UseClaim(entry=ENTRY, reason=reason, container=index, claim=name, init=init)


def _return_gpus(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Request the GPUs again that were in claims of the pod's template, because nobody will write these claims."""
    claims = tuple(claim.name for claim in own_claims.list_claims(pod))
    if not claims:
        return pod_changes.EMPTY
    gpu = ctx.document.accelerators[0]
    reason = f"fabric {ctx.fabric_name} gives the pod no claims"
    init_containers = [
        (True, index, init)
        for index, init in enumerate(pod.spec.init_containers or ())
        if init.name != names.PREFLIGHT_CONTAINER
    ]
    entries = [*((False, index, container) for index, container in enumerate(pod.spec.containers)), *init_containers]
    counts = own_claims.count_accelerators(pod, [container for _, _, container in entries])
    requests = [
        pod_changes.AddResource(entry=ENTRY, reason=reason, container=index, resource=gpu, quantity=count, init=init)
        for (init, index, container), count in zip(entries, counts, strict=True)
        if count and not accelerators.mentions(container, gpu)
    ]
    removal = pod_changes.RemoveClaims(entry=ENTRY, reason=reason, claims=claims)
    return pod_changes.Contribution(changes=(*requests, removal))


def _remove_gpus(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: claim_plan.ClaimPlan
) -> Iterator[pod_changes.RemoveResource]:
    """Remove the GPUs that are in the claims. Init containers, which run before, use the same."""
    target, gpu = ctx.targets[0], ctx.document.accelerators[0]
    if not plan.accelerators:
        return
    reason = f"the claims have {text.format_count(plan.accelerators, 'GPU')}"
    if accelerators.mentions(pod.container(target), gpu):
        yield pod_changes.RemoveResource(entry=ENTRY, reason=reason, container=target, resource=gpu)
    for index in claim_plan.list_init_containers(pod, gpu):
        yield pod_changes.RemoveResource(entry=ENTRY, reason=reason, container=index, resource=gpu, init=True)


def request_call(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the limit that makes the schedulers call the extender.

    They call it for pods that name a managed resource. A pod with claims alone names none, so it gets a limit of "0".
    """
    if not ctx.role.rails or not has_claims_alone(pod, ctx):
        return pod_changes.EMPTY
    if any(accelerators.mentions(container, names.MANAGED_RESOURCE) for container in pod.spec.containers):
        return pod_changes.EMPTY
    reason = "kube-scheduler and Volcano call the extender only for pods that name a managed resource"
    change = pod_changes.AddResource(
        entry="", reason=reason, container=ctx.targets[0], resource=names.MANAGED_RESOURCE, quantity=0
    )
    return pod_changes.Contribution(changes=(change,))


def has_claimed_rails(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if the pod's rails come as claims, or may do so on some nodes."""
    if not ctx.role.rails:
        return False
    resources, extended = ctx.selected.resources, ctx.known.extended
    return (
        (bool(extended) and not resources.isdisjoint(extended or ()))
        or any(resource.startswith(objects.IMPLICIT_RESOURCE_PREFIX) for resource in resources)
        or has_claims_alone(pod, ctx)
    )


def has_claims_alone(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if target containers use claims, and no container requests the rails of the pod as extended resources."""
    containers = pod.spec.containers
    return any(accelerators.uses_claims(containers[index]) for index in ctx.targets) and not any(
        accelerators.read_amount(container, resource) for resource in ctx.selected.resources for container in containers
    )
