"""The outlets for Volcano: `spec.networkTopology` of its Job, and annotations on the pods of other controllers.

Volcano reads HyperNodes, so that only the preset `volcano` has keys for a hard constraint. It skips every job with a
topology while there are no HyperNodes. Its controller makes the PodGroup of other controllers' pods from the
annotations of each pod (pkg/controllers/podgroup, parseNetworkTopologyFromPod), so all templates get the same.

Volcano chooses the domain of a hard constraint for the pods that a PodGroup starts with, and the others have to follow.
A hard constraint is therefore written only where all pods start together. By default the PodGroup of other controllers'
pods starts with one (the same file, getMinMemberFromUpperRes).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from railwright.fabric import hypernodes
from railwright.fabric.gang_topology.writings import Context, Writing, point_to_annotation
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import volcano

JOB_FIELD = "/spec/networkTopology"
MODE, HIGHEST_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
MIN_MEMBER = "scheduling.volcano.sh/group-min-member"  # of the workload: pods that start together
_HARD, _SOFT = "hard", "soft"
_OWN_KEYS = (MODE, HIGHEST_TIER, volcano.GROUP_ANNOTATION)


def write_job(context: Context) -> Writing:
    """Return the field of a Volcano Job, unless the Job or a partition of its tasks has one."""
    tasks = [task for task in context.get("spec", "tasks") or () if isinstance(task, dict)]
    if context.get("spec", "networkTopology") is not None:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="spec.networkTopology")
    if any(task.get("partitionPolicy") is not None for task in tasks):
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="partitionPolicy of a task")
    if context.request.is_required:
        _refuse_smaller_gang(context, tasks)
    level, mode, tier = _build(context)
    value: Mapping[str, Any] = {"mode": mode} if tier is None else {"mode": mode, "highestTierAllowed": tier}
    return Writing(level, {JOB_FIELD: value})


def annotate(context: Context) -> Writing:
    """Return the annotations of pod templates, unless one names a topology or a PodGroup.

    A hard constraint comes with the workload's annotation by which all pods start together.
    """
    for part in context.parts:
        if key := next((key for key in _OWN_KEYS if key in part.pod.metadata.annotations), None):
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=f"annotation {key}")
    fields = _require_all_pods(context) if context.request.is_required else {}
    level, mode, tier = _build(context)
    annotations = {MODE: mode} if tier is None else {MODE: mode, HIGHEST_TIER: str(tier)}
    return Writing(level, fields, {part.template.title: annotations for part in context.parts})


def _refuse_smaller_gang(context: Context, tasks: Iterable[Mapping[str, Any]]) -> None:
    """Raise ReasonError if a Volcano Job may start with fewer pods than it has."""
    least = context.get("spec", "minAvailable")
    if least:  # Volcano sets 0 to the sum of the tasks
        is_smaller, field = least != sum(part.pods for part in context.parts), "spec.minAvailable"
    else:
        is_smaller = any(task.get("minAvailable", task.get("replicas")) != task.get("replicas") for task in tasks)
        field = "minAvailable of a task"
    if is_smaller:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_SMALLER_GANG, field=field)


def _require_all_pods(context: Context) -> Mapping[str, str]:
    """Return the annotation by which all pods of a Job start together. Raises ReasonError for other workloads.

    The pods of a Deployment or StatefulSet start one by one, or are scaled later, unless the author says otherwise.
    """
    pods, is_job = str(context.parts[0].pods), context.workload.kind.display_name == "Job.batch"
    if is_job:
        context.refuse_later_pods()
    written = context.workload.metadata.annotations.get(MIN_MEMBER)
    if written == pods:
        return {}
    if written is not None or not is_job:
        field = f"{'no ' if written is None else ''}annotation {MIN_MEMBER}"
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_SMALLER_GANG, field=field)
    return {point_to_annotation(MIN_MEMBER): pods}


def _build(context: Context) -> tuple[str, str, int | None]:
    """Return the key of the level, the mode and the highest tier, which is None for a soft constraint."""
    tiers = dict(zip(hypernodes.LEVELS, context.cluster.list_tiers(), strict=False))
    if not tiers:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NO_KEY)
    if not context.request.is_required:
        return "", _SOFT, None
    level = context.request.find_lowest(tiers.__contains__).key
    return level, _HARD, tiers[level]
