"""The outlets for KAI: annotations `kai.scheduler/topology...` of the workload (by the source of KAI 0.17.0, not run),
and for Grove, whose sets of pods KAI places.

KAI's pod grouper copies them from the top owner of the pods into the PodGroup. Its scheduler never places a group whose
Topology does not exist or lacks the level, and counts only nodes with a label for each level of the Topology
(pkg/podgrouper/podgrouper/plugins/defaultgrouper, pkg/scheduler/plugins/topology).
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from railwright.fabric.gang_topology import requests
from railwright.fabric.gang_topology.writings import Context, Writing, point_to_annotation
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, grove, registry

_JOB, _JOB_SET = "Job.batch", "JobSet.jobset.x-k8s.io"
# KAI makes one PodGroup of all pods of these kinds. Those of a Deployment or StatefulSet start one by one.
KINDS = frozenset(
    {_JOB, _JOB_SET, *(f"{kind}.kubeflow.org" for kind in ("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "JAXJob"))}
)
_TOPOLOGY = "kai.scheduler/topology"
_REQUIRED, _PREFERRED = f"{_TOPOLOGY}-required-placement", f"{_TOPOLOGY}-preferred-placement"
_SEGMENTED = "PyTorchJob.kubeflow.org"  # the kind of which KAI divides the pods of a template: its workers
_SEGMENT_SIZE, _SEGMENT_REQUIRED = "kai.scheduler/segment-size", "kai.scheduler/segment-topology-required-placement"
_SMALLEST = "kai.scheduler/batch-min-member"  # pods of a Job that start together; by default 1
# Annotations by which an author decides about the topology or the group of a workload.
_OWN_PREFIXES = (_TOPOLOGY, "kai.scheduler/segment-", "kai.scheduler/skip-podgrouper", "pod-group-name")
_SMALLER_GANGS = (  # fields with which KAI starts fewer pods first
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"),
    ("spec", "elasticPolicy", "minReplicas"),
)
_START_ORDER = ("spec", "startupPolicy", "startupPolicyOrder")  # of a JobSet


def write(context: Context) -> Writing:
    """Return the annotations of the workload, and those of workers that are divided into segments."""
    request = context.request
    _refuse_obstacles(context)
    if request.is_required:
        _refuse_smaller_gang(context)
    topologies = context.cluster.kai_topologies or {}
    placement = choose(context, topologies)
    chosen = {_TOPOLOGY: placement.topology, _REQUIRED: placement.required, _PREFERRED: placement.preferred}
    annotations = {key: value for key, value in chosen.items() if value}
    kind, segments = context.workload.kind.display_name, {}
    if kind == _JOB and request.is_required:
        annotations[_SMALLEST] = str(context.parts[0].pods)
    ranks = next(part for part in context.parts if part.is_rank)
    if kind == _SEGMENTED and request.needs_segments(placement.level, topologies[placement.topology], ranks.pods):
        size, key = str(request.segments.size), request.segments.key
        segments = {ranks.template.title: {_SEGMENT_SIZE: size, _SEGMENT_REQUIRED: key}}
    fields = {point_to_annotation(key): value for key, value in annotations.items()}
    return Writing(placement.level, fields, segments, has_segments=bool(segments))


class Placement(NamedTuple):
    """A topology of KAI, and labels of its levels: one that is required, one that is preferred; "" for none."""

    topology: str
    required: str
    preferred: str

    @property
    def level(self) -> str:
        """Return the level that the gang asks for."""
        return self.required or self.preferred


def choose(context: Context, topologies: Mapping[str, Collection[str]]) -> Placement:
    """Return the topology with the most levels of the policy, and its lowest level that is usable.

    `topologies` are the labels of levels by name, widest first.
    """
    keys = [level.key for level in context.request.levels]
    name = max(sorted(topologies), key=lambda name: len({*keys} & {*topologies[name]}), default="")
    labels = tuple(topologies.get(name, ()))
    closest = next((key for key in keys if key in labels), None)
    if closest is None:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NO_KEY)
    if not context.request.is_required:
        return Placement(name, "", closest)
    specs = [part.pod.spec for part in context.parts if part.is_rank]
    request = requests.measure_levels(context.request, context.cluster.domains, labels, specs)
    level = request.find_lowest(labels.__contains__).key
    # within the required domain, as few of the lowest level as possible
    return Placement(name, level, closest if closest != level else "")


def _refuse_obstacles(context: Context) -> None:
    """Raise ReasonError if the annotations would have no effect, or change what the author has written."""
    written = [("metadata", context.workload.metadata.annotations)]
    written += [(template.title, template.pod.metadata.annotations) for template in context.workload.templates]
    for title, annotations in written:
        if key := next((key for key in annotations if key.startswith(_OWN_PREFIXES)), None):
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=f"{title}: annotation {key[:128]}")
    context.refuse_owner("an annotation")


def _refuse_smaller_gang(context: Context) -> None:
    """Raise ReasonError if KAI would choose a domain for fewer pods than the gang has."""
    kind = context.workload.kind.display_name
    written = [context.workload.metadata.annotations]
    written += [metadata.annotations for template in context.workload.templates for _, metadata in template.above]
    field = next((".".join(path) for path in _SMALLER_GANGS if context.get(*path) is not None), "")
    if any(_SMALLEST in annotations for annotations in written):
        field = f"annotation {_SMALLEST}"
    elif kind == _JOB_SET and context.get(*_START_ORDER) == "InOrder":
        field = ".".join(_START_ORDER)
    if field:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_SMALLER_GANG, field=field)
    if kind == _JOB:
        context.refuse_later_pods()


# --- Grove's PodCliqueSets that KAI places: `topologyConstraint` of scaling groups and cliques ----------------

# By the source of Grove at fcc3b3bb, not run. A scaling group, or a clique that belongs to none, is a gang: each of its
# replicas gets one domain. Grove names domains by a ClusterTopologyBinding and rejects a name that it lacks, a change
# of the field, and the field itself without topology-aware scheduling, which its API does not show
# (operator/internal/webhook/admission/pcs/validation/topologyconstraints.go). Its other schedulers read no topology.
_FIELD = "topologyConstraint"
GROVE_FIELDS = tuple(f"{parts}/[*]/{_FIELD}" for parts in (grove.CLIQUES, grove.SCALING_GROUPS))


def constrain(context: Context) -> Writing:
    """Return the constraint of the gang."""
    _refuse_grove_set(context)
    topologies = context.cluster.grove_topologies or {}
    placement = choose(context, topologies)
    domains = topologies[placement.topology]
    keys = {"required": placement.required, "preferred": placement.preferred}
    pack = {field: domains[key] for field, key in keys.items() if key}
    return Writing(placement.level, {f"{context.gang}/{_FIELD}": {"topologyName": placement.topology, "pack": pack}})


def _refuse_grove_set(context: Context) -> None:
    """Raise ReasonError if Grove would reject the constraint, or KAI choose a domain for fewer pods than the gang."""
    template = frameworks.get_mapping(context.tree, "spec", "template")
    lists = (template.get("cliques"), template.get("podCliqueScalingGroups"))
    for entry in (template, *(entry for entries in lists if isinstance(entries, list) for entry in entries)):
        if isinstance(entry, dict) and entry.get(_FIELD) is not None:
            name = str(entry.get("name", "template"))
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=f"{_FIELD} of {name[:63]}")
    context.refuse_owner(_FIELD)
    for part in context.parts if context.request.is_required else ():
        name = part.template.context.name
        spec = frameworks.get_mapping(registry.follow(context.tree, part.template.pointer)[1][-1], "spec")
        is_smaller = spec.get("minAvailable") not in {None, part.pods}
        field = "minAvailable" if is_smaller else "autoScalingConfig" if "autoScalingConfig" in spec else ""
        if field:
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_SMALLER_GANG, field=f"{field} of clique {name[:63]}")
