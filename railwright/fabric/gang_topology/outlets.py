"""The outlets of topology requests: one row for each scheduler and the fields by which it takes a request.

To add an outlet, write a file with a function `Write` and its row here. The first row whose `is_for` is true decides.
An outlet writes only at the creation of the workload, and never where its author has written a topology.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import topology_record
from railwright.fabric.gang_topology import (
    job_scheduling,
    kai_annotations,
    kueue_annotations,
    requests,
    schedulers,
    volcano,
)
from railwright.fabric.gang_topology.writings import Context, Writing, split_pointer
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason


class Outlet(msgspec.Struct, frozen=True):
    """How one scheduler takes a topology request for some kinds of workloads."""

    scheduler: str  # one of `schedulers`
    kinds: frozenset[str]  # as WorkloadKind.display_name
    fields: tuple[str, ...]  # JSON pointers of the immutable fields that it writes
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
)

FIELDS = frozenset(field for outlet in OUTLETS for field in outlet.fields)


def find_outlet(scheduler: str, kind: str) -> Outlet | None:
    """Return the outlet for a kind of workload that a scheduler places, None if there is none."""
    return next((row for row in OUTLETS if row.scheduler == scheduler and kind in row.kinds), None)


def list_apis(policy: model.Policy | None) -> Collection[str]:
    """Return the APIs that outlets need; none if no fabric of the policy asks for a topology."""
    fabrics = policy.document.fabrics.values() if policy is not None else ()
    is_requested = any(fabric.placement.gang_topology != requests.OFF for fabric in fabrics)
    return {outlet.api for outlet in OUTLETS if outlet.api} if is_requested else ()


def list_restored(fields: Sequence[str], stored: Any, updated: Any) -> Mapping[str, Any]:
    """Return the fields that an outlet wrote at creation and that an update lacks, with their stored values.

    They are immutable, so that the API server would reject the update. `stored` and `updated` are plain data.
    """
    restored = {}
    for field in fields:
        if field in FIELDS and find_value(updated, field) is None and (value := find_value(stored, field)) is not None:
            restored[field] = value
    return restored


def find_value(tree: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer of plain data, None if there is none."""
    for step in split_pointer(pointer):
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree
