"""Kubernetes' own controllers: Job and CronJob, the apps API, and the ReplicationController.

Jobs label their pods. The other controllers know no gangs: the owner is the gang.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

JOB = "batch.kubernetes.io/job-name"
_OLD_JOB = "job-name"  # the job controller still sets it too
INDEX = "batch.kubernetes.io/job-completion-index"  # label and annotation
_POD_INDEX = "apps.kubernetes.io/pod-index"  # label
_POD_NAME = "statefulset.kubernetes.io/pod-name"  # label


class JobSpec(views.View, frozen=True):
    """The fields that state how many pods a Job runs at once."""

    parallelism: int | None = None
    completions: int | None = None
    template: frameworks.Template | None = None


class JobStatus(views.View, frozen=True):
    """status of a Job. Succeeded pods are not created again."""

    succeeded: int | None = None


class Job(frameworks.Workload, frozen=True):
    """A Job, with the fields that state its size."""

    spec: JobSpec = JobSpec()
    status: JobStatus | None = None


def _list_job_pods(job: Job) -> Sequence[frameworks.Replicas]:
    """Return the pods of a Job: `parallelism`, or fewer if fewer completions remain (job controller)."""
    at_once = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is not None:
        done = (job.status and job.status.succeeded) or 0
        at_once = min(at_once, max(0, job.spec.completions - done))
    return (frameworks.Replicas(replicas=at_once, template=job.spec.template),)


def _list_marks(owner: views.Identity) -> Sequence[frameworks.PodMarks]:
    return (frameworks.PodMarks({JOB: owner.name}), frameworks.PodMarks())  # without the label: Kubernetes before 1.27


def describe_pods(spec: frameworks.Tree, name: str) -> frameworks.CreatedPods:
    """Return the pods that a Job with this spec creates."""
    is_indexed = spec.get("completionMode") == "Indexed"
    index = {INDEX: "0"} if is_indexed else {}
    count, completions = spec.get("parallelism", 1), spec.get("completions")
    if isinstance(count, int) and isinstance(completions, int):
        count = min(count, completions)
    return frameworks.CreatedPods(
        count=count,
        name="-0-" if is_indexed else "-",
        labels={JOB: name, _OLD_JOB: name, **index},
        annotations=index,
    )


def _create_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    yield describe_pods(origin.parent, origin.context.workload)


class ClaimingSpec(views.View, frozen=True):
    """The field of a StatefulSet with the claims whose volumes its controller adds to the pods."""

    volume_claim_templates: Any = None


class Replicated(frameworks.Workload, frozen=True):
    """A StatefulSet or ReplicaSet, with the fields that state its size."""

    spec: frameworks.Replicas = frameworks.Replicas()


def _build_stateful_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the volumes of claims, which replace those of the template: pkg/controller/statefulset, updateStorage."""
    return frameworks.ControllerMetadata(volumes=frameworks.list_claim_volumes(context.spec.volume_claim_templates))


def _create_stateful_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    labels = {_POD_INDEX: "0", _POD_NAME: f"{origin.context.workload}-0"}
    yield frameworks.CreatedPods(count=origin.parent.get("replicas", 1), name="-0", labels=labels)


_TEMPLATES = frameworks.locate()
_SIZE = frameworks.SizeRule(Replicated, lambda workload: (workload.spec,))

FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "batch",
            "v1",
            "Job",
            _TEMPLATES,
            is_frozen=True,
            create_pods=_create_pods,
            size=frameworks.SizeRule(Job, _list_job_pods, _list_marks, excludes_ended=True),
        ),
        frameworks.WorkloadKind(
            "batch",
            "v1",
            "CronJob",
            frameworks.locate("jobTemplate", "spec"),
            is_injected=False,
            create_pods=_create_pods,
        ),
        frameworks.WorkloadKind("apps", "v1", "Deployment", _TEMPLATES),
        frameworks.WorkloadKind(
            "apps",
            "v1",
            "StatefulSet",
            frameworks.locate(build_metadata=_build_stateful_metadata),
            spec_view=ClaimingSpec,
            create_pods=_create_stateful_pods,
            size=_SIZE,
        ),
        frameworks.WorkloadKind("apps", "v1", "ReplicaSet", _TEMPLATES, is_injected=False, size=_SIZE),
        frameworks.WorkloadKind(
            "apps",
            "v1",
            "DaemonSet",
            _TEMPLATES,
            is_injected=False,
            create_pods=lambda _: iter((frameworks.CreatedPods(count=None, name="-"),)),  # as many as nodes
        ),
        frameworks.WorkloadKind("", "v1", "ReplicationController", _TEMPLATES, is_injected=False),
    ),
    gang_labels=(frameworks.GangLabel(JOB, "job"),),
    index_labels=(INDEX,),
)
