"""The outlets of topology requests: one row for each scheduler and the fields by which it takes a request.

To add an outlet, write a file with a function `Write` and its row here. The first row whose `is_for` is true decides.
An outlet writes only at the creation of the workload, and never where its author has written a topology.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import topology_record
from railwright.fabric.gang_topology import (
    grove_constraints,
    job_scheduling,
    kai_annotations,
    kueue_annotations,
    requests,
    schedulers,
    volcano,
    writings,
)
from railwright.fabric.gang_topology.writings import Context, Writing
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason


class Outlet(msgspec.Struct, frozen=True):
    """How one scheduler takes a topology request for some kinds of workloads."""

    scheduler: str  # one of `schedulers`
    kinds: frozenset[str]  # as WorkloadKind.display_name
    fields: tuple[str, ...]  # paths of the immutable fields that it writes; `[*]` is any entry of a list
    write: Callable[[Context], Writing | reason.Reason]  # a reason if nothing is to be written
    api: str = ""  # GROUP/VERSION that the API server has to serve for it


OUTLETS: Sequence[Outlet] = (
    Outlet(
        schedulers.KUBE_SCHEDULER,
        frozenset({"Job.batch"}),
        (topology_record.JOB_SCHEDULING,),
        job_scheduling.write,
        job_scheduling.API,
    ),
    Outlet(schedulers.KUEUE, kueue_annotations.KINDS, (), kueue_annotations.write),
    Outlet(schedulers.VOLCANO, frozenset({"Job.batch.volcano.sh"}), (volcano.JOB_FIELD,), volcano.write_job),
    Outlet(schedulers.VOLCANO, frozenset({"Job.batch", "StatefulSet.apps", "Deployment.apps"}), (), volcano.annotate),
    Outlet(schedulers.KAI, kai_annotations.KINDS, (), kai_annotations.write),
    Outlet(schedulers.KAI, frozenset({"PodCliqueSet.grove.io"}), grove_constraints.FIELDS, grove_constraints.write),
)

FIELDS = frozenset(field for outlet in OUTLETS for field in outlet.fields)
_NAME = re.compile(r"\[[^/]*\]")


def find_outlet(scheduler: str, kind: str) -> Outlet | None:
    """Return the outlet for a kind of workload that a scheduler places, None if there is none."""
    return next((row for row in OUTLETS if row.scheduler == scheduler and kind in row.kinds), None)


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
