"""The outlets for Volcano: `spec.networkTopology` of its Job, and annotations on the pods of other controllers.

Volcano reads HyperNodes, so that only the preset `volcano` has keys for a hard constraint. It skips every job with a
topology while there are no HyperNodes. Its controller makes the PodGroup of other controllers' pods from the
annotations of each pod (pkg/controllers/podgroup, parseNetworkTopologyFromPod), so all templates get the same.
"""

from collections.abc import Mapping
from typing import Any

from railwright.fabric import hypernodes
from railwright.fabric.gang_topology.writings import Context, Writing
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import volcano

JOB_FIELD = "/spec/networkTopology"
MODE, HIGHEST_TIER = "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier"
_HARD, _SOFT = "hard", "soft"
_OWN_KEYS = (MODE, HIGHEST_TIER, volcano.GROUP_ANNOTATION)


def write_job(context: Context) -> Writing:
    """Return the field of a Volcano Job, unless the Job or a partition of its tasks has one."""
    tasks = context.get("spec", "tasks")
    policies = [task.get("partitionPolicy") for task in tasks if isinstance(task, dict)] if tasks else []
    if context.get("spec", "networkTopology") is not None:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="spec.networkTopology")
    if any(policy is not None for policy in policies):
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field="partitionPolicy of a task")
    level, mode, tier = _build(context)
    value: Mapping[str, Any] = {"mode": mode} if tier is None else {"mode": mode, "highestTierAllowed": tier}
    return Writing(level, {JOB_FIELD: value})


def annotate(context: Context) -> Writing:
    """Return the annotations of pod templates, unless one names a topology or a PodGroup."""
    for part in context.parts:
        if key := next((key for key in _OWN_KEYS if key in part.pod.metadata.annotations), None):
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=f"annotation {key}")
    level, mode, tier = _build(context)
    annotations = {MODE: mode} if tier is None else {MODE: mode, HIGHEST_TIER: str(tier)}
    return Writing(level, annotations={part.template.title: annotations for part in context.parts})


def _build(context: Context) -> tuple[str, str, int | None]:
    """Return the key of the level, the mode and the highest tier, which is None for a soft constraint."""
    tiers = dict(zip(hypernodes.LEVELS, context.cluster.list_tiers(), strict=False))
    if not tiers:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NO_KEY)
    if not context.request.is_required:
        return "", _SOFT, None
    level = context.request.find_lowest(tiers.__contains__).key
    return level, _HARD, tiers[level]
