"""Volcano: its Job with tasks and plugins, and its PodGroup."""

from collections.abc import Iterator, Sequence
from typing import Any

from railwright.fabric import views
from railwright.fabric.workloads import frameworks, pod_groups

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"  # the pod's PodGroup
JOB = "volcano.sh/job-name"
TASK = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"

_MPI_HOST = "MPI_HOST"  # variable that the mpi plugin sets only on the master
_MAX_ARGUMENTS = 64  # of a plugin, parsed for each task; the mpi plugin has three


POD_GROUPS = frameworks.SizeKind(
    "scheduling.volcano.sh",
    "v1beta1",
    "PodGroup",
    frameworks.SizeSource.VOLCANO,
    views.PodGroup,
    pod_groups.read_min_member,
)


def _build_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build labels and volumes of a task (source: pkg/controllers/job/job_controller_util.go, createJobPod).

    Volcano's webhook names tasks without a name.
    """
    task = context.name or f"default{context.index}"
    plugins = frameworks.get_mapping(context.spec, "plugins")
    labels = {JOB: context.workload, TASK: task}
    # plugins/distributed-framework/mpi/mpi.go: the task that starts mpirun
    master = "mpi" in plugins and task == _find_argument(frameworks.get_list(plugins, "mpi"), "master", "master")
    return frameworks.ControllerMetadata(
        labels, (_MPI_HOST,) if master else (), _list_volumes(frameworks.get_list(context.spec, "volumes"))
    )


def _list_volumes(entries: Sequence[Any]) -> Sequence[frameworks.ControllerVolume]:
    """Return the volumes of a Job under placeholder names; the controller generates random names (createJobPod)."""
    paths = [frameworks.get_mapping(entry).get("mountPath") for entry in entries]
    return [frameworks.ControllerVolume(f"volume-{i}", path) for i, path in enumerate(paths) if isinstance(path, str)]


def _find_argument(arguments: Sequence[Any], name: str, default: str) -> str:
    """Return the value of a plugin's argument, in the syntax of Go's flags."""
    result = default
    words = iter([word for word in arguments[:_MAX_ARGUMENTS] if isinstance(word, str)])
    for word in words:
        flag, has_value, value = word.lstrip("-").partition("=")
        if flag == name:
            result = value if has_value else next(words, result)
    return result


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    task, job = origin.metadata.labels[TASK], origin.context.workload
    plugins = frameworks.get_mapping(origin.ancestors[0], "spec", "plugins")
    yield frameworks.CreatedPods(
        part=f"task {task}",
        count=frameworks.count_replicas(origin.parent),
        name=f"-{task}-0",
        labels={TASK_INDEX: "0"},
        annotations={GROUP_ANNOTATION: f"{job}-{uid}" if (uid := origin.context.uid) else job},
        ssh_volume=f"{job}-ssh" if plugins.keys() & {"ssh", "mpi"} else "",  # the mpi plugin includes ssh
    )


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "batch.volcano.sh",
            "v1alpha1",
            "Job",
            frameworks.locate_templates("tasks", frameworks.EACH, build_metadata=_build_metadata),
            is_frozen=True,
            list_created_pods=_list_created_pods,
            states_size=True,
        ),
    ),
    pod_groups=(POD_GROUPS,),
    group_annotation=GROUP_ANNOTATION,
    gang_labels=(frameworks.GangLabel(JOB, "volcano-job"),),
    role_labels=(TASK,),
    index_labels=(TASK_INDEX,),
    launcher_variable=(JOB, _MPI_HOST),
    launcher_name=(JOB, TASK),  # in a job that starts mpirun by the ssh plugin, only a name shows the launcher
    ssh_volume=(JOB, "{}-ssh"),
)
