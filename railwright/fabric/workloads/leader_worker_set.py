"""LeaderWorkerSet: groups of a leader and its workers, each group a gang."""

from collections.abc import Iterator

from railwright.fabric.workloads import frameworks

NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE = "leaderworkerset.sigs.k8s.io/size"  # annotation: number of pods of the group, with the leader
_LEADER_NAME = "leaderworkerset.sigs.k8s.io/leader-name"  # annotation of workers
_LEADER = "leaderTemplate"


def _build_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the labels of LeaderWorkerSet (source: its pkg/controllers). Only the leader has index 0."""
    claims = frameworks.get_mapping(context.spec, "leaderWorkerTemplate").get("volumeClaimTemplates")
    return frameworks.ControllerMetadata({NAME: context.workload}, volumes=frameworks.list_claim_volumes(claims))


def _build_leader_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    """Build the labels of a leader. Only leaders are created from a leaderTemplate."""
    return frameworks.ControllerMetadata(
        {NAME: context.workload, WORKER_INDEX: "0"}, volumes=_build_metadata(context).volumes
    )


def _list_created_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    """Yield leaders and workers. A set without a template for leaders creates them from the template for workers.

    All have the annotation for the size, because LeaderWorkerSet's admission webhook rejects a pod without it.
    """
    groups = frameworks.get_mapping(origin.ancestors[0], "spec").get("replicas", 1)
    size, is_leader = origin.parent.get("size", 1), WORKER_INDEX in origin.metadata.labels
    shared, annotations = {GROUP_INDEX: "0"}, {SIZE: str(size)}
    if is_leader or _LEADER not in origin.parent:
        yield frameworks.CreatedPods("leader", 1, groups, "-0", {**shared, WORKER_INDEX: "0"}, annotations)
    workers = size - 1 if isinstance(size, int) else None
    if not is_leader and workers != 0:
        of_worker = annotations | {_LEADER_NAME: f"{origin.context.workload}-0"}
        yield frameworks.CreatedPods("worker", workers, groups, "-0-1", {**shared, WORKER_INDEX: "1"}, of_worker)


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "leaderworkerset.x-k8s.io",
            "v1",
            "LeaderWorkerSet",
            (
                frameworks.TemplatePath(
                    ("spec", "leaderWorkerTemplate", _LEADER), build_metadata=_build_leader_metadata
                ),
                frameworks.TemplatePath(
                    ("spec", "leaderWorkerTemplate", "workerTemplate"), build_metadata=_build_metadata
                ),
            ),
            list_created_pods=_list_created_pods,
        ),
    ),
    gang_labels=(frameworks.GangLabel(NAME, "leader-worker-set", (GROUP_INDEX,)),),
    size_annotation=SIZE,
    leader=(WORKER_INDEX, "0"),
    index_labels=(WORKER_INDEX,),
)
