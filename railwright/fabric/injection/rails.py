"""Selects the rails of a pod: all, those in its annotation, or its share. Rails that the pod opted out of are removed.

The rules are in docs/interface.md 1.3 and 3.2. The resource of a rail comes from the policy, otherwise from the
annotation of its network.
"""

from collections.abc import Sequence

from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import accelerators, facts
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rejections

_VALUES = "a count, names or a range such as rail0-rail3"


def select_rails(
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
        policy_rails = _parse_annotation(annotation, fabric.rails)
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


def _parse_annotation(annotation: str, rails: Sequence[policies.Rail]) -> tuple[policies.Rail, ...]:
    rail_names = [rail.name for rail in rails]
    try:
        selected = intent.parse_rails(annotation, rail_names)
    except intent.InvalidRailsError as error:
        raise _reject(error, annotation, rail_names) from None
    return tuple([rail for rail in rails if rail.name in selected])


def _reject(error: intent.InvalidRailsError, annotation: str, rail_names: Sequence[str]) -> rejections.RefusedError:
    if error.problem is intent.RailsProblem.EMPTY:
        problem = (
            f"is empty; the fabric has {', '.join(rail_names)}: write {_VALUES}, or remove the annotation to get all"
        )
        return rejections.RefusedError("rails", f"annotation {names.RAILS} {problem}")
    problem = _describe(error, rail_names)
    return rejections.RefusedError("rails", f"annotation {names.RAILS} {text.quote(annotation)}: {problem}")


def _describe(error: intent.InvalidRailsError, rail_names: Sequence[str]) -> str:
    number, item = len(rail_names), text.quote(error.item)
    if error.problem is intent.RailsProblem.COUNT:
        return (
            f"the fabric has {text.format_count(number, 'rail')}; request 1 to {number}, or remove the "
            f"annotation to get all"
        )
    if error.problem is intent.RailsProblem.REVERSED:
        return f"{item} is reversed; write the earlier rail first"
    return f"{item} is not a rail or a range; the fabric has {', '.join(rail_names)}; write {_VALUES}"
