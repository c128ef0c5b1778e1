"""JobSets, including those that Kubeflow Trainer v2 creates for TrainJobs."""

from collections.abc import Iterator

import msgspec

from railwright.fabric.workloads import frameworks, kubernetes

JOBSET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"

_TRAINER_SSH_VOLUME = "mpi-ssh-auth"  # Kubeflow Trainer v2; the job sets its mount path
TRAINER_NODE = "node"  # the container of Trainer v2's ranks
_TRAINER = "trainer"  # value of the step label on the Job of the ranks


def _build_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build JobSet's labels and volumes (source: pkg/controllers/jobset_controller.go, labelAndAnnotateObject)."""
    volumes = [
        volume
        for policy in frameworks.get_list(context.spec, "volumeClaimPolicies")
        for volume in frameworks.list_claim_volumes(frameworks.get_mapping(policy).get("templates"))
    ]
    return frameworks.ControllerMetadata({JOBSET: context.workload, REPLICATED_JOB: context.name}, volumes=volumes)


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    part, job = origin.context.name, origin.ancestors[-4]
    pods = kubernetes.describe_pods(origin.parent, f"{origin.context.workload}-{part}-0")
    yield msgspec.structs.replace(
        pods,
        part=f"replicated job {part}",
        count=_count_pods(job, origin.ancestors[1].get("mlPolicy")),  # of a runtime; a JobSet has no such field
        name=f"-{part}-0{pods.name}",
        labels={**pods.labels, JOB_INDEX: "0"},
    )


def _count_pods(job: frameworks.Tree, policy: object) -> int | None:
    """Return the number of pods of a replicated job. For a runtime, assume a TrainJob without overrides.

    `policy` is mlPolicy of a runtime. The trainer's Job has its numNodes as parallelism (kubeflow/trainer at 8c0f5059,
    pkg/runtime/core/trainingruntime.go and pkg/runtime/framework/plugins/jobset/jobset.go, syncParallelCount).
    """
    pods = frameworks.get_mapping(job, "template", "spec").get("parallelism", 1)
    labels = frameworks.get_mapping(job, "template", "metadata", "labels")
    if isinstance(policy, dict) and labels.get(TRAINER_STEP) == _TRAINER:
        pods = 1 if policy.get("numNodes") is None else policy["numNodes"]
    return frameworks.multiply(job.get("replicas", 1), pods)


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        # JobSet's webhook allows changes of a suspended JobSet's labels and node selectors, never of containers
        # (pkg/webhooks/jobset_webhook.go, ValidateUpdate).
        frameworks.WorkloadKind(
            "jobset.x-k8s.io",
            "v1alpha2",
            "JobSet",
            frameworks.locate_templates(
                "replicatedJobs", frameworks.EACH, "template", "spec", build_metadata=_build_metadata
            ),
            is_frozen=True,
            list_created_pods=_list_created_pods,
        ),
    ),
    gang_labels=(frameworks.GangLabel(JOBSET, "jobset", (JOB_INDEX,)),),
    role_labels=(REPLICATED_JOB,),
    roles={REPLICATED_JOB: {frameworks.LAUNCHER: frameworks.LAUNCHER}},  # of Trainer v2
    ssh_volume=(JOBSET, _TRAINER_SSH_VOLUME),
)

# Kubeflow Trainer copies the template of a runtime to the JobSet of each TrainJob, with the labels in its metadata
# (kubeflow/trainer at 067e5c66, pkg/runtime/core/trainingruntime.go, newRuntimeInfo).
RUNTIMES = tuple(
    frameworks.WorkloadKind(
        "trainer.kubeflow.org",
        "v1alpha1",
        name,
        frameworks.locate_templates(
            "template", "spec", "replicatedJobs", frameworks.EACH, "template", "spec", build_metadata=_build_metadata
        ),
        is_injected=False,
        list_created_pods=_list_created_pods,
    )
    for name in ("TrainingRuntime", "ClusterTrainingRuntime")
)
