"""Writes Kueue's topology annotations, `kueue.x-k8s.io/podset-...`, into the pod templates of a job (Kueue 0.19).

Kueue chooses the domains before pods exist. Its webhook rejects a job whose annotations contradict each other
(pkg/controller/jobframework/tas_validation.go), so such annotations are not written. Kueue never admits a job that asks
for a level which the Topology of its queue lacks; `railwright check` finds such jobs.
"""

from railwright.fabric.gang_topology import requests

QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # label of a workload that Kueue admits
KINDS = frozenset(  # other kinds have pods that come and go, and are no gang of a fixed size
    {
        "Job.batch",
        "JobSet.jobset.x-k8s.io",
        *(f"{kind}.kubeflow.org" for kind in ("MPIJob", "PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")),
    }
)
_DOMAIN = QUEUE_NAME.partition("/")[0]
_PREFIX = f"{_DOMAIN}/podset-"
_REQUIRED, _PREFERRED, _GROUP_KEY = (
    f"{_PREFIX}required-topology",
    f"{_PREFIX}preferred-topology",
    f"{_PREFIX}group-name",
)
_SLICE, _SLICE_SIZE = f"{_PREFIX}slice-required-topology", f"{_PREFIX}slice-size"
_ELASTIC = f"{_DOMAIN}/elastic-job"  # annotation of a job
_MIN_PARALLELISM = f"{_DOMAIN}/job-min-parallelism"  # annotation of a Job that may be admitted with fewer pods
_GROUP_NAME = "railwright"  # of the two pod sets that are placed together


def build_annotations(request: requests.TopologyRequest) -> requests.SchedulerFields:
    """Return Kueue's topology annotations for each template with ranks. Raises NotWrittenError."""
    _check_job(request)
    level = request.choose_level(requests.is_node_label)
    annotations = {_REQUIRED if request.is_required else _PREFERRED: level}
    if len(request.rank_templates) > 1:
        annotations[_GROUP_KEY] = _GROUP_NAME
    elif _needs_slices(request, level):
        annotations |= {_SLICE: request.closest_key, _SLICE_SIZE: str(request.segment)}
    written = {part.template.title: annotations for part in request.rank_templates}
    return requests.SchedulerFields(level, annotations=written, has_segments=_SLICE in annotations)


def _needs_slices(request: requests.TopologyRequest, level: str) -> bool:
    """True if each segment needs a domain of its own within the gang's domain of `level`.

    Kueue divides pods into whole slices only, and forbids slices of pod sets that are placed together.
    """
    return (
        request.is_required
        and request.segment > 1
        and request.closest_key != level
        and request.rank_count % request.segment == 0
        and _MIN_PARALLELISM not in request.workload.metadata.annotations
    )


def _check_job(request: requests.TopologyRequest) -> None:
    """Raise NotWrittenError if Kueue would reject or ignore topology annotations of the job."""
    for template in request.workload.templates:
        for key in template.pod.metadata.annotations:
            if key.startswith(_PREFIX):
                raise requests.build_error_for_authored_field(f"{template.title}: annotation {key[:128]}")
    request.check_no_controller("an annotation")
    sizes = [part.pods for part in request.rank_templates]
    if _ELASTIC in request.workload.metadata.annotations:
        cause = f"annotation {_ELASTIC} makes the job elastic, and Kueue accepts no topology for elastic jobs"
    elif any(part.pod.spec.resource_claims for part in request.rank_templates):  # KEP-2941
        cause = "the pods use resourceClaims, and Kueue accepts no topology for devices in claims"
    elif len(sizes) > 2 or (len(sizes) == 2 and min(sizes) != 1):
        counts = f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
        cause = (
            "Kueue accepts a topology request only for ranks in one template, or in two if one has a single pod; this "
            f"job's {len(sizes)} templates of ranks have {counts} pods"
        )
    else:
        return
    raise requests.NotWrittenError(cause)
