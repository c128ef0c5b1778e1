"""POST /mutate/workloads: adds devices and mounts to the pod templates of a workload.

Selects the opted-in and changed templates, and combines their plans into one answer.
`railwright.fabric.injection.template_plan` plans a template. The module also compares an immutable template with its
update, which may lack only railwright's additions.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import admission, names, text
from railwright.fabric.claims import claim_templates
from railwright.fabric.gang_topology import plan as gang_topology
from railwright.fabric.injection import drafts, facts, keys, opt_in, template_plan, templates
from railwright.fabric.injection import plan as injection_plan
from railwright.fabric.policy import compiled
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import frameworks, registry
from webhook import reviews

_ANNOTATIONS = "/metadata/annotations"
_DECODER = msgspec.json.Decoder(reviews.Review[Any])
_NO_POLICY = reason.Reason(
    AdmissionCode.PODS_REJECTED,
    "railwright has no policy in force yet: no devices are added to the templates, and their pods are rejected until "
    "there is one",
    fix="if the webhook has just started, wait; otherwise ask a cluster administrator to run `railwright check`",
)

GetFacts = Callable[[str], facts.ClusterFacts]


class _WorkloadReview(msgspec.Struct, frozen=True):
    """A decoded review of a workload."""

    request: reviews.Request[Any]
    workload: templates.Workload
    before: templates.Workload | None

    @property
    def title(self) -> str:
        """Return kind, namespace and name for messages; before creation the name may be `generateName` and `*`."""
        metadata = self.workload.metadata
        name = metadata.name or f"{metadata.generate_name}*"
        return f"{self.workload.kind.name} {self.request.namespace}/{name}"


async def answer_review(body: bytes, policy: policies.Policy | None, get_facts: GetFacts) -> reviews.Answer:
    """Answer a review. Between two templates the event loop answers other requests. Raises reviews.MalformedError."""
    if too_large := reviews.reject_too_large(body, frameworks.MAX_VALUES):
        named, rejection = too_large
        _find_kind(named.kind)
        return rejection.address_to(named)
    request = reviews.decode_request(_DECODER, body)
    return (await _answer_request(request, _find_kind(request.kind), policy, get_facts)).address_to(request)


async def _answer_request(
    request: reviews.Request[Any], kind: frameworks.WorkloadKind, policy: policies.Policy | None, get_facts: GetFacts
) -> reviews.Answer:
    if request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
        return reviews.Answer()
    review = _read_review(request, kind)
    if isinstance(review, reviews.Answer):
        return review
    cluster_facts = get_facts(request.namespace)
    if request.operation == "UPDATE" and kind.is_frozen:
        return await _answer_frozen_update(review, policy, cluster_facts)
    changed_templates = templates.find_changed_templates(review.workload, review.before)
    if policy is None:
        return _answer_without_policy(changed_templates, cluster_facts)
    plans, injected_count = [], 0
    for template in changed_templates:
        await asyncio.sleep(0)
        outcome = admission.plan_template(template, policy, cluster_facts, review.title)
        if isinstance(outcome, injection_plan.Refusal):
            return reviews.build_rejection(outcome.message, outcome.reason, outcome.fabric)
        plans.append(outcome)
        injected_count += outcome.injection is not None or not outcome.is_enforced
        if injected_count > frameworks.MAX_TEMPLATES:
            if not outcome.is_enforced:
                break
            message = (
                f"{review.title}: more than {frameworks.MAX_TEMPLATES} of its templates opt in to a fabric; "
                "use `replicas` for equal templates, or split it into several workloads"
            )
            return reviews.build_rejection(message, reviews.TOO_LARGE)
    await asyncio.sleep(0)
    return _add_topology(review, plans, policy.document)


def _add_topology(
    review: _WorkloadReview, plans: Sequence[template_plan.TemplatePlan], document: policies.PolicyDocument
) -> reviews.Answer:
    """Answer with the plans of the templates, and with the topology of the gang if the policy states domains.

    The topology is written at creation. At an update it is restored in templates that lack it.
    """
    has_fabric = gang_topology.find_fabric(plans, document) is not None
    if review.request.operation == "UPDATE":
        fields = _list_restored_fields(review)
        before = review.before.templates if review.before is not None else ()
        plans = gang_topology.carry_over_topology(plans, before) if has_fabric or fields else plans
        return _combine_plans(review, plans, gang_topology.TopologyPlan(fields=fields))
    if not has_fabric:
        return _combine_plans(review, plans)
    written = gang_topology.plan_topology(review.workload, plans, document)
    return _combine_plans(review, [written.add_to(plan) for plan in plans], written)


def _find_kind(requested: reviews.GroupVersionKind) -> frameworks.WorkloadKind:
    """Return the kind of workload. Raises reviews.MalformedError for an unsupported kind."""
    kind = registry.find_injected_kind(requested.group, requested.version, requested.kind)
    if kind is None:
        title = text.quote("/".join(part for part in (requested.group, requested.version, requested.kind) if part))
        raise reviews.MalformedError(
            f"request.kind is {title}, but railwright does not know the pod templates of this kind; remove the kind "
            "from the rules of the webhook configuration"
        )
    return kind


def _read_review(request: reviews.Request[Any], kind: frameworks.WorkloadKind) -> _WorkloadReview | reviews.Answer:
    """Return the decoded review. With too many entries, return an answer: creation is rejected, an update allowed."""
    if request.object is None:
        raise reviews.MalformedError(f"request.object is missing; a review of {request.operation} must have it")
    is_update = request.operation == "UPDATE" and request.old_object is not None
    before = None
    try:
        if is_update:
            with contextlib.suppress(templates.TooManyEntriesError):
                before = templates.read_workload(kind, request.old_object)
        workload = templates.read_workload(kind, request.object)
    except templates.TooManyEntriesError as error:
        if is_update and before is None:
            return reviews.Answer()
        return reviews.build_rejection(str(error), reviews.TOO_LARGE)
    except templates.UnreadableError as error:
        raise reviews.MalformedError(f"the {kind.name} does not decode: {error}") from None
    return _WorkloadReview(request, workload, before)


def _combine_plans(
    review: _WorkloadReview,
    plans: Sequence[template_plan.TemplatePlan],
    topology: gang_topology.TopologyPlan = gang_topology.NOTHING,
) -> reviews.Answer:
    operations = [operation for plan in plans for operation in build_template_operations(plan.template, plan.changes)]
    operations += _build_field_operations(review.workload, topology.fields)
    injections = [plan.injection for plan in plans if plan.injection is not None and plan.is_enforced]
    is_enforced = all(plan.is_enforced for plan in plans)
    changes = sum(len(plan.changes) for plan in plans)
    audit = {"fabric": ",".join(sorted({injection.fabric for injection in injections})), "changes": str(changes)}
    is_unenforced = not injections and not is_enforced
    return reviews.Answer(
        operations=operations,
        warnings=(
            *keys.check_workload(review.workload, review.before),
            *(warning for plan in plans for warning in plan.warnings),
            *topology.warnings,
            *_warn_of_unpassed_label(review),
        ),
        audit=audit if injections else {"mode": policies.WARN} if is_unenforced else {},
        unenforced=reviews.WOULD_PATCH if is_unenforced and not operations else "",
        claimants=tuple(
            injection.pod for injection in injections if claim_templates.list_railwright_claims(injection.pod)
        ),
    )


def build_template_operations(template: templates.Template, changes: Sequence[drafts.Change]) -> list[drafts.Operation]:
    """Return the JSON Patch operations of a template's changes, with paths that begin at its workload."""
    operations = drafts.list_operations(changes)
    has_metadata = any(operation["path"].startswith("/metadata/") for operation in operations)
    if has_metadata and template.written.metadata is None:
        operations.insert(0, {"op": "add", "path": "/metadata", "value": {}})
    return [
        {**operation, "path": f"{template.pointer}{template.origin.path.locate_field(operation['path'])}"}
        for operation in operations
    ]


def _build_field_operations(workload: templates.Workload, fields: Mapping[str, Any]) -> list[drafts.Operation]:
    """Return the JSON Patch operations that set these fields of the workload, by path."""
    operations: list[drafts.Operation] = []
    if workload.metadata.annotations_or_none is None and any(field.startswith(_ANNOTATIONS) for field in fields):
        operations.append({"op": "add", "path": _ANNOTATIONS, "value": {}})
    return operations + [{"op": "add", "path": pointer, "value": value} for pointer, value in fields.items()]


def _warn_of_unpassed_label(review: _WorkloadReview) -> Iterator[reason.Reason]:
    """Yield a warning for each template that does not get the changed label of the workload.

    A label of the template takes precedence (docs/interface.md 1.2), and may be an earlier copy of the workload's.
    An immutable template gets no label any more.
    """
    workload, before = review.workload, review.before
    label, kind = workload.label, workload.kind.name
    if before is None or label == before.label:
        return
    if workload.kind.is_frozen:
        cause, fix = "is immutable", f"delete the {kind}, and create it again with the label"
    else:
        cause, fix = "has its own label", "change the label in the template too"
    for template in workload.templates:
        own = template.pod.metadata.labels.get(names.FABRIC)
        may_differ = label in (None, names.FABRIC_NONE) if workload.kind.is_frozen else own is None
        if own != label and not may_differ:
            message = f"the changed label {names.FABRIC} of the {kind} does not reach the pod template, which {cause}"
            yield reason.Reason(AdmissionCode.LABEL_NOT_PASSED, message, fix=fix).prefix_with(template.title)


async def _answer_frozen_update(
    review: _WorkloadReview, policy: policies.Policy | None, cluster_facts: facts.ClusterFacts
) -> reviews.Answer:
    """Answer an update of a workload with immutable templates (docs/interface.md 3.5).

    A template that lacks only railwright's additions is replaced by the stored one, and a missing topology is set
    again. So `kubectl apply` and `kubectl replace` of an unchanged manifest succeed. The API of the kind rejects any
    other change.
    """
    devices = _list_added_resources(policy, cluster_facts)
    before = {template.title: template for template in review.before.templates} if review.before else {}
    written = template_plan.read_applied_templates(review.before) if review.before else {}  # by kubectl apply
    restored = []
    for template in templates.find_changed_templates(review.workload, review.before)[: frameworks.MAX_TEMPLATES]:
        await asyncio.sleep(0)
        stored, applied = before.get(template.title), written.get(template.title)
        if (
            stored is not None
            and opt_in.find_label(template_plan.build_pod(stored), cluster_facts.namespace_labels) is not None
            and template_plan.lacks_only_additions(template, stored, applied, devices)
        ):
            restored.append((template, stored))
    operations = [
        {"op": "replace", "path": template.pointer, "value": stored.origin.template} for template, stored in restored
    ]
    fields = _list_restored_fields(review)
    titles = [*(template.title for template, _ in restored), *fields]
    return reviews.Answer(
        operations=operations + _build_field_operations(review.workload, fields),
        warnings=tuple(_warn_of_unpassed_label(review)),
        audit={"restored": text.limit_message(", ".join(titles), reviews.MAX_AUDIT)} if titles else {},
    )


def _list_restored_fields(review: _WorkloadReview) -> Mapping[str, Any]:
    """Return the stored values, by path, of immutable topology fields that the update lacks."""
    if review.before is None or not gang_topology.has_written_job_field(review.before.templates):
        return {}
    return gang_topology.find_removed_topology(review.before.tree, review.workload.tree)


def _list_added_resources(policy: policies.Policy | None, cluster_facts: facts.ClusterFacts) -> Collection[str]:
    """Return the resources that railwright adds to templates under the policy. Never includes accelerators."""
    if policy is None:
        return frozenset()
    network_resources = {resource for resource in (cluster_facts.networks or {}).values() if resource}
    rail_resources = policy.compile_once(compiled.list_resources)
    return (rail_resources | network_resources) - set(policy.document.accelerators)


def _answer_without_policy(
    changed_templates: Sequence[templates.Template], cluster_facts: facts.ClusterFacts
) -> reviews.Answer:
    """Answer while there is no policy: only the workload's label is copied to the templates.

    Pods without the label would start without their network when there is a policy again.
    """
    operations = [
        operation
        for template in changed_templates
        for operation in build_template_operations(template, template_plan.build_label_changes(template))
    ]
    may_opt_in = any(
        opt_in.find_label(template_plan.build_pod(template), cluster_facts.namespace_labels) is not None
        for template in changed_templates
    )
    return reviews.Answer(operations=operations, warnings=(_NO_POLICY,) if may_opt_in else ())
