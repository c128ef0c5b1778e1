"""Plans the topology fields and the record of a workload at its creation, from the policy and its templates.

A topology is written only at the creation of the workload, and never where its author has written one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent, names, text, views
from railwright.fabric.gang_topology import kueue, requests, volcano
from railwright.fabric.injection import drafts, template_plan, templates
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks

KUEUE, VOLCANO, KUBE_SCHEDULER = "Kueue", "Volcano", "kube-scheduler"
_BUILDERS: Mapping[tuple[str, str], Callable[[requests.TopologyRequest], requests.SchedulerFields]] = {
    (VOLCANO, volcano.JOB): volcano.build_job_field,
    **{(VOLCANO, kind): volcano.build_annotations for kind in volcano.KINDS},
    **{(KUEUE, kind): kueue.build_annotations for kind in kueue.KINDS},
}
_SMALLEST_GANG = 2
_MAX_NAMES = 128  # characters of schedulers' names that authors write


class TopologyPlan(msgspec.Struct, frozen=True):
    """Fields to write into a workload. `annotations` are by title of a template, `fields` by JSON pointer."""

    annotations: Mapping[str, Mapping[str, str]] = {}
    fields: Mapping[str, Any] = {}
    warnings: tuple[reason.Reason, ...] = ()

    def add_to(self, plan: template_plan.TemplatePlan) -> template_plan.TemplatePlan:
        """Return the plan of a template, with its topology annotations added to its changes."""
        return _add_annotations(plan, self.annotations.get(plan.template.title, {}))


NOTHING = TopologyPlan()


def plan_topology(
    workload: templates.Workload, plans: Sequence[template_plan.TemplatePlan], document: model.PolicyDocument
) -> TopologyPlan:
    """Return the annotations and fields to write into a workload.

    Returns NOTHING if the policy asks for no topology, or if the object already has the fields of its record: the API
    server may call the webhook twice.
    """
    fabric = find_fabric(plans, document)
    if fabric is None or _has_topology_from_railwright(plans, workload.tree):
        return NOTHING
    parts = tuple(_build_template_pods(workload, planned) for planned in plans)
    request = requests.TopologyRequest(
        workload=workload,
        parts=parts,
        placement=fabric.placement,
        segment=max([intent.find_segment(part.pod, fabric) for part in parts if part.is_rank], default=1),
    )
    if request.rank_count < _SMALLEST_GANG:
        return NOTHING
    scheduler = find_scheduler(workload, [part.pod for part in parts])
    record = intent.TopologyRecord(scheduler=scheduler, mode=fabric.placement.gang_topology)
    try:
        writing = _build_fields(scheduler, request)
    except requests.NotWrittenError as error:
        # the operator asked for a topology that this scheduler cannot read; other causes are in the manifest
        is_warned = error.reason.code == AdmissionCode.TOPOLOGY_NO_KEY
        warnings = (error.reason,) if is_warned else ()
        return TopologyPlan(_build_annotations(plans, record, error.reason), warnings=warnings)
    record = msgspec.structs.replace(record, level=writing.level, fields=tuple(writing.fields))
    requested = _explain_fields(scheduler, request, writing)
    return TopologyPlan(_build_annotations(plans, record, requested, writing.annotations), writing.fields)


def find_scheduler(workload: templates.Workload, pods: Iterable[views.Pod]) -> str:
    """Return the scheduler that chooses the domain of a gang: Kueue if it has a queue, otherwise that of its pods."""
    if kueue.QUEUE_NAME in workload.metadata.labels:
        return KUEUE
    named = {pod.spec.scheduler_name for pod in pods} - {""}
    if named == {"volcano"} or (not named and workload.kind.display_name == volcano.JOB):
        return VOLCANO
    return ", ".join(sorted(named))[:_MAX_NAMES] or KUBE_SCHEDULER


def _build_fields(scheduler: str, request: requests.TopologyRequest) -> requests.SchedulerFields:
    kind = request.workload.kind.display_name
    write = _BUILDERS.get((scheduler, kind))
    if write is None:
        raise requests.NotWrittenError(f"railwright sets no topology constraint on a {kind} that {scheduler} schedules")
    return write(request)


def _explain_fields(
    scheduler: str, request: requests.TopologyRequest, writing: requests.SchedulerFields
) -> reason.Reason:
    """Return the reason for the written fields. The reason also says if no field keeps each segment in one domain."""
    fields = [".".join(frameworks.split_pointer(field)) for field in writing.fields]
    keys = sorted({key for annotations in writing.annotations.values() for key in annotations})
    is_divided = request.is_required and request.segment > 1 and request.closest_key != writing.level
    pods = text.format_count(request.rank_count, "pod")
    message = f"{', '.join((*fields, *keys))} asks {scheduler} to keep the {pods} in one domain"
    if writing.level:
        message += f" of {writing.level}"
    message += f" ({request.placement.gang_topology})"
    if is_divided and not writing.has_segments:
        message += f"; nothing asks it to keep each segment of {request.segment} ranks in one domain"
    return reason.Reason(AdmissionCode.TOPOLOGY_REQUESTED, message)


def carry_over_topology(
    plans: Sequence[template_plan.TemplatePlan], stored: Sequence[templates.Template]
) -> list[template_plan.TemplatePlan]:
    """Return the plans of an update, with the topology that the stored templates got at their creation.

    A template in which the author wrote a topology for the same scheduler keeps only that, because two topologies might
    contradict each other.
    """
    pods = {template.title: template.pod for template in stored}
    carried = []
    for planned in plans:
        pod = pods.get(planned.template.title, views.Pod())
        record = intent.read_topology(pod)
        keys = (names.TOPOLOGY, *record.annotations)
        written = {key: pod.metadata.annotations[key] for key in keys if key in pod.metadata.annotations}
        own = planned.template.pod.metadata.annotations
        is_lost = _list_key_prefixes(written).isdisjoint(_list_key_prefixes(own))
        may_carry = planned.injection is not None or bool(
            record.fields
        )  # fields are restored whatever the policy is now
        carried.append(_add_annotations(planned, written) if is_lost and may_carry else planned)
    return carried


def _list_key_prefixes(annotations: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Return prefix and first word of each annotation key, which all topology keys of a scheduler have in common."""
    parts = [key.partition("/") for key in annotations]
    return frozenset((prefix, name.partition("-")[0]) for prefix, _, name in parts)


def find_removed_topology(stored: Any, updated: Any) -> Mapping[str, Any]:
    """Return {JSON pointer: stored value} for spec.networkTopology of a Volcano Job if an update removes it, else {}.

    The field is immutable, so Volcano rejects an update without it. `stored` and `updated` are plain data.
    """
    before, after = (frameworks.get_mapping(tree, "spec").get("networkTopology") for tree in (stored, updated))
    return {volcano.JOB_FIELD: before} if before is not None and after is None else {}


def has_written_job_field(stored: Iterable[templates.Template]) -> bool:
    """True if the topology record of a template says that railwright wrote spec.networkTopology of a Volcano Job."""
    return any(volcano.JOB_FIELD in intent.read_topology(template.pod).fields for template in stored)


def find_fabric(plans: Sequence[template_plan.TemplatePlan], document: model.PolicyDocument) -> model.Fabric | None:
    """Return the only fabric of a workload; None with several fabrics.

    Also returns None in mode `warn`, and if the policy asks for no topology.
    """
    fabrics = {planned.injection.fabric for planned in plans if planned.injection is not None}
    if len(fabrics) != 1 or not all(planned.is_enforced for planned in plans):
        return None
    fabric = document.fabrics[fabrics.pop()]
    return None if fabric.placement.gang_topology == requests.OFF else fabric


def _build_template_pods(workload: templates.Workload, planned: template_plan.TemplatePlan) -> requests.TemplatePods:
    template, injection = planned.template, planned.injection
    created = workload.kind.list_created_pods(template.origin)
    return requests.TemplatePods(
        template=template,
        pod=template.pod if injection is None else injection.pod,
        pods=sum(pods.count for pods in created if isinstance(pods.count, int)),
        is_rank=injection is not None and injection.has_rails,
    )


def _has_topology_from_railwright(plans: Sequence[template_plan.TemplatePlan], tree: Any) -> bool:
    """True if the workload has a topology annotation or field that the record of one of its templates lists."""
    for planned in plans:
        annotations = planned.template.pod.metadata.annotations
        if any(key in annotations for key in intent.read_topology(planned.template.pod).annotations):
            return True
    has_field = frameworks.get_mapping(tree, "spec").get("networkTopology") is not None
    return has_field and has_written_job_field(planned.template for planned in plans)


def _build_annotations(
    plans: Sequence[template_plan.TemplatePlan],
    record: intent.TopologyRecord,
    why: reason.Reason,
    annotations: Mapping[str, Mapping[str, str]] = {},
) -> Mapping[str, Mapping[str, str]]:
    """Return the topology annotations and the topology record of each template that opted in, by its title."""
    annotated = {}
    for title in [planned.template.title for planned in plans if planned.injection is not None]:
        own = annotations.get(title, {})
        own_record = msgspec.structs.replace(record, annotations=tuple(own), reason=why)
        annotated[title] = {**own, names.TOPOLOGY: msgspec.json.encode(own_record).decode()}
    return annotated


def _add_annotations(planned: template_plan.TemplatePlan, annotations: Mapping[str, str]) -> template_plan.TemplatePlan:
    """Return the plan of a template, with these annotations added to its changes."""
    pod = planned.template.pod
    draft = drafts.Draft(pod)
    for key, value in annotations.items():
        if pod.metadata.annotations.get(key) != value:
            draft.set_annotation(key, value, "")
    return msgspec.structs.replace(planned, changes=(*planned.changes, *draft.changes))
