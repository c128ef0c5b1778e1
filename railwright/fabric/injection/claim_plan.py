"""Plans the claims of a pod whose rails come as claims: which rails, how many GPUs, and the names of the templates.

The webhook names the templates, and `webhook.claim_templates` writes them from the same plan. A pod may get certain
rails, or a number of them. A number is that of any rails for a pod on its own. For a gang it is one set for all pods,
which is chosen when its template is written, by what is free then.
"""

import enum
from collections.abc import Sequence

import msgspec

from railwright.fabric import views
from railwright.fabric.claims import claim_templates, drivers, own_claims, selectors
from railwright.fabric.injection import accelerators, context
from railwright.fabric.policy import claimed_rails, compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rejections
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


def compile_fabrics(document: policies.FabricPolicy) -> dict[str, ClaimedFabric]:
    """Return the fabrics of a policy whose rails come as claims, by name."""
    compiled_policy = compiled.compile_policy(document)
    return {
        name: _compile(name, fabric.fabric, fabric.claims)
        for name, fabric in compiled_policy.fabrics.items()
        if fabric.claims is not None
    }


def build(pod: views.Pod, ctx: context.InjectionContext) -> ClaimPlan | None:
    """Return the plan for a pod, None if it gets no rails by claims. `ctx` is that of the pod before any change."""
    claimed = ctx.policy.compile_once(compile_fabrics).get(ctx.fabric_name)
    if claimed is None or not ctx.rails:
        return None
    gang = _find_gang(pod, ctx.known.namespace)
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
        names=own_claims.build_names(
            ctx.fabric_name,
            count,
            len(positions),
            _encode((ctx.known.namespace, claimed.identity, choice.name, positions, count, gang)),
            claim_templates.count_claims(claimed.hardware, count, positions),
        ),
        gang=gang,
    )


def is_complete(pod: views.Pod, ctx: context.InjectionContext, plan: ClaimPlan) -> bool:
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


def _find_gang(pod: views.Pod, namespace: str) -> str:
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
    if count > own_claims.MAX_ACCELERATORS:
        raise rejections.RefusedError(
            "quantity",
            f"container {pod.spec.containers[target].name}: resource {resource}: {count} is more than a pod can have "
            f"on a node of fabric {ctx.fabric_name}; the limit is {own_claims.MAX_ACCELERATORS}: lower it",
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
    names = [
        name for number in range(count + len(claimed.rails)) if (name := f"nic{number}") not in claimed.claims.rails
    ]
    expression = selectors.join([rail.expression for rail in claimed.rails])
    return [
        claim_templates.RailRequest(name, position, expression, claimed.rails[position].parameters)
        for position, name in enumerate(names[:count])
    ]
