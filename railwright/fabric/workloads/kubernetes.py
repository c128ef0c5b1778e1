"""Kubernetes' own controllers: Job and CronJob, the apps API, and the ReplicationController.

The pods of a Job have labels with its name. For other controllers, a gang is the pods of one controller.
"""

from collections.abc import Iterator
from typing import Any

from railwright.fabric.workloads import frameworks

JOB = "batch.kubernetes.io/job-name"
_OLD_JOB = "job-name"  # the job controller still sets it too
INDEX = "batch.kubernetes.io/job-completion-index"  # label and annotation
_POD_INDEX = "apps.kubernetes.io/pod-index"  # label
_POD_NAME = "statefulset.kubernetes.io/pod-name"  # label


def describe_pods(spec: frameworks.Tree, name: str, succeeded: Any = None) -> frameworks.CreatedPods:
    """Return the pods that a Job with this spec creates. `succeeded` is the number of its completions so far."""
    is_indexed = spec.get("completionMode") == "Indexed"
    index = {INDEX: "0"} if is_indexed else {}
    count, completions = spec.get("parallelism"), spec.get("completions")
    count = 1 if count is None else count
    if isinstance(count, int) and isinstance(completions, int):  # fewer if fewer completions remain (job controller)
        done = succeeded if isinstance(succeeded, int) else 0
        count = min(count, max(0, completions - done))
    return frameworks.CreatedPods(
        count=count,
        name="-0-" if is_indexed else "-",
        labels={JOB: name, _OLD_JOB: name, **index},
        annotations=index,
    )


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    succeeded = frameworks.get_mapping(origin.ancestors[0], "status").get("succeeded")
    yield describe_pods(origin.parent, origin.context.workload, succeeded)


def _build_stateful_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the volumes of volumeClaimTemplates, which replace those of the pod template.

    Source: pkg/controller/statefulset, updateStorage.
    """
    claims = frameworks.get_mapping(context.spec).get("volumeClaimTemplates")
    return frameworks.ControllerMetadata(volumes=frameworks.list_claim_volumes(claims))


def _list_pods_of_stateful_set(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    labels = {_POD_INDEX: "0", _POD_NAME: f"{origin.context.workload}-0"}
    yield frameworks.CreatedPods(count=frameworks.count_replicas(origin.parent), name="-0", labels=labels)


_TEMPLATES = frameworks.locate_templates()

FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "batch",
            "v1",
            "Job",
            _TEMPLATES,
            is_frozen=True,
            list_created_pods=_list_created_pods,
            states_size=True,
            excludes_ended=True,
        ),
        frameworks.WorkloadKind(
            "batch",
            "v1",
            "CronJob",
            frameworks.locate_templates("jobTemplate", "spec"),
            is_injected=False,
            list_created_pods=_list_created_pods,
        ),
        frameworks.WorkloadKind("apps", "v1", "Deployment", _TEMPLATES),
        frameworks.WorkloadKind(
            "apps",
            "v1",
            "StatefulSet",
            frameworks.locate_templates(build_metadata=_build_stateful_metadata),
            list_created_pods=_list_pods_of_stateful_set,
            states_size=True,
        ),
        frameworks.WorkloadKind("apps", "v1", "ReplicaSet", _TEMPLATES, is_injected=False, states_size=True),
        frameworks.WorkloadKind(
            "apps",
            "v1",
            "DaemonSet",
            _TEMPLATES,
            is_injected=False,
            list_created_pods=lambda _: iter((frameworks.CreatedPods(count=None, name="-"),)),  # as many as nodes
        ),
        frameworks.WorkloadKind("", "v1", "ReplicationController", _TEMPLATES, is_injected=False),
    ),
    gang_labels=(frameworks.GangLabel(JOB, "job"),),
    index_labels=(INDEX,),
)
