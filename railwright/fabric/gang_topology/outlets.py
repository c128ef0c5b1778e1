"""The outlets of topology requests: one row for each scheduler and the fields by which it takes a request.

To add an outlet, write a function `write` in the file of its scheduler, and its row here.
An outlet writes only at the creation of the workload, and never where its author has written a topology.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent
from railwright.fabric.gang_topology import kai, kueue_annotations, requests, volcano, writings
from railwright.fabric.gang_topology.writings import Context, Writing
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode


class Outlet(msgspec.Struct, frozen=True):
    """How one scheduler takes a topology request for some kinds of workloads."""

    scheduler: str  # one of `writings`
    kinds: frozenset[str]  # as WorkloadKind.display_name
    fields: tuple[str, ...]  # paths of the immutable fields that it writes; `[*]` is any entry of a list
    write: Callable[[Context], Writing]  # raises ReasonError if nothing is to be written
    api: str = ""  # GROUP/VERSION that the API server has to serve for it


# --- Jobs of kube-scheduler: the field `spec.scheduling` (batch/v1, Kubernetes 1.37) --------------------------

# The Job controller makes a PodGroup from it, and kube-scheduler places all pods of the group in one domain of the key,
# or none. The field is immutable, also whether it is set. An API server whose feature gate WorkloadWithJob is off drops
# it without an error; `railwright.fabric.injection.explanations` notices that by the pods.
_JOB_API = "scheduling.k8s.io/v1beta1"  # API of the PodGroups that the Job controller makes


def _write_job(context: Context) -> Writing:
    """Return the field with the key of the lowest level that holds the gang: the constraint is always a hard one."""
    _refuse_job(context)
    if not context.request.is_required:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_HARD_ONLY, field="spec.scheduling")
    level = context.request.find_lowest(requests.is_label)
    value = {
        "schedulingPolicy": {"gang": {}},  # all pods of the Job at once: minCount is its parallelism
        "schedulingConstraints": {"topology": [{"key": level.key}]},
    }
    return Writing(level.key, {intent.JOB_SCHEDULING: value})


def _refuse_job(context: Context) -> None:
    """Raise ReasonError if the Job controller would make no PodGroup, or one that does not suit the Job."""
    for field in ("spec.scheduling", "spec.template.spec.schedulingGroup"):
        if context.get(*field.split(".")) is not None:
            raise reason.ReasonError(AdmissionCode.TOPOLOGY_OF_AUTHOR, field=field)
    # job_scheduling_manager.go, getManagementMode: no PodGroup for a Job with a controller
    context.refuse_owner("spec.scheduling")
    context.refuse_later_pods()
    if context.cluster.served is None or _JOB_API not in context.cluster.served:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NOT_SERVED, api=_JOB_API)


# --- the table --------------------------------------------------------------------------------------------

OUTLETS: Sequence[Outlet] = (
    Outlet(
        writings.KUBE_SCHEDULER,
        frozenset({"Job.batch"}),
        (intent.JOB_SCHEDULING,),
        _write_job,
        _JOB_API,
    ),
    Outlet(writings.KUEUE, kueue_annotations.KINDS, (), kueue_annotations.write),
    Outlet(writings.VOLCANO, frozenset({"Job.batch.volcano.sh"}), (volcano.JOB_FIELD,), volcano.write_job),
    Outlet(writings.VOLCANO, frozenset({"Job.batch", "StatefulSet.apps", "Deployment.apps"}), (), volcano.annotate),
    Outlet(writings.KAI, kai.KINDS, (), kai.write),
    Outlet(writings.KAI, frozenset({"PodCliqueSet.grove.io"}), kai.GROVE_FIELDS, kai.constrain),
)

FIELDS = frozenset(field for outlet in OUTLETS for field in outlet.fields)
_NAME = re.compile(r"\[[^/]*\]")


def write(scheduler: str, context: Context) -> Writing:
    """Return what the outlet of a scheduler writes into a workload. Raises ReasonError if it writes nothing."""
    kind = context.workload.kind.display_name
    outlet = next((row for row in OUTLETS if row.scheduler == scheduler and kind in row.kinds), None)
    if outlet is None:
        raise reason.ReasonError(AdmissionCode.TOPOLOGY_NO_FIELD, kind=kind, scheduler=scheduler)
    return outlet.write(context)


def list_apis(policy: model.Policy | None) -> Collection[str]:
    """Return the APIs that outlets need; none if no fabric of the policy asks for a topology."""
    fabrics = policy.document.fabrics.values() if policy is not None else ()
    is_requested = any(fabric.placement.gang_topology != requests.OFF for fabric in fabrics)
    return {outlet.api for outlet in OUTLETS if outlet.api} if is_requested else ()


def list_restored(fields: Iterable[str], stored: Any, updated: Any) -> Mapping[str, Any]:
    """Return the fields that an outlet wrote at creation and that an update lacks: JSON pointer -> stored value.

    They are immutable, so that the update would be rejected. `stored` and `updated` are plain data.
    """
    restored = {}
    for field in fields:
        pointer, value = writings.find(updated, field)
        if pointer and value is None and _NAME.sub("[*]", field) in FIELDS:
            restored[pointer] = writings.find(stored, field)[1]
    return {pointer: value for pointer, value in restored.items() if value is not None}
