"""Plans the claims of a pod whose rails come as claims, names their templates, and takes its GPUs out of the requests.

A pod may get certain rails, or a number of them. A number is that of any rails for a pod on its own. For a gang it is
one set for all pods, which is chosen when its template is written, by what is free then. Admission writes no template,
so that it has no side effect: a pod waits until the templates exist, and `webhook.claim_templates` writes them from the
same plan. A pod may also have claims of its own, or request extended resources that a DeviceClass maps; kube-scheduler
makes a claim of these. The rules are in docs/interface.md 3.2.
"""

import enum
from collections.abc import Collection, Iterator, Sequence

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.claims import claim_templates, drivers, objects, selectors
from railwright.fabric.injection import accelerators, applied_pod, context, pod_changes
from railwright.fabric.policy import claimed_rails, compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import membership

_REPLICAS = frozenset({"ReplicaSet", "DaemonSet"})  # their pods are copies of one server, not ranks of one job
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Choice(enum.Enum):
    """Says who chooses the rails of a pod."""

    POD = enum.auto()  # the pod or the policy names them
    GANG = enum.auto()  # one set for all pods of its gang
    SCHEDULER = enum.auto()  # any rails, on each node those that are free


class ClaimPlan(msgspec.Struct, frozen=True):
    """The claims of a pod. `rails` are positions in the fabric; if others choose them, only their number counts."""

    fabric: str
    choice: Choice
    rails: tuple[int, ...]
    accelerators: int
    names: tuple[str, ...]  # of the templates
    gang: str = ""


class ClaimedFabric(msgspec.Struct, frozen=True):
    """A fabric whose rails come as claims, with what its templates are made of."""

    name: str
    fabric: policies.Fabric
    claims: claimed_rails.CompiledClaims
    hardware: claim_templates.Hardware
    identity: bytes  # equal for equal templates

    @property
    def rails(self) -> Sequence[claimed_rails.ClaimedRail]:
        """Return the rails in the fabric's order."""
        return tuple(self.claims.rails.values())

    @property
    def gives_first_rails(self) -> bool:
        """True if a single pod that asks for a number of rails gets the first ones, because GPUs have bus IDs."""
        return any(rail.accelerators for rail in self.rails)


def compile_fabrics(document: policies.PolicyDocument) -> dict[str, ClaimedFabric]:
    """Return the fabrics of a policy whose rails come as claims, by name."""
    compiled_policy = compiled.compile_policy(document)
    return {
        name: _compile(name, fabric.fabric, fabric.claims)
        for name, fabric in compiled_policy.fabrics.items()
        if fabric.claims is not None
    }


def plan_claims(pod: views.Pod, ctx: context.InjectionContext) -> ClaimPlan | None:
    """Return the plan for a pod, None if it gets no rails by claims. `ctx` is that of the pod before any change."""
    claimed = ctx.policy.compile_once(compile_fabrics).get(ctx.fabric_name)
    if claimed is None or not ctx.rails:
        return None
    gang = find_gang(pod, ctx.known.namespace)
    choice = _find_choice(pod, claimed, len(ctx.rails), gang)
    order = list(claimed.claims.rails)
    positions = (
        tuple([order.index(rail.name) for rail in ctx.rails]) if choice is Choice.POD else tuple(range(len(ctx.rails)))
    )
    count = _count_accelerators(pod, ctx, claimed)
    gang = gang if choice is Choice.GANG else ""
    return ClaimPlan(
        fabric=ctx.fabric_name,
        choice=choice,
        rails=positions,
        accelerators=count,
        names=claim_templates.build_names(
            ctx.fabric_name,
            count,
            len(positions),
            _encode((ctx.known.namespace, claimed.identity, choice.name, positions, count, gang)),
            claim_templates.count_claims(claimed.hardware, count, positions),
        ),
        gang=gang,
    )


def has_all_gpus(pod: views.Pod, ctx: context.InjectionContext, plan: ClaimPlan) -> bool:
    """True if the claims have all GPUs of the pod, or if the fabric's GPUs are extended resources."""
    claimed = ctx.policy.compile_once(compile_fabrics)[plan.fabric]
    requested = sum(accelerators.count_in_containers(pod, (claimed.claims.accelerator_resource,)))
    return not claimed.hardware.accelerator_class or plan.accelerators == requested


def build_specs(claimed: ClaimedFabric, plan: ClaimPlan, positions: Sequence[int]) -> tuple[claim_templates.Tree, ...]:
    """Return the devices of each template of a plan. `positions` are the rails, unless the scheduler chooses them."""
    if plan.choice is Choice.SCHEDULER:
        requests = _request_any_rails(claimed, len(plan.rails))
    else:
        rails = [(position, claimed.rails[position]) for position in positions]
        requests = [
            claim_templates.RailRequest(
                name=rail.name,
                position=position,
                expression=rail.expression,
                parameters=rail.parameters,
                beside=rail.accelerators.expression if rail.accelerators else "",
            )
            for position, rail in rails
        ]
    return claim_templates.build_specs(claimed.hardware, requests, plan.accelerators)


def _compile(name: str, fabric: policies.Fabric, claims: claimed_rails.CompiledClaims) -> ClaimedFabric:
    node = claim_templates.Node(accelerators=fabric.gpus_per_node or len(fabric.rails), rails=len(fabric.rails))
    hardware = claim_templates.Hardware(
        device_class=claims.claims.device_class,
        driver=claims.driver.name,
        node=node,
        devices_per_rail=fabric.devices_per_rail,
        accelerator_class=claims.accelerator_class or "",
        pair_attribute=claims.pair_attribute or "",
    )
    identity = _encode((name, hardware, list(claims.rails.values())))
    return ClaimedFabric(name=name, fabric=fabric, claims=claims, hardware=hardware, identity=identity)


def find_gang(pod: views.Pod, namespace: str) -> str:
    """Return the gang of a pod. Return "" for a pod on its own, and for copies of a server."""
    owner = pod.metadata.controller
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace)  # may be missing at admission
    gang = membership.find_gang(msgspec.structs.replace(pod, metadata=metadata))
    is_copy = owner is not None and owner.kind in _REPLICAS and gang.endswith(f"/{owner.uid}")
    return "" if is_copy else gang


def _find_choice(pod: views.Pod, claimed: ClaimedFabric, count: int, gang: str) -> Choice:
    """Return who chooses the rails.

    Networks in the pod's annotation must be those of its rails, so Multus's rails are known at admission. Rails whose
    GPUs are known by bus ID must be known in the claim.
    """
    is_free = context.is_number_only(pod, claimed.fabric) and count < len(claimed.fabric.rails)
    if not is_free or claimed.claims.driver.form is drivers.Form.NONE:
        return Choice.POD
    if gang and claimed.claims.claims.gang_rails == "same":
        return Choice.GANG
    return Choice.POD if claimed.gives_first_rails else Choice.SCHEDULER


def _count_accelerators(pod: views.Pod, ctx: context.InjectionContext, claimed: ClaimedFabric) -> int:
    """Return the number of GPUs in the claims.

    Containers that use one claim share its devices, so a claim has GPUs only if one container uses it. Raises
    RefusedError for more GPUs than any node has, because each is a request of a claim.
    """
    if not claimed.hardware.accelerator_class:
        return 0
    accelerated = accelerators.find_containers(pod, ctx.document.accelerators)
    if len(ctx.targets) != 1 or accelerated != ctx.targets:
        return 0
    target, resource = ctx.targets[0], claimed.claims.accelerator_resource
    count = accelerators.count_in_containers(pod, (resource,))[target]
    if count > claim_templates.MAX_ACCELERATORS:
        raise reasons.RefusedError(
            "quantity",
            f"container {pod.spec.containers[target].name}: resource {resource}: {count} is more than a pod can have "
            f"on a node of fabric {ctx.fabric_name}; the limit is {claim_templates.MAX_ACCELERATORS}: lower it",
        )
    return 0 if find_unfit_init_container(pod, resource, count) is not None else count


def list_init_containers(pod: views.Pod, resource: str) -> tuple[int, ...]:
    """Return the indexes of the init containers that request GPUs."""
    init_containers = pod.spec.init_containers or ()
    return tuple([index for index, init in enumerate(init_containers) if accelerators.read_amount(init, resource) > 0])


def find_unfit_init_container(pod: views.Pod, resource: str, count: int) -> views.Container | None:
    """Return an init container whose GPUs cannot be the `count` in the claims of the app container, or None.

    It requests more, or it is a sidecar, which runs at the same time and has GPUs of its own.
    """
    for index in list_init_containers(pod, resource):
        init = pod.spec.get_container(index, init=True)
        if init.restart_policy == accelerators.SIDECAR or accelerators.read_amount(init, resource) > count:
            return init
    return None


def _request_any_rails(claimed: ClaimedFabric, count: int) -> list[claim_templates.RailRequest]:
    """Return requests for any rails, with names that no rail has."""
    request_names = [
        name for number in range(count + len(claimed.rails)) if (name := f"nic{number}") not in claimed.claims.rails
    ]
    expression = selectors.join([rail.expression for rail in claimed.rails])
    return [
        claim_templates.RailRequest(name, position, expression, claimed.rails[position].parameters)
        for position, name in enumerate(request_names[:count])
    ]


# --- the changes of the pod ---------------------------------------------------------------------------------

ENTRY = "claims"  # in the record, of all changes of this module


def name_templates(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Name the templates of the pod's claims. Its containers use the claims in place of the GPUs they request."""
    plan = plan_claims(pod, ctx) if "devices" not in ctx.options.skip else None
    if plan is None:
        return _return_gpus(pod, ctx)
    if user_claim := _find_user_claim(pod, ctx):
        skipped = reasons.make(AdmissionCode.OWN_CLAIM, claim=user_claim, fabric=ctx.fabric_name)
        return pod_changes.Contribution(skipped={ENTRY: skipped})
    _check_node(pod, ctx)
    warning = _warn_of_gpus(pod, ctx)
    return pod_changes.Contribution(
        changes=(*_set_claims(pod, ctx, plan), *_use_claims(pod, ctx, plan), *_remove_gpus(pod, ctx, plan)),
        entries=(ENTRY,),
        warnings=() if has_all_gpus(pod, ctx, plan) else (warning,),
    )


def _check_node(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> None:
    """Raise RefusedError for a pod that names its node: no scheduler handles it, so nothing allocates its claims."""
    if pod.spec.node_name:
        raise reasons.RefusedError(
            "node-name",
            f"spec.nodeName is {text.quote(pod.spec.node_name)}: no scheduler allocates the claims of fabric "
            f"{ctx.fabric_name}, so the pod would never start; remove nodeName, and select the node by nodeSelector "
            "kubernetes.io/hostname",
        )


def _warn_of_gpus(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> reasons.Reason:
    """Return the warning about GPUs that are not in the claims, with the init container that keeps them out."""
    gpu = ctx.document.accelerators[0]
    counts = accelerators.count_in_containers(pod, (gpu,))
    init = find_unfit_init_container(pod, gpu, max(counts[index] for index in ctx.targets))
    name = init.name if init is not None else ""
    return reasons.make(AdmissionCode.GPUS_NOT_CLAIMED, fabric=ctx.fabric_name, init_container=name)


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
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: ClaimPlan
) -> Iterator[pod_changes.SetClaim | pod_changes.RemoveClaims]:
    existing = {claim.name: claim for claim in claim_templates.list_claims(pod)}
    claim_names = claim_templates.name_claims(len(plan.names))
    check_names(pod, claim_names, existing)
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


def check_names(pod: applied_pod.AppliedPod, claim_names: Collection[str], existing: Collection[str]) -> None:
    """Raise RefusedError if the author gave a claim a name that railwright needs: names are unique in a pod."""
    for index, entry in enumerate(pod.spec.resource_claims or ()):
        if entry.name in claim_names and entry.name not in existing:
            raise reasons.RefusedError(
                "claim",
                f"spec.resourceClaims[{index}] has the name {text.quote(entry.name)}, which railwright gives to its "
                "own claim; rename it, also in resources.claims of the containers",
            )


def _use_claims(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: ClaimPlan
) -> Iterator[pod_changes.UseClaim]:
    gpu = ctx.document.accelerators[0]
    init_containers = list_init_containers(pod, gpu) if plan.accelerators else ()
    for init, index in [(False, index) for index in ctx.targets] + [(True, index) for index in init_containers]:
        resources = pod.spec.get_container(index, init=init).resources
        used = {claim.name for claim in resources.claims} if resources is not None else set()
        for name in claim_templates.name_claims(len(plan.names)):
            if name not in used:
                reason = f"the container uses the devices of fabric {ctx.fabric_name}"
                yield pod_changes.UseClaim(entry=ENTRY, reason=reason, container=index, claim=name, init=init)


def _return_gpus(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Request the GPUs again that were in claims of the pod's template, because nobody will write these claims."""
    claims = tuple(claim.name for claim in claim_templates.list_claims(pod))
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
    counts = claim_templates.count_accelerators(pod, [container for _, _, container in entries])
    requests = [
        pod_changes.AddResource(entry=ENTRY, reason=reason, container=index, resource=gpu, quantity=count, init=init)
        for (init, index, container), count in zip(entries, counts, strict=True)
        if count and not accelerators.mentions(container, gpu)
    ]
    removal = pod_changes.RemoveClaims(entry=ENTRY, reason=reason, claims=claims)
    return pod_changes.Contribution(changes=(*requests, removal))


def _remove_gpus(
    pod: applied_pod.AppliedPod, ctx: context.InjectionContext, plan: ClaimPlan
) -> Iterator[pod_changes.RemoveResource]:
    """Remove the GPUs that are in the claims. Init containers, which run before, use the same."""
    target, gpu = ctx.targets[0], ctx.document.accelerators[0]
    if not plan.accelerators:
        return
    reason = f"the claims have {text.format_count(plan.accelerators, 'GPU')}"
    if accelerators.mentions(pod.container(target), gpu):
        yield pod_changes.RemoveResource(entry=ENTRY, reason=reason, container=target, resource=gpu)
    for index in list_init_containers(pod, gpu):
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
    channels = _list_channels(pod, ctx)
    return any(
        claim.name not in channels
        for index in ctx.targets
        if (resources := containers[index].resources) is not None
        for claim in resources.claims
    ) and not any(
        accelerators.read_amount(container, resource) for resource in ctx.selected.resources for container in containers
    )


def _list_channels(pod: views.Pod, ctx: context.InjectionContext) -> frozenset[str]:
    """Return the names of the author's claims that are channels of a ComputeDomain, which bring no rails."""
    classes = ctx.known.claim_templates or {}
    return frozenset(
        [
            entry.name
            for entry in pod.spec.resource_claims or ()
            if names.CHANNEL_CLASS in classes.get((ctx.known.namespace, entry.resource_claim_template_name), ())
        ]
    )
