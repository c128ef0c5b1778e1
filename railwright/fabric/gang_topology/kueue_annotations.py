"""The outlet for jobs in Kueue's queues: annotations `kueue.x-k8s.io/podset-...` of pod templates (Kueue 0.19).

Kueue chooses the domains before pods exist. Its webhook rejects a job whose annotations contradict each other, and its
scheduler never admits one that its flavors cannot satisfy, so they are written only if each flavor that may be chosen
has the level (pkg/controller/jobframework/tas_validation.go, pkg/scheduler/flavorassigner/tas_flavorassigner.go).
"""

from collections.abc import Sequence

import msgspec

from railwright.fabric import kueue, resources, views
from railwright.fabric.gang_topology import requests
from railwright.fabric.gang_topology.writings import QUEUE_NAME, Context, Writing
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

KINDS = frozenset(
    {
        "Job.batch",
        "JobSet.jobset.x-k8s.io",
        *(f"{kind}.kubeflow.org" for kind in ("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    }
)
_GROUP = QUEUE_NAME.partition("/")[0]
_PREFIX = f"{_GROUP}/podset-"
_REQUIRED, _PREFERRED, _TOGETHER = f"{_PREFIX}required-topology", f"{_PREFIX}preferred-topology", f"{_PREFIX}group-name"
_SLICE, _SLICE_SIZE = f"{_PREFIX}slice-required-topology", f"{_PREFIX}slice-size"
_ELASTIC = f"{_GROUP}/elastic-job"  # annotation of a job; required and preferred levels are errors for such a job
_FEWER = f"{_GROUP}/job-min-parallelism"  # annotation of a Job that may be admitted with fewer pods
_MAX_FLAVORS = 4  # that are measured: up to 10 ms each for a template, with 5,000 nodes
_TOGETHER_NAME = "railwright"  # of the two pod sets that are placed together


def write(context: Context) -> Writing:
    """Return the annotations of the templates with ranks: the lowest level that each flavor has."""
    _refuse_obstacles(context)
    parts = [part for part in context.parts if part.is_rank]
    queue = context.workload.metadata.labels[QUEUE_NAME]
    requested = {name for part in parts for name in resources.compute_requests(part.pod.spec)} - {resources.PODS}
    flavors = context.cluster.kueue.find_flavors(context.cluster.namespace, queue, requested)
    common = frozenset.intersection(*(frozenset(flavor.labels) for flavor in flavors)) if flavors else frozenset()
    if not common.intersection(level.key for level in context.request.levels):
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NOT_IN_QUEUE, queue=queue)
    request = context.request
    if request.is_required:
        request = _measure(context, parts, flavors)
        level = request.find_lowest(common.__contains__)
    else:
        level = next(level for level in request.levels if level.key in common)
    annotations = {_REQUIRED if request.is_required else _PREFERRED: level.key}
    if len(parts) > 1:
        annotations[_TOGETHER] = _TOGETHER_NAME
    elif _FEWER not in context.workload.metadata.annotations and request.needs_segments(
        level.key, common, parts[0].pods
    ):  # Kueue forbids slices of pod sets that are placed together
        annotations |= {_SLICE: request.segments.key, _SLICE_SIZE: str(request.segments.size)}
    written = {part.template.title: annotations for part in parts}
    return Writing(level.key, annotations=written, has_segments=_SLICE in annotations)


def _refuse_obstacles(context: Context) -> None:
    """Raise ReasonError if Kueue would reject the annotations, or not read them."""
    for template in context.workload.templates:
        for key in template.pod.metadata.annotations:
            if key.startswith(_PREFIX):
                field = f"{template.title}: annotation {key[:128]}"
                raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=field)
    if _ELASTIC in context.workload.metadata.annotations:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_ELASTIC)
    context.refuse_owner("an annotation")
    parts = [part for part in context.parts if part.is_rank]
    if any(part.pod.spec.resource_claims for part in parts):
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_CLAIMS)
    sizes = [part.pods for part in parts]
    if len(sizes) > 2 or (len(sizes) == 2 and min(sizes) != 1):
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_PARTS, templates=len(sizes))


def _measure(
    context: Context, parts: Sequence[requests.Part], flavors: Sequence[kueue.Flavor]
) -> requests.TopologyRequest:
    """Return the request with the ranks that fit each level on the nodes of any of the flavors."""
    request, domains = context.request, context.cluster.domains
    for flavor in flavors:
        specs = [_restrict(part.pod.spec, flavor) for part in parts]
        known = domains if len(flavors) <= _MAX_FLAVORS else None
        request = requests.measure_levels(request, known, flavor.labels, specs)
    return request


def _restrict(spec: views.PodSpec, flavor: kueue.Flavor) -> views.PodSpec:
    """Return a pod's spec as Kueue changes it for a flavor."""
    selector = {**(spec.node_selector or {}), **(flavor.spec.node_labels or {})}
    tolerations = [*(spec.tolerations or ()), *(flavor.spec.tolerations or ())]
    return msgspec.structs.replace(spec, node_selector=selector, tolerations=tolerations)
