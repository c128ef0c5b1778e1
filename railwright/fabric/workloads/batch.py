"""Kubernetes' batch API: Job and CronJob."""

from collections.abc import Iterator, Sequence

from railwright.fabric import views
from railwright.fabric.workloads import frameworks, kinds, objects

JOB = "batch.kubernetes.io/job-name"
_OLD_JOB = "job-name"  # the job controller still sets it too
INDEX = "batch.kubernetes.io/job-completion-index"  # label and annotation


class JobSpec(views.View, frozen=True):
    """The fields that state how many pods a Job runs at once."""

    parallelism: int | None = None
    completions: int | None = None
    template: objects.Template | None = None


class JobStatus(views.View, frozen=True):
    """status of a Job. Succeeded pods are not created again."""

    succeeded: int | None = None


class Job(objects.Workload, frozen=True):
    """A Job, with the fields that state its size."""

    spec: JobSpec = JobSpec()
    status: JobStatus | None = None


def _list_replicas(job: Job) -> Sequence[objects.Replicas]:
    """Return the pods of a Job: `parallelism`, or fewer if fewer completions remain (job controller)."""
    at_once = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is not None:
        done = (job.status and job.status.succeeded) or 0
        at_once = min(at_once, max(0, job.spec.completions - done))
    return (objects.Replicas(replicas=at_once, template=job.spec.template),)


def _list_marks(owner: views.Identity) -> Sequence[kinds.PodMarks]:
    return (kinds.PodMarks({JOB: owner.name}), kinds.PodMarks())  # without the label: Kubernetes before 1.27


def describe_pods(spec: kinds.Tree, name: str) -> kinds.CreatedPods:
    """Return the pods of a Job by its spec."""
    is_indexed = spec.get("completionMode") == "Indexed"
    index = {INDEX: "0"} if is_indexed else {}
    return kinds.CreatedPods(
        count=spec.get("parallelism", 1),
        name="-0-" if is_indexed else "-",
        labels={JOB: name, _OLD_JOB: name, **index},
        annotations=index,
    )


def _create_pods(origin: kinds.TemplateOrigin) -> Iterator[kinds.CreatedPods]:
    yield describe_pods(origin.parent, origin.context.workload)


def _build_verification_job(parts: frameworks.Parts) -> list[kinds.Tree]:
    first = f"{parts.name}-0.{parts.name}"
    container = parts.build_torch_rank("torch", "$(JOB_COMPLETION_INDEX)", first)
    spec = {
        "completions": parts.nodes,
        "parallelism": parts.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": parts.build_template(container, subdomain=parts.name, restartPolicy="Never"),
    }
    peers = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {JOB: parts.name}}
    return [parts.build_object("v1", "Service", peers), parts.build_object("batch/v1", "Job", spec)]


_TEMPLATES = kinds.locate(kinds.build_no_metadata)

FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        kinds.WorkloadKind(
            "batch",
            ("v1",),
            "Job",
            "jobs",
            _TEMPLATES,
            is_frozen=True,
            create_pods=_create_pods,
            size=kinds.SizeRule(Job, _list_replicas, _list_marks, optional=False),
        ),
        kinds.WorkloadKind(
            "batch",
            ("v1",),
            "CronJob",
            "cronjobs",
            kinds.locate(kinds.build_no_metadata, "jobTemplate", "spec"),
            is_injected=False,
            create_pods=_create_pods,
        ),
    ),
    gang_labels=(frameworks.GangLabel(JOB, "job"),),
    index_labels=(INDEX,),
    index_keys=(INDEX,),
    rank_variables=("JOB_COMPLETION_INDEX",),
    verification_jobs=(frameworks.VerificationJob("job", f"{JOB}={{name}}", _build_verification_job),),
    replica_fields=("parallelism",),
)
