"""Builds the context of one injection: fabric, role, containers, rails and user options of a pod that opted in.

Nothing in it changes while the mutators change the pod. Binding builds the same context, so that both use the same
rails. The rules for rails are in docs/interface.md 1.3 and 3.2.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import (
    accelerators,
    env_tables,
    facts,
    roles,
    targets,
    user_options,
)
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rejections

_VALUES = "a count, names or a range such as rail0-rail3"


class InjectionContext(msgspec.Struct, frozen=True):
    """The inputs of all mutators for one pod, beside the pod as it is by then."""

    policy: policies.Policy
    known: facts.ClusterFacts  # the cluster
    fabric_name: str
    fabric: policies.Fabric
    role: roles.Role
    targets: tuple[int, ...]
    rails: tuple[compiled.ResolvedRail, ...]
    options: user_options.UserOptions
    accelerated: bool  # an app container requests an accelerator, or uses a claim of the pod's author

    @property
    def needs_privilege(self) -> bool:
        """True if some rail has no resource, so that no device plugin can add its device to the container."""
        return any(rail.resource is None for rail in self.rails)

    @property
    def document(self) -> policies.FabricPolicy:
        """Return the policy's document."""
        return self.policy.document


def build(
    pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts, name: str, options: user_options.UserOptions
) -> InjectionContext:
    """Build the context of a pod that opted in to fabric `name`. Raises RefusedError."""
    document = policy.document
    compiled_policy = policy.compile_once(compiled.compile_policy)
    fabric = document.fabrics[name]
    accelerated = accelerators.find_containers(pod, document.accelerators)
    # Rejects an invalid annotation for every role.
    selected = _select_rails(pod, compiled_policy.fabrics[name], document, cluster)
    measure_injection = _build_scorer(name, policy, selected)

    def is_known_rank() -> bool:
        """True if a container has devices or mounts of the fabric, which it got as a rank of its template."""
        return cluster.job_accelerated is False or any(
            _has_injection(measure_injection(container)) for container in pod.spec.containers
        )

    role = roles.find_role(
        pod,
        document.roles,
        accelerated=bool(accelerated),
        job_accelerated=bool(cluster.job_accelerated),
        is_known_rank=is_known_rank,
    )
    return InjectionContext(
        policy=policy,
        known=cluster,
        fabric_name=name,
        fabric=fabric,
        role=role,
        targets=targets.select_targets(pod, accelerated, measure_injection),
        rails=selected if role.rails else (),
        options=options,
        accelerated=bool(accelerated),
    )


# --- rails ----------------------------------------------------------------------------------------------------


def _select_rails(
    pod: views.Pod,
    compiled_fabric: compiled.CompiledFabric,
    document: policies.FabricPolicy,
    cluster: facts.ClusterFacts,
) -> tuple[compiled.ResolvedRail, ...]:
    """Return the pod's rails in the fabric's order. Raises RefusedError."""
    fabric = compiled_fabric.fabric
    if fabric.transport is policies.Transport.TCP:
        return ()
    annotation = pod.metadata.annotations.get(names.RAILS)
    if annotation is not None and annotation.strip() != names.RAILS_NONE:
        policy_rails = _parse_rails(annotation, fabric.rails)
    elif fabric.rails_per_pod == "proportional":
        policy_rails = _select_proportional(pod, fabric, document)
    else:
        policy_rails = fabric.rails
    resolved = [compiled_fabric.rails[rail.name].with_resource(cluster.networks) for rail in policy_rails]
    return tuple([rail for rail in resolved if rail.resource is None or not is_opted_out(pod, rail.resource)])


def is_number_only(pod: views.Pod, fabric: policies.Fabric) -> bool:
    """True if the pod asks for a number of rails, not for certain ones."""
    annotation = pod.metadata.annotations.get(names.RAILS, names.RAILS_NONE).strip()
    return intent.is_count(annotation) if annotation != names.RAILS_NONE else fabric.rails_per_pod == "proportional"


def is_opted_out(pod: views.Pod, resource: str) -> bool:
    """True if the pod names the resource and requests none of it."""
    containers = [container for container in pod.spec.containers if accelerators.mentions(container, resource)]
    return bool(containers) and not any(accelerators.read_amount(container, resource) for container in containers)


def _select_proportional(
    pod: views.Pod, fabric: policies.Fabric, document: policies.FabricPolicy
) -> tuple[policies.Rail, ...]:
    """Return ceil(GPUs x rails / GPUs per node) rails, at least one.

    They are the first rails of the fabric, so that all pods of a gang have the same.
    """
    accelerator_count = sum(accelerators.count_in_containers(pod, document.accelerators))
    share = -(-accelerator_count * len(fabric.rails) // (fabric.gpus_per_node or 1))
    return fabric.rails[: max(1, min(share, len(fabric.rails)))]


def _parse_rails(annotation: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    rail_names = [rail.name for rail in rails]
    try:
        selected = intent.parse_rails(annotation, rail_names)
    except intent.InvalidRailsError as error:
        raise _reject_rails(error, annotation, rail_names) from None
    return tuple([rail for rail in rails if rail.name in selected])


def _reject_rails(
    error: intent.InvalidRailsError, annotation: str, rail_names: Sequence[str]
) -> rejections.RefusedError:
    if error.problem is intent.RailsProblem.EMPTY:
        problem = (
            f"is empty; the fabric has {', '.join(rail_names)}: write {_VALUES}, or remove the annotation to get all"
        )
        return rejections.RefusedError("rails", f"annotation {names.RAILS} {problem}")
    problem = _describe_rails_problem(error, rail_names)
    return rejections.RefusedError("rails", f"annotation {names.RAILS} {text.quote(annotation)}: {problem}")


def _describe_rails_problem(error: intent.InvalidRailsError, rail_names: Sequence[str]) -> str:
    number, item = len(rail_names), text.quote(error.item)
    if error.problem is intent.RailsProblem.COUNT:
        return (
            f"the fabric has {text.format_count(number, 'rail')}; request 1 to {number}, or remove the "
            f"annotation to get all"
        )
    if error.problem is intent.RailsProblem.REVERSED:
        return f"{item} is reversed; write the earlier rail first"
    return f"{item} is not a rail or a range; the fabric has {', '.join(rail_names)}; write {_VALUES}"


# --- how much of the fabric a container has ---------------------------------------------------------------------


def _build_scorer(
    name: str, policy: policies.Policy, selected: Sequence[compiled.ResolvedRail]
) -> Callable[[views.Container], targets.InjectionScore]:
    """Return a function that measures how much of fabric `name` a container has.

    Devices count more than mounts, and mounts more than variables, then capabilities, then privilege.
    """
    fabric = policy.document.fabrics[name]
    resources = {rail.resource for rail in selected if rail.resource is not None}

    def measure(container: views.Container) -> targets.InjectionScore:
        literals: Collection[tuple[str, str]] = ()
        if container.env_or_none:
            tables = policy.compile_once(env_tables.Tables)
            literals = tables.list_known_literals(name, [rail.rail for rail in selected])
        security = container.security_context
        added_capabilities = (security.capabilities.add if security and security.capabilities else None) or ()
        return (
            sum(accelerators.read_amount(container, resource) > 0 for resource in resources),
            sum(mount.name.startswith(names.VOLUME_PREFIX) for mount in container.volume_mounts),
            sum((entry.name, entry.value) in literals for entry in container.env),
            sum(capability in added_capabilities for capability in fabric.security.capabilities),
            int(fabric.security.privileged and bool(security and security.privileged)),
        )

    return measure


def _has_injection(score: targets.InjectionScore) -> bool:
    """True if a container has devices or mounts of the fabric, which are what a template gets."""
    devices, mounts, *_ = score
    return bool(devices or mounts)
