"""Plans and adds the ResourceClaims of a pod whose rails come as claims. GPUs move from its requests into the claims.

A pod gets certain rails, which it or the policy names, or a number of rails. In the second case its claims ask for any
rails of the fabric, and kube-scheduler's allocator chooses free ones on each node. `webhook.claim_templates` writes the
ResourceClaimTemplates from the same plan, and a pod waits until they exist. Authors may add claims of their own. The
rules are in docs/interface.md 3.2.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

from railwright.fabric import names, text, views
from railwright.fabric.claims import claim_templates
from railwright.fabric.injection import accelerators, context, drafts, facts, opt_in
from railwright.fabric.policy import compiled, shortcomings
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode


def plan_claims(pod: views.Pod, ctx: context.InjectionContext) -> claim_templates.ClaimPlan | None:
    """Return the claims that a pod needs; None if it gets no rails by claims. `ctx` was built before any edit."""
    fabrics = ctx.policy.compile_once(compiled.list_claimed_fabrics)
    claimed = next((fabric for fabric in fabrics if fabric.name == ctx.fabric_name), None)
    if claimed is None or not ctx.rails:
        return None
    certain = len(ctx.rails) == len(claimed.rails) or not context.has_rail_count_only(pod, ctx.fabric)
    rails = ctx.selected.names if certain else len(ctx.rails)
    return claimed.plan_claims(rails, _count_accelerators(pod, ctx, claimed))


def replan_claims(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts
) -> claim_templates.ClaimPlan | None:
    """Return the claims that this policy plans for a pod admitted earlier; None if it gets no rails by claims.

    Raises RefusedError if the policy refuses the pod.
    """
    fabric = opt_in.find_fabric(pod, policy.document, cluster)
    if fabric is None:
        return None
    return plan_claims(pod, context.build_context(pod, policy, cluster, fabric, context.UserOptions()))


def _count_accelerators(pod: views.Pod, ctx: context.InjectionContext, claimed: claim_templates.ClaimedFabric) -> int:
    """Return the number of GPUs in the claims.

    Containers that use one claim share its devices, so a claim has GPUs only if one container uses it and no init
    container requests GPUs. Raises RefusedError for more GPUs than the claims of a pod can have.
    """
    if not claimed.accelerator_class:
        return 0
    accelerated = accelerators.find_accelerated_containers(pod, ctx.document.accelerators)
    if len(ctx.targets) != 1 or accelerated != ctx.targets:
        return 0
    target, resource = ctx.targets[0], claimed.accelerator_resource
    count = accelerators.count_by_container(pod, (resource,))[target]
    if count > claim_templates.MAX_ACCELERATORS:
        raise reasons.RefusedError(
            "quantity",
            f"container {pod.spec.containers[target].name} requests {count} {resource}, more than a pod can have on a "
            f"node of fabric {ctx.fabric_name}; request at most {claim_templates.MAX_ACCELERATORS}",
        )
    return 0 if _find_accelerated_init_container(pod, resource) is not None else count


def _find_accelerated_init_container(pod: views.Pod, resource: str) -> views.Container | None:
    """Return the first init container that requests GPUs, or None."""
    init_containers = pod.spec.init_containers or ()
    return next((init for init in init_containers if accelerators.read_amount(init, resource) > 0), None)


# --- the changes of the pod ---------------------------------------------------------------------------------

ENTRY = "claims"  # in the record, of all changes of this module


def add_claims(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add the claims, each by its template, to the pod and its target containers. They replace the GPU requests."""
    pod, claims = draft.pod, ctx.fabric.claims
    if claims is None or "devices" in ctx.options.skip or (plan := plan_claims(pod, ctx)) is None:
        return
    # other claims, such as those of an NVLink domain, are not for the rails
    if user_claim := next(
        (name for name, classes in _list_device_classes(pod, ctx) if claims.device_class in classes), ""
    ):
        message = (
            f"claim {text.join_fitting([user_claim])} of the pod names its author's own template for NICs of fabric "
            f"{ctx.fabric_name}, so railwright adds no claims"
        )
        draft.record_skip(ENTRY, reasons.Reason(AdmissionCode.OWN_CLAIM, message))
        return
    existing = {claim.name: claim for claim in claim_templates.list_railwright_claims(pod)}
    claim_names = claim_templates.name_claim_entries(len(plan.templates))
    _check_claims(pod, ctx, plan, [name for name in claim_names if name not in existing])
    gpu = ctx.document.accelerators[0]
    if claims.accelerator_class is not None:
        draft.warn(*_warn_of_unclaimed_gpus(pod, ctx, plan, gpu))
    if ctx.known.without_templates:
        templates = text.join_fitting(plan.templates)
        message = f"the webhook may not create ResourceClaimTemplate {templates}, so pods stay Pending"
        fix = f"the operator must {shortcomings.GRANT_CLAIMS}"
        draft.warn(reasons.Reason(AdmissionCode.CLAIM_TEMPLATE_NOT_WRITTEN, message, fix=fix))
    for name, template in zip(claim_names, plan.templates, strict=True):
        claim, entry = existing.get(name), {"name": name, "resourceClaimTemplateName": template}
        if claim is None:
            draft.spec.append("resourceClaims", entry, ENTRY)
        elif claim.template != template:
            draft.spec.replace("resourceClaims", claim.position, entry, ENTRY)
    for index, name in itertools.product(ctx.targets, claim_names):
        draft.edit_container(index).use_claim(name, ENTRY)
    if plan.accelerators and accelerators.mentions_resource(pod.spec.containers[ctx.targets[0]], gpu):
        draft.edit_container(ctx.targets[0]).remove_request(gpu, ENTRY)
    draft.add_entry(ENTRY)


def _check_claims(
    pod: drafts.EditedPod, ctx: context.InjectionContext, plan: claim_templates.ClaimPlan, new_names: Sequence[str]
) -> None:
    """Raise RefusedError if a pod with these claims would never start, or would get the devices of another template."""
    if pod.spec.node_name:
        raise reasons.RefusedError(
            "node-name",
            f"spec.nodeName is {text.quote(pod.spec.node_name)}: no scheduler allocates the claims of fabric "
            f"{ctx.fabric_name}, so the pod would never start; remove nodeName, and select the node by nodeSelector "
            "kubernetes.io/hostname",
        )
    namespace, known = ctx.known.namespace, ctx.known.claim_templates or {}
    if wrong := next((name for name in plan.templates if known.get((namespace, name)) is not None), ""):
        raise reasons.RefusedError(
            "name-taken",
            f"ResourceClaimTemplate {namespace}/{wrong} has another content than railwright writes under this name; "
            "delete it, then railwright writes it",
        )
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.name in new_names:
            raise reasons.RefusedError(
                "name-taken",
                f"spec.resourceClaims[{index}] has the name {text.quote(entry.name)}, which railwright gives to its "
                "own claim; rename it, also in resources.claims of the containers",
            )


def _warn_of_unclaimed_gpus(
    pod: drafts.EditedPod, ctx: context.InjectionContext, plan: claim_templates.ClaimPlan, gpu: str
) -> Iterator[reasons.Reason]:
    """Yield a warning if the pod's GPUs are not in the claims."""
    if plan.accelerators == sum(accelerators.count_by_container(pod, (gpu,))):
        return
    if (init := _find_accelerated_init_container(pod, gpu)) is not None:
        cause, fix = f"init container {init.name} requests GPUs of its own", "request none there"
    else:
        cause = "containers that use one claim share its devices"
        fix = f"request all GPUs in one container, and name no other in annotation {names.CONTAINERS}"
    message = f"{cause}, so the claims of fabric {ctx.fabric_name} have no GPUs, and no GPU is paired with a NIC"
    yield reasons.Reason(AdmissionCode.GPUS_NOT_CLAIMED, message, fix=fix)


def _list_device_classes(pod: views.Pod, ctx: context.InjectionContext) -> Iterator[tuple[str, Collection[str]]]:
    """Yield the name of each claim of the author that names a known template, and the template's DeviceClasses."""
    templates = ctx.known.claim_templates or {}
    for entry in pod.spec.resource_claims or ():
        yield entry.name, templates.get((ctx.known.namespace, entry.resource_claim_template_name)) or ()


def request_managed_resource(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add the limit railwright.io/rails: "0" to a pod with claimed rails, so that schedulers call the extender."""
    if not has_claimed_rails(draft.pod, ctx):
        return
    if any(
        accelerators.mentions_resource(container, names.MANAGED_RESOURCE) for container in draft.pod.spec.containers
    ):
        return
    # kube-scheduler and Volcano call the extender only for pods that name a managed resource
    draft.edit_container(ctx.targets[0]).request_resources([(names.MANAGED_RESOURCE, 0, "")])


def has_claimed_rails(pod: views.Pod, ctx: context.InjectionContext) -> bool:
    """True if a target container uses a claim for rails, and no container requests rails as extended resources.

    Claims for NVLink channels of a ComputeDomain are not for rails. In an NVLink fabric whose rails do not come as
    claims, a template that the webhook may not read is taken for one of channels.
    """
    if not ctx.role.has_rails or not pod.spec.resource_claims:
        return False
    containers = pod.spec.containers
    channels = {name for name, classes in _list_device_classes(pod, ctx) if names.CHANNEL_CLASS in classes}
    if ctx.known.without_templates and ctx.fabric.nvlink_segment is not None and ctx.fabric.claims is None:
        channels = {entry.name for entry in pod.spec.resource_claims if entry.resource_claim_template_name}
    return any(
        claim.name not in channels
        for index in ctx.targets
        if (resources := containers[index].resources) is not None
        for claim in resources.claims
    ) and not any(
        accelerators.read_amount(container, resource) for resource in ctx.selected.resources for container in containers
    )
