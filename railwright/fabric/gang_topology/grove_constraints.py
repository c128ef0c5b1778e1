"""The outlet for Grove's PodCliqueSets that KAI places: `topologyConstraint` of scaling groups and cliques.

By the source of Grove at fcc3b3bb, not run. A scaling group, or a clique that belongs to none, is a gang: each of its
replicas gets one domain. Grove names domains by a ClusterTopologyBinding and rejects a name that it lacks, a change of
the field, and the field itself without topology-aware scheduling, which its API does not show
(operator/internal/webhook/admission/pcs/validation/topologyconstraints.go). Its other schedulers read no topology.
"""

from railwright.fabric.gang_topology import kai_annotations
from railwright.fabric.gang_topology.writings import Context, Writing
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, grove, registry

_FIELD = "topologyConstraint"
FIELDS = tuple(f"{parts}/[*]/{_FIELD}" for parts in (grove.CLIQUES, grove.SCALING_GROUPS))


def write(context: Context) -> Writing | reason.Reason:
    """Return the constraint of the gang."""
    if cause := _find_obstacle(context):
        return cause
    topologies = context.cluster.grove_topologies or {}
    placement = kai_annotations.choose(context, topologies)
    if isinstance(placement, reason.Reason):
        return placement
    domains = topologies[placement.topology]
    keys = {"required": placement.required, "preferred": placement.preferred}
    pack = {field: domains[key] for field, key in keys.items() if key}
    return Writing(placement.level, {f"{context.gang}/{_FIELD}": {"topologyName": placement.topology, "pack": pack}})


def _find_obstacle(context: Context) -> reason.Reason | None:
    """Return why Grove would reject the constraint, or KAI choose a domain for fewer pods than the gang has."""
    template = frameworks.get_mapping(context.tree, "spec", "template")
    lists = (template.get("cliques"), template.get("podCliqueScalingGroups"))
    for entry in (template, *(entry for entries in lists if isinstance(entries, list) for entry in entries)):
        if isinstance(entry, dict) and entry.get(_FIELD) is not None:
            name = str(entry.get("name", "template"))
            return reason.make(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=f"{_FIELD} of {name[:63]}")
    if cause := context.find_owner(_FIELD):
        return cause
    for part in context.parts if context.request.is_required else ():
        name = part.template.context.name
        spec = frameworks.get_mapping(registry.follow(context.tree, part.template.pointer)[1][-1], "spec")
        is_smaller = spec.get("minAvailable") not in {None, part.pods}
        field = "minAvailable" if is_smaller else "autoScalingConfig" if "autoScalingConfig" in spec else ""
        if field:
            return reason.make(AdmissionCode.TOPOLOGY_SMALLER_GANG, field=f"{field} of clique {name[:63]}")
    return None
