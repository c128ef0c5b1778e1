"""Describes what limits one node or one domain: devices in use, degradations, uplinks."""

from railwright.fabric import resources, topology
from railwright.fabric.placement.nodes import node_evaluation, node_slots
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

_CLOSE = 1e-6


def find_blocking_reason(evaluation: node_evaluation.NodeEvaluation) -> reason.Reason:
    """Return why nodes of this class have no slot."""
    if not evaluation.facts.eligible:
        return reason.make(Code.NODE_INELIGIBLE)
    if lacking := list_short_resources(evaluation):
        return describe_shortage(evaluation, lacking[0])
    return evaluation.refusal or reason.make(Code.OTHER_RESOURCES)


def list_short_resources(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the accelerators and rail resources with fewer free devices on the node than one pod requests."""
    return [name for name, (free, _, requested) in evaluation.usage.items() if free < requested]


def describe_shortage(evaluation: node_evaluation.NodeEvaluation, resource: str) -> reason.Reason:
    """Return the reason that states the free and the needed amount of one resource."""
    free, allocatable, requested = evaluation.usage[resource]
    return reason.make(
        Code.DEVICE_SHORTAGE,
        device=get_label(evaluation, resource),
        free=max(0, free) // resources.UNIT,
        allocatable=allocatable // resources.UNIT,
        needed=requested // resources.UNIT,
    )


def get_label(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    """Return the name of the rails that use a resource, or the resource itself if no needed rail does."""
    return next((pool.need.label for pool in evaluation.pools if pool.need.resource == resource), resource)


def list_degradations(evaluation: node_evaluation.NodeEvaluation) -> tuple[reason.Reason, ...]:
    """Return the reasons why nodes of this class have less than full bandwidth."""
    degradations = []
    node_capacity = evaluation.capacity
    if node_capacity.slot_numa_factors and node_capacity.slot_numa_factors[0] < 1:
        degradations.append(reason.make(Code.NUMA_SPLIT))
    for pool in evaluation.pools:
        if not pool.is_sufficient:
            code = Code.RAIL_NOT_FREE if pool.allocatable > 0 else Code.RAIL_DEAD
            degradations.append(reason.make(code, rail=pool.need.label))
        elif not pool.is_healthy:
            degradations.append(reason.make(Code.RAIL_DEGRADED, rail=pool.need.label))
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append(reason.make(Code.NICS_SHARED))
    return tuple(degradations)


def list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the names of the rails that the pod needs."""
    return [name for pool in evaluation.pools for name in pool.need.rails]


def describe_uplinks(  # noqa: PLR0913, PLR0917 - one argument for each parameter of the reason
    domain: topology.Domain,
    nodes: int,
    ratio: float,
    carried: node_slots.Bandwidth,
    crossings: int = 1,
    links: float = 1.0,
) -> reason.Reason:
    """Return the reason that states the bandwidth (`carried`, 0..1) of each ring edge over the domain's uplinks."""
    return reason.make(
        Code.UPLINKS_LIMIT,
        domain=topology.format_domain(domain),
        nodes=nodes,
        oversubscription=ratio,
        carried=carried,
        crossings=crossings,
        has_unused_links=links > 1,
    )
