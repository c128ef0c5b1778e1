"""Writes Volcano's topology fields: `spec.networkTopology` of its Job, and annotations of other controllers' pods.

Volcano reads HyperNodes, and skips every job with a topology while there are none. So a topology is written only if the
policy names levels of HyperNodes as domains. Level 1 is tier 1, and so on, as Volcano's discovery numbers them. The
controller makes the PodGroup of other controllers' pods from the annotations of each pod (pkg/controllers/podgroup,
parseNetworkTopologyFromPod), so all templates get the same.

Volcano chooses the domain of a hard constraint for the pods that a PodGroup starts with, and the others have to follow.
A hard constraint is therefore written only where all pods start together. By default the PodGroup of other controllers'
pods starts with one (the same file, getMinMemberFromUpperRes).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from railwright.fabric import hypernodes
from railwright.fabric.gang_topology.requests import (
    NotWrittenError,
    SchedulerFields,
    TopologyRequest,
    build_error_for_authored_field,
    is_node_label,
)
from railwright.fabric.workloads import frameworks, volcano

JOB = "Job.batch.volcano.sh"  # its pods have Volcano as scheduler by default
KINDS = frozenset({"Job.batch", "StatefulSet.apps", "Deployment.apps"})  # of other controllers
JOB_FIELD = "/spec/networkTopology"  # immutable, like the spec of a Volcano Job
MODE, HIGHEST_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"  # of the workload: pods that start together
_HARD, _SOFT = "hard", "soft"
_SMALLER_START = (
    "with {} the scheduler starts fewer pods than the gang has, and might choose a domain without room for the others"
)
_OWN_KEYS = (MODE, HIGHEST_TIER, volcano.GROUP_ANNOTATION)


def build_job_field(request: TopologyRequest) -> SchedulerFields:
    """Return spec.networkTopology for a Volcano Job. Raises NotWrittenError if the author has set a topology."""
    spec = frameworks.get_mapping(request.workload.tree, "spec")
    tasks = [task for task in frameworks.get_list(spec, "tasks") if isinstance(task, dict)]
    if spec.get("networkTopology") is not None:
        raise build_error_for_authored_field("spec.networkTopology")
    if any(task.get("partitionPolicy") is not None for task in tasks):
        raise build_error_for_authored_field("partitionPolicy of a task")
    if request.is_required:
        _check_min_available(request, spec.get("minAvailable"), tasks)
    level, mode, tier = _build_constraint(request)
    value: Mapping[str, Any] = {"mode": mode} if tier is None else {"mode": mode, "highestTierAllowed": tier}
    return SchedulerFields(level, {JOB_FIELD: value})


def build_annotations(request: TopologyRequest) -> SchedulerFields:
    """Return topology annotations for all pod templates.

    A hard constraint also needs an annotation of the workload, by which all pods start together. Raises NotWrittenError
    if a template names a topology or a PodGroup.
    """
    for part in request.parts:
        if key := next((key for key in _OWN_KEYS if key in part.pod.metadata.annotations), None):
            raise build_error_for_authored_field(f"annotation {key}")
    fields = _require_all_pods(request) if request.is_required else {}
    level, mode, tier = _build_constraint(request)
    annotations = {MODE: mode} if tier is None else {MODE: mode, HIGHEST_TIER: str(tier)}
    return SchedulerFields(level, fields, {part.template.title: annotations for part in request.parts})


def _check_min_available(request: TopologyRequest, least: Any, tasks: Iterable[Mapping[str, Any]]) -> None:
    """Raise NotWrittenError if a Volcano Job may start with fewer pods than it has."""
    if least:  # Volcano sets 0 to the sum of the tasks
        is_smaller, field = least != sum(part.pods for part in request.parts), "spec.minAvailable"
    else:
        is_smaller = any(task.get("minAvailable", task.get("replicas")) != task.get("replicas") for task in tasks)
        field = "minAvailable of a task"
    if is_smaller:
        raise NotWrittenError(_SMALLER_START.format(field))


def _require_all_pods(request: TopologyRequest) -> Mapping[str, str]:
    """Return the annotation that makes all pods of a Job start together. Raises NotWrittenError for other workloads.

    The pods of a Deployment or StatefulSet start one by one, or are scaled later, unless the author says otherwise.
    """
    pods, is_job = request.parts[0].pods, request.workload.kind.display_name == "Job.batch"
    completions = frameworks.get_mapping(request.workload.tree, "spec").get("completions") if is_job else None
    if completions is not None and completions != pods:
        shown = str(completions)[:20]
        raise NotWrittenError(
            f"completions ({shown}) is not parallelism ({pods}), so the last pods would wait for a gang that is never "
            "complete"
        )
    written = request.workload.metadata.annotations.get(MIN_MEMBER)
    if written == str(pods):
        return {}
    if written is not None or not is_job:
        field = f"{'no ' if written is None else ''}annotation {MIN_MEMBER}"
        raise NotWrittenError(_SMALLER_START.format(field))
    return {f"/metadata/annotations/{frameworks.escape_key(MIN_MEMBER)}": str(pods)}


def _build_constraint(request: TopologyRequest) -> tuple[str, str, int | None]:
    """Return the key of the level ("" for a soft constraint), the mode, and the highest tier (None for a soft one)."""
    level = request.choose_level(lambda key: not is_node_label(key))
    return (level, _HARD, hypernodes.LEVELS.index(level) + 1) if request.is_required else ("", _SOFT, None)
