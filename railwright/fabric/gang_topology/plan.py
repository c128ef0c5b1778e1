"""Plans the topology of a workload that is being created: from its policy and its templates to fields and a record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import intent, names, views
from railwright.fabric.gang_topology import outlets, requests, writings
from railwright.fabric.injection import pod_changes, template_plan, templates
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, registry

# causes that the reader of a warning can remove
_WARNED = frozenset(
    {
        AdmissionCode.TOPOLOGY_NOT_SERVED,
        AdmissionCode.TOPOLOGY_NO_KEY,
        AdmissionCode.TOPOLOGY_CAPACITY_UNKNOWN,
        AdmissionCode.TOPOLOGY_GANG_TOO_LARGE,
        AdmissionCode.TOPOLOGY_QUEUE_UNKNOWN,
    }
)


class TopologyPlan(msgspec.Struct, frozen=True):
    """Holds what is written into a workload. `annotations` are by title of a template, `fields` by JSON pointer."""

    annotations: Mapping[str, Mapping[str, str]] = {}
    fields: Mapping[str, Any] = {}
    warnings: tuple[rendering.Message, ...] = ()

    def add_to(self, plan: template_plan.TemplatePlan) -> template_plan.TemplatePlan:
        """Return the plan of a template with its annotations."""
        return _add_annotations(plan, self.annotations.get(plan.template.title, {}))


NOTHING = TopologyPlan()


def plan(
    workload: templates.Workload,
    tree: Any,
    plans: Sequence[template_plan.TemplatePlan],
    document: model.PolicyDocument,
    cluster: writings.ClusterFacts,
) -> TopologyPlan:
    """Return what is written into a workload for its gangs. `tree` is the workload as plain data.

    Nothing is planned if the policy asks for nothing, and if the object has the fields of its record already: the API
    server may call the webhook twice.
    """
    fabric = find_fabric(plans, document)
    if fabric is None or _is_written(plans, tree):
        return NOTHING
    list_gangs = workload.kind.list_gangs
    paths = list_gangs(tree) if list_gangs is not None else {}
    gangs: dict[str, list[template_plan.TemplatePlan]] = {}
    for planned in plans:
        gangs.setdefault(paths.get(planned.template.context.name, ""), []).append(planned)
    if len(gangs) > 1 and sum(planned.injection is not None for planned in plans) > _MAX_MEASURED:
        cluster = msgspec.structs.replace(cluster, domains=None)
    results = []
    for path, members in gangs.items():
        parts = tuple(_build_part(workload, tree, planned, fabric) for planned in members)
        request = requests.compile_request(parts, fabric.placement, cluster.domains)
        if request.pods >= _SMALLEST_GANG:
            results.append(_plan_gang(writings.Context(workload, tree, parts, request, cluster, path), members))
    return TopologyPlan(
        {title: annotations for result in results for title, annotations in result.annotations.items()},
        {pointer: value for result in results for pointer, value in result.fields.items()},
        tuple(warning for result in results for warning in result.warnings),
    )


def _plan_gang(context: writings.Context, plans: Sequence[template_plan.TemplatePlan]) -> TopologyPlan:
    """Return what is written for a gang. `plans` are those of its templates."""
    request = context.request
    scheduler = writings.find_scheduler(context.workload, [part.pod for part in context.parts])
    record = intent.TopologyRecord(scheduler=scheduler, mode=request.mode)
    try:
        writing = outlets.write(scheduler, context)
    except reason.ReasonError as error:
        warnings = rendering.describe_all([error.reason] if error.reason.code in _WARNED else [])
        return TopologyPlan(_annotate(plans, record, error.reason), warnings=warnings)
    keys = sorted({key for annotations in writing.annotations.values() for key in annotations})
    named = tuple(".".join(frameworks.split_pointer(field)) for field in writing.fields)
    has_segments = request.is_required and request.segments.size > 1 and request.segments.key != writing.level
    requested = reason.make(
        AdmissionCode.TOPOLOGY_REQUESTED,
        field=", ".join((*named, *keys)),
        scheduler=scheduler,
        level=writing.level,
        pods=request.pods,
        segment=request.segments.size if has_segments and not writing.has_segments else 0,
    )
    record = msgspec.structs.replace(record, level=writing.level, fields=tuple(writing.fields))
    fields = {writings.find(context.tree, field)[0]: value for field, value in writing.fields.items()}
    return TopologyPlan(_annotate(plans, record, requested, writing.annotations), fields)


def carry_over(
    plans: Sequence[template_plan.TemplatePlan], stored: Sequence[templates.Template]
) -> list[template_plan.TemplatePlan]:
    """Return the plans of an update, with the topology that the stored templates got at their creation.

    Its annotations are added to templates that have none of them, and no other topology for the same scheduler: the two
    might contradict each other.
    """
    pods = {template.title: template.pod for template in stored}
    carried = []
    for planned in plans:
        pod = pods.get(planned.template.title, views.Pod())
        record = intent.read_topology(pod)
        keys = (names.TOPOLOGY, *record.annotations)
        written = {key: pod.metadata.annotations[key] for key in keys if key in pod.metadata.annotations}
        own = planned.template.pod.metadata.annotations
        is_lost = _list_families(written).isdisjoint(_list_families(own))
        may_carry = planned.injection is not None or bool(
            record.fields
        )  # fields are restored whatever the policy is now
        carried.append(_add_annotations(planned, written) if is_lost and may_carry else planned)
    return carried


def _list_families(annotations: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Return the domain and the first word of each key, which all keys of one scheduler's topology share."""
    parts = [key.partition("/") for key in annotations]
    return frozenset((domain, name.partition("-")[0]) for domain, _, name in parts)


_SMALLEST_GANG = 2
_MAX_MEASURED = 8  # templates of several gangs: each takes up to 20 ms with 5,000 nodes


def find_fabric(plans: Sequence[template_plan.TemplatePlan], document: model.PolicyDocument) -> model.Fabric | None:
    """Return the workload's fabric; None if it has none or several, one in mode `warn`, or asks for no topology."""
    fabrics = {planned.injection.fabric for planned in plans if planned.injection is not None}
    if len(fabrics) != 1 or not all(planned.is_enforced for planned in plans):
        return None
    fabric = document.fabrics[fabrics.pop()]
    return None if fabric.placement.gang_topology == requests.OFF else fabric


def _build_part(
    workload: templates.Workload, tree: Any, planned: template_plan.TemplatePlan, fabric: model.Fabric
) -> requests.Part:
    template, injection = planned.template, planned.injection
    pod = template.pod if injection is None else injection.pod
    return requests.Part(
        template=template,
        pod=pod,
        pods=registry.count_pods_at(workload.kind, template.pointer, tree) or 0,
        is_rank=injection is not None and injection.has_rails,
        segment=intent.find_segment(pod, fabric),
    )


def _is_written(plans: Sequence[template_plan.TemplatePlan], tree: Any) -> bool:
    """True if a template has a record with fields or annotations that the object has."""
    fields: set[str] = set()
    for planned in plans:
        record = intent.read_topology(planned.template.pod)
        if any(key in planned.template.pod.metadata.annotations for key in record.annotations):
            return True
        fields.update(record.fields)
    # anybody may write a record of others
    return any(writings.find(tree, field)[1] is not None for field in sorted(fields)[: frameworks.MAX_TEMPLATES])


def _annotate(
    plans: Sequence[template_plan.TemplatePlan],
    record: intent.TopologyRecord,
    why: reason.Reason,
    annotations: Mapping[str, Mapping[str, str]] = {},
) -> Mapping[str, Mapping[str, str]]:
    """Return the annotations of each template that opted in, with the record."""
    annotated = {}
    for title in [planned.template.title for planned in plans if planned.injection is not None]:
        own = annotations.get(title, {})
        own_record = msgspec.structs.replace(record, annotations=tuple(own), reason=rendering.record(why))
        annotated[title] = {**own, names.TOPOLOGY: msgspec.json.encode(own_record).decode()}
    return annotated


def _add_annotations(planned: template_plan.TemplatePlan, annotations: Mapping[str, str]) -> template_plan.TemplatePlan:
    """Return the plan of a template that also gets these annotations."""
    changes = tuple(
        pod_changes.SetAnnotation(entry="", reason="the topology of the gang", key=key, value=value)
        for key, value in annotations.items()
        if planned.template.pod.metadata.annotations.get(key) != value
    )
    return msgspec.structs.replace(planned, changes=planned.changes + changes)
